"""Train the pocket model from scratch and write it as a diffusers folder.

    python -m flash_grpo.models.pocket.train all --size full --work WORK --output FOLDER

Stages: `autoencoder` (first imitates the linear code of `code.py`, then learns its own), `decoder` (the encoder frozen;
may run beside the next stage), `denoiser` (on the frozen encoder's latents), `assemble`.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKLWan, WanPipeline, WanTransformer3DModel
from torch import nn
from transformers import UMT5EncoderModel

from flash_grpo.files import write_atomic
from flash_grpo.models.pocket import architecture, world
from flash_grpo.models.pocket.code import LinearCode, fit_linear_code
from flash_grpo.models.wan import store_channels_last

CLIPS_PER_CAPTION = 4
CAPTION_DROPOUT = 0.1
CODE_CLIPS = 3000
POOL_CAPTIONS = {"full": 25_000, "micro": 2_500}


@dataclass(frozen=True)
class Budget:
    """Steps, batch and learning rate of one stage."""

    steps: int
    batch: int
    learning_rate: float


BUDGETS = {
    ("autoencoder", "full"): Budget(2500, 8, 6e-4),
    ("decoder", "full"): Budget(2500, 8, 5e-4),
    ("denoiser", "full"): Budget(12_000, 64, 1e-3),
    ("autoencoder", "micro"): Budget(1200, 8, 1e-3),
    ("decoder", "micro"): Budget(0, 8, 5e-4),
    ("denoiser", "micro"): Budget(1500, 64, 2e-3),
}
WARM_UP_STEPS = 1000
"""Steps in which the autoencoder imitates the linear code; without them it lingers at the clips' mean colour."""


def to_model_range(clip: world.Array) -> torch.Tensor:
    """[F,3,H,W] in 0..1 -> [3,F,H,W] in -1..1."""
    return torch.from_numpy(clip).permute(1, 0, 2, 3) * 2 - 1


def fixed_code() -> LinearCode:
    """The linear code both stages share, fitted to a fixed sample of clips."""
    return fit_linear_code(torch.stack([to_model_range(clip) for _, clip in world.clips(11, CODE_CLIPS)]))


def _learning_rate(budget: Budget, step: int) -> float:
    warm = min(1.0, (step + 1) / 200)
    return budget.learning_rate * warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * step / budget.steps)))


def _clip_batches(seed: int, batch: int) -> Iterator[torch.Tensor]:
    for round_ in range(1_000_000):
        block = [to_model_range(clip) for _, clip in world.clips((seed << 20) + round_, batch * 16)]
        for start in range(0, len(block), batch):
            yield torch.stack(block[start : start + batch])


def psnr(autoencoder: AutoencoderKLWan, clips: torch.Tensor) -> float:
    """Mean PSNR in dB over clips [N,3,F,H,W] in -1..1, after encoding and decoding."""
    values = []
    with torch.no_grad():
        for part in clips.split(8):
            decoded = autoencoder.decode(autoencoder.encode(part).latent_dist.mode()).sample
            error = ((decoded.clamp(-1, 1) - part) ** 2).flatten(1).mean(dim=1)
            values.append(10 * torch.log10(4 / error))
    return float(torch.cat(values).mean())


def train_autoencoder(size_name: str, work: Path) -> None:
    """Teach the encoder the linear code and the decoder to invert it; then let both find a better code together."""
    torch.manual_seed(0)
    autoencoder = architecture.build_autoencoder(architecture.SIZES[size_name])
    code = fixed_code()

    def loss(step: int, clips: torch.Tensor) -> torch.Tensor:
        posterior = autoencoder.encode(clips).latent_dist
        latents = posterior.mean.float()
        quiet: torch.Tensor = 1e-4 * ((posterior.logvar.float() + 8) ** 2).mean()
        if step < WARM_UP_STEPS:
            target = code.encode(clips)
            imitation: torch.Tensor = 0.3 * ((latents - target) ** 2).mean()
            return _pixel_loss(autoencoder, target, clips) + imitation + quiet
        power: torch.Tensor = 1e-3 * (latents.square().mean() - 1) ** 2
        return _pixel_loss(autoencoder, latents, clips) + power + quiet

    _fit_autoencoder(autoencoder, BUDGETS["autoencoder", size_name], work, "autoencoder", loss)


def train_decoder(size_name: str, work: Path) -> None:
    """Go on with the decoder alone; the latents stay what the denoiser learns."""
    autoencoder = AutoencoderKLWan.from_pretrained(work / "autoencoder")
    for part in (autoencoder.encoder, autoencoder.quant_conv):
        part.requires_grad_(False)

    def loss(step: int, clips: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            latents = autoencoder.encode(clips).latent_dist.mode().float()
        return _pixel_loss(autoencoder, latents, clips)

    _fit_autoencoder(autoencoder, BUDGETS["decoder", size_name], work, "decoder", loss)


def _pixel_loss(autoencoder: AutoencoderKLWan, latents: torch.Tensor, clips: torch.Tensor) -> torch.Tensor:
    """Error of decoding slightly noisy latents, as a denoiser will hand them over."""
    noise = 0.08 * torch.rand(len(latents), 1, 1, 1, 1) * torch.randn_like(latents)
    decoded = autoencoder.decode(latents + noise).sample.float()
    loss: torch.Tensor = ((decoded - clips) ** 2).mean() + 0.05 * (decoded - clips).abs().mean()
    return loss


def _fit_autoencoder(
    autoencoder: AutoencoderKLWan,
    budget: Budget,
    work: Path,
    stage: str,
    loss: Callable[[int, torch.Tensor], torch.Tensor],
) -> None:
    store_channels_last(autoencoder)
    unseen = torch.stack([to_model_range(clip) for _, clip in world.clips(77, 64, held_out=True)])
    parameters = [p for p in autoencoder.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=budget.learning_rate, betas=(0.9, 0.99), weight_decay=1e-4)
    curve: list[dict[str, float]] = []
    start = time.monotonic()
    for step, clips in enumerate(_clip_batches(1 if stage == "autoencoder" else 2, budget.batch)):
        if step % 100 == 0 or step == budget.steps:
            curve.append({"step": step, "minutes": (time.monotonic() - start) / 60, "psnr": psnr(autoencoder, unseen)})
            print(json.dumps(curve[-1]), flush=True)
            save(autoencoder, work / "autoencoder")
            save_curve(work, stage, curve)
        if step == budget.steps:
            return
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(budget, step)
        with torch.autocast("cpu", torch.bfloat16):
            value = loss(step, clips)
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        nn.utils.clip_grad_norm_(parameters, 0.5)
        optimizer.step()


def measure_latents(autoencoder: AutoencoderKLWan) -> dict[str, list[float]]:
    """Mean and standard deviation per latent channel over a fixed sample of clips."""
    clips = torch.stack([to_model_range(clip) for _, clip in world.clips(12, 512)])
    latents = encode_clips(autoencoder, clips)
    return {"mean": latents.mean(dim=(0, 2, 3, 4)).tolist(), "std": latents.std(dim=(0, 2, 3, 4)).tolist()}


@torch.no_grad()
def encode_clips(autoencoder: AutoencoderKLWan, clips: torch.Tensor) -> torch.Tensor:
    """Raw latents [N, 16, T, h, w] of clips [N, 3, F, H, W] in -1..1."""
    return torch.cat([autoencoder.encode(part).latent_dist.mode().float() for part in clips.split(16)])


def save(model: nn.Module, folder: Path) -> None:
    """Write one component."""
    model.save_pretrained(folder)  # type: ignore[operator]  # every diffusers and transformers model has it


def save_curve(work: Path, stage: str, curve: list[dict[str, float]]) -> None:
    """Write one stage's training curve."""
    write_atomic(work / f"curve_{stage}.json", json.dumps(curve))


class CaptionedLatents:
    """A pool of captions with `CLIPS_PER_CAPTION` different clips each: text features and normalised latents."""

    def __init__(self, captions: Sequence[str], latents: torch.Tensor, text_encoder: UMT5EncoderModel) -> None:
        self.latents = latents
        features: list[torch.Tensor] = []
        for start in range(0, len(captions), 64):
            features.extend(encode_captions(text_encoder, captions[start : start + 64]))
        self.features = features
        self.empty = encode_captions(text_encoder, [""])[0]

    def batch(self, captions: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Text features [n, L, D], some of the empty caption, and latents [n * CLIPS_PER_CAPTION, ...]."""
        chosen = torch.randint(len(self.features), (captions,)).tolist()
        text = torch.zeros(captions, architecture.MAX_SEQUENCE_LENGTH, self.empty.shape[-1])
        for row, index in enumerate(chosen):
            features = self.empty if float(torch.rand(())) < CAPTION_DROPOUT else self.features[index]
            text[row, : len(features)] = features
        return text, self.latents[chosen].flatten(0, 1).float()


@torch.no_grad()
def encode_captions(text_encoder: UMT5EncoderModel, captions: Sequence[str]) -> list[torch.Tensor]:
    """Features of each caption without padding, [l, D] in half precision."""
    tokens = architecture.build_tokenizer()(list(captions), padding=True, truncation=True, return_tensors="pt")
    hidden = text_encoder(input_ids=tokens.input_ids, attention_mask=tokens.attention_mask).last_hidden_state
    lengths = tokens.attention_mask.sum(dim=1)
    return [row[:length].half() for row, length in zip(hidden, lengths.tolist(), strict=True)]


def caption_clips(
    autoencoder: AutoencoderKLWan, statistics: dict[str, list[float]], count: int, seed: int
) -> tuple[list[str], torch.Tensor]:
    """Random captions and normalised latents [count, CLIPS_PER_CAPTION, 16, T, h, w] of clips that fit them."""
    mean, std = (torch.tensor(statistics[key]).view(1, -1, 1, 1, 1) for key in ("mean", "std"))
    rng = np.random.default_rng((seed, 2))
    captions: list[str] = []
    latents: list[torch.Tensor] = []
    scenes = world.sample_scenes(seed, count, held_out=False)
    for start in range(0, count, 8):
        part = scenes[start : start + 8]
        clips = [to_model_range(world.render_scene(rng, s)) for s in part for _ in range(CLIPS_PER_CAPTION)]
        captions.extend(scene.caption() for scene in part)
        latents.append((encode_clips(autoencoder, torch.stack(clips)) - mean) / std)
    return captions, torch.cat(latents).unflatten(0, (count, CLIPS_PER_CAPTION)).half()


def _sample_sigma(count: int) -> torch.Tensor:
    uniform = torch.rand(count)
    return architecture.FLOW_SHIFT * uniform / (1 + (architecture.FLOW_SHIFT - 1) * uniform)


def flow_matching_loss(denoiser: WanTransformer3DModel, text: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Mean squared error of the velocity (noise - data) at a random sigma; `text` has one row per caption.

    A caption's text is embedded once for all its clips, which is why the embedder is called here.
    """
    sigma = _sample_sigma(len(data))
    noise = torch.randn_like(data)
    level = sigma[:, None, None, None, None]
    noised = (1 - level) * data + level * noise
    embedder = denoiser.condition_embedder.text_embedder
    embedded = embedder(text).repeat_interleave(CLIPS_PER_CAPTION, dim=0)
    denoiser.condition_embedder.text_embedder = nn.Identity()
    try:
        velocity = denoiser(noised, sigma * 1000, embedded, return_dict=False)[0]
    finally:
        denoiser.condition_embedder.text_embedder = embedder
    loss: torch.Tensor = ((velocity - (noise - data)) ** 2).mean()
    return loss


def train_denoiser(size_name: str, work: Path) -> None:
    """Train the denoiser by flow matching on the frozen encoder's latents and the text encoder's features."""
    torch.manual_seed(0)
    size = architecture.SIZES[size_name]
    autoencoder = AutoencoderKLWan.from_pretrained(work / "autoencoder").eval()
    store_channels_last(autoencoder)
    statistics = measure_latents(autoencoder)
    write_atomic(work / "latents.json", json.dumps(statistics))
    text_encoder = architecture.build_text_encoder(size)
    save(text_encoder, work / "text_encoder")
    pool = CaptionedLatents(*caption_clips(autoencoder, statistics, POOL_CAPTIONS[size_name], 3), text_encoder)
    unseen = CaptionedLatents(*caption_clips(autoencoder, statistics, 256, 4), text_encoder)
    fit_denoiser(architecture.build_denoiser(size), pool, unseen, BUDGETS["denoiser", size_name], work)


def fit_denoiser(
    denoiser: WanTransformer3DModel, pool: CaptionedLatents, unseen: CaptionedLatents, budget: Budget, work: Path
) -> None:
    """AdamW with averaged weights; the averages are what is saved. Float32: on CPUs its backward beats bfloat16's."""
    parameters = list(denoiser.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=budget.learning_rate, betas=(0.9, 0.99), weight_decay=1e-2)
    average = copy.deepcopy(denoiser)
    average_parameters = list(average.parameters())
    curve: list[dict[str, float]] = []
    start, running = time.monotonic(), math.nan
    for step in range(budget.steps + 1):
        if step % 250 == 0 or step == budget.steps:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(5)
                loss = float(np.mean([float(flow_matching_loss(average, *unseen.batch(16))) for _ in range(8)]))
            entry = {"step": step, "minutes": (time.monotonic() - start) / 60, "unseen": loss}
            curve.append(entry if math.isnan(running) else {**entry, "train": running})
            print(json.dumps(curve[-1]), flush=True)
            save(average, work / "denoiser")
            save_curve(work, "denoiser", curve)
        if step == budget.steps:
            return
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(budget, step)
        value = flow_matching_loss(denoiser, *pool.batch(budget.batch // CLIPS_PER_CAPTION))
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        running = float(value.detach()) if math.isnan(running) else 0.99 * running + 0.01 * float(value.detach())
        decay = min(0.999, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_(average_parameters, parameters, 1 - decay)


def assemble(work: Path, folder: Path) -> None:
    """Join the trained parts into one diffusers folder, weights in half precision."""
    autoencoder = AutoencoderKLWan.from_pretrained(work / "autoencoder")
    statistics = json.loads((work / "latents.json").read_text())
    autoencoder.register_to_config(latents_mean=statistics["mean"], latents_std=statistics["std"])
    pipeline = WanPipeline(
        tokenizer=architecture.build_tokenizer(),
        text_encoder=UMT5EncoderModel.from_pretrained(work / "text_encoder"),
        vae=autoencoder,
        transformer=WanTransformer3DModel.from_pretrained(work / "denoiser"),
        scheduler=architecture.build_scheduler(),
    )
    pipeline.to(torch.float16).save_pretrained(folder)
    for file in folder.glob("*/config.json"):
        config = json.loads(file.read_text())
        config.pop("_name_or_path", None)  # a path of the machine that trained it
        write_atomic(file, json.dumps(config, indent=2) + "\n")
    curves = {
        file.stem.removeprefix("curve_"): json.loads(file.read_text()) for file in sorted(work.glob("curve_*.json"))
    }
    write_atomic(folder / "training_curves.json", json.dumps(curves))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["autoencoder", "decoder", "denoiser", "assemble", "all"])
    parser.add_argument("--size", choices=sorted(architecture.SIZES), default="full")
    parser.add_argument("--work", type=Path, required=True, help="folder for the parts while they train")
    parser.add_argument("--output", type=Path, help="folder of the finished pipeline")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.stage in ("autoencoder", "all"):
        train_autoencoder(arguments.size, arguments.work)
    if arguments.stage in ("decoder", "all"):
        train_decoder(arguments.size, arguments.work)
    if arguments.stage in ("denoiser", "all"):
        train_denoiser(arguments.size, arguments.work)
    if arguments.stage in ("assemble", "all"):
        if arguments.output is None:
            parser.error("--output is needed to assemble")
        assemble(arguments.work, arguments.output)


if __name__ == "__main__":
    main()
