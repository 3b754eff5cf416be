"""The figures of the pocket model's card: autoencoder PSNR, size, speed, and prompt following over guidance scales.

python benchmarks/pocket_model.py [--model FOLDER] [--prompts 200] [--guidance 1 2 3 4 5]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path

import torch
from diffusers import AutoencoderKLWan

from flash_grpo.config import RunConfig, build_config
from flash_grpo.evaluate import EvaluationSet, deploy
from flash_grpo.models.base import TextEmbeddings, VideoModel
from flash_grpo.models.pocket import world
from flash_grpo.models.pocket.train import psnr, to_model_range
from flash_grpo.models.registry import BUILT_IN, built_in_folder, load_model
from flash_grpo.models.wan import store_channels_last
from flash_grpo.prompts import load_prompts
from flash_grpo.rewards.prompt_following import attributes, fully_right
from flash_grpo.rollout import Meter


def autoencoder_figures(folder: Path) -> dict[str, float]:
    """PSNR on unseen clips, and prompt following of ground truth before and after the autoencoder."""
    autoencoder = AutoencoderKLWan.from_pretrained(folder, subfolder="vae", dtype=torch.float32)
    store_channels_last(autoencoder)
    pairs = list(world.clips(4242, 200, held_out=True))
    clips = torch.stack([to_model_range(clip) for _, clip in pairs])
    with torch.no_grad():
        latents = [autoencoder.encode(part).latent_dist.mode() for part in clips.split(16)]
        decoded = torch.cat([autoencoder.decode(part).sample for part in latents])
    frames = (decoded / 2 + 0.5).clamp(0, 1).transpose(1, 2).numpy()
    return {
        "psnr": psnr(autoencoder, clips),
        "following_ground_truth": _mean([_score(clip, caption) for caption, clip in pairs]),
        "following_decoded": _mean([_score(clip, pairs[i][0]) for i, clip in enumerate(frames)]),
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _score(frames: world.Array, caption: str) -> float:
    return _mean(list(attributes(frames, caption).values()))


def following_figures(
    model: VideoModel, config: RunConfig, embeddings: TextEmbeddings, chosen: EvaluationSet, guidance: float
) -> dict[str, object]:
    """Mean prompt following, share of fully right videos, and the mean per attribute, at one guidance scale."""
    config = config.model_copy(update={"evaluation_guidance_scale": guidance})
    shape = model.latent_shape(config.frames, config.height, config.width)
    noise = torch.stack([chosen.noise(i, shape) for i in range(len(chosen.prompts))])
    frames = []
    for start in range(0, len(noise), 50):
        indices = range(start, min(start + 50, len(noise)))
        latents = deploy(model, config, embeddings, list(indices), noise[start : start + 50], Meter())
        frames.append(model.decode(latents))
    videos = torch.cat(frames).numpy()
    per_attribute: dict[str, list[float]] = defaultdict(list)
    scores, right, single, pair = [], [], [], []
    for video, prompt in zip(videos, chosen.prompts, strict=True):
        found = attributes(video, prompt.text)
        scores.append(_mean(list(found.values())))
        right.append(float(fully_right(found)))
        (pair if " and " in prompt.text else single).append(scores[-1])
        for key, value in found.items():
            per_attribute[key.split(".")[-1]].append(value)
    return {
        "guidance": guidance,
        "prompt_following": _mean(scores),
        "fully_right": _mean(right),
        "single_subject": _mean(single),
        "two_subjects": _mean(pair),
        **{key: _mean(values) for key, values in sorted(per_attribute.items())},
    }


def seconds_for_videos(model: VideoModel, config: RunConfig, embeddings: TextEmbeddings, count: int) -> float:
    """Seconds for `count` videos with the deployment sampler at guidance 3, decoded."""
    shape = model.latent_shape(config.frames, config.height, config.width)
    start = time.perf_counter()
    noise = torch.randn((count, *shape))
    config = config.model_copy(update={"evaluation_guidance_scale": 3.0})
    model.decode(deploy(model, config, embeddings, list(range(count)), noise, Meter()))
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="pocket")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--guidance", type=float, nargs="+", default=[1.0, 2.0, 3.0, 4.0, 5.0])
    arguments = parser.parse_args()
    folder = built_in_folder(arguments.model) if arguments.model in BUILT_IN else Path(arguments.model)
    config = build_config("pocket", {"model": arguments.model})
    model = load_model(config)
    chosen = EvaluationSet("heldout", load_prompts("pocket:heldout", arguments.prompts), 0)
    embeddings = model.encode_prompts([p.text for p in chosen.prompts], "")
    sizes = sum(file.stat().st_size for file in folder.rglob("*.safetensors")) / 2**20
    print(json.dumps({"weights_mb": sizes, **autoencoder_figures(folder)}))
    seconds_for_videos(model, config, embeddings, 8)
    print(json.dumps({"seconds_for_8_videos": seconds_for_videos(model, config, embeddings, 8)}))
    for guidance in arguments.guidance:
        print(json.dumps(following_figures(model, config, embeddings, chosen, guidance)), flush=True)


if __name__ == "__main__":
    main()
