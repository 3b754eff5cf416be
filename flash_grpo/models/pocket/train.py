"""Train the pocket model from scratch and write it as a diffusers folder.

    python -m flash_grpo.models.pocket.train all --size full --output FOLDER

The stages `autoencoder` and `denoiser` are independent (both aim at the linear code of `code.py`) and may run side by
side; `assemble` joins them into one folder in half precision.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKLWan, WanPipeline, WanTransformer3DModel
from torch import nn
from transformers import UMT5EncoderModel

from flash_grpo.models.pocket import architecture, world
from flash_grpo.models.pocket.code import LinearCode, fit_linear_code

CLIPS_PER_CAPTION = 4
CAPTION_DROPOUT = 0.1
CODE_CLIPS = 3000


@dataclass(frozen=True)
class Budget:
    """Steps, batch and learning rate of one stage."""

    steps: int
    batch: int
    learning_rate: float


BUDGETS = {
    ("autoencoder", "full"): Budget(6000, 8, 1e-3),
    ("denoiser", "full"): Budget(7000, 64, 1e-3),
    ("autoencoder", "micro"): Budget(1500, 8, 2e-3),
    ("denoiser", "micro"): Budget(3000, 64, 2e-3),
}


def to_model_range(clip: world.Array) -> torch.Tensor:
    """[F,3,H,W] in 0..1 -> [3,F,H,W] in -1..1."""
    return torch.from_numpy(clip).permute(1, 0, 2, 3) * 2 - 1


def fixed_code() -> LinearCode:
    """The linear code both stages share, fitted to a fixed sample of clips."""
    return fit_linear_code(torch.stack([to_model_range(clip) for _, clip in world.clips(11, CODE_CLIPS)]))


def channels_last(module: nn.Module) -> None:
    """Store every 3D and 2D convolution's weight channels-last: about four times faster on CPUs."""
    for part in module.modules():
        if isinstance(part, nn.Conv3d):
            part.weight.data = part.weight.data.contiguous(memory_format=torch.channels_last_3d)
        elif isinstance(part, nn.Conv2d):
            part.weight.data = part.weight.data.contiguous(memory_format=torch.channels_last)


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


def train_autoencoder(size_name: str, out: Path) -> None:
    """Teach the encoder the linear code and the decoder to invert it, from clean, noisy and self-made codes."""
    budget = BUDGETS["autoencoder", size_name]
    torch.manual_seed(0)
    autoencoder = architecture.build_autoencoder(architecture.SIZES[size_name])
    channels_last(autoencoder)
    code = fixed_code()
    unseen = torch.stack([to_model_range(clip) for _, clip in world.clips(77, 64, held_out=True)])
    optimizer = torch.optim.AdamW(
        autoencoder.parameters(), lr=budget.learning_rate, betas=(0.9, 0.99), weight_decay=1e-4
    )
    curve: list[dict[str, float]] = []
    start = time.monotonic()
    for step, clips in enumerate(_clip_batches(1, budget.batch)):
        if step % 250 == 0 or step == budget.steps:
            curve.append({"step": step, "minutes": (time.monotonic() - start) / 60, "psnr": psnr(autoencoder, unseen)})
            print(json.dumps(curve[-1]), flush=True)
            save(autoencoder, out / "autoencoder", curve)
        if step == budget.steps:
            return
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(budget, step)
        target = code.encode(clips)
        with torch.autocast("cpu", torch.bfloat16):
            posterior = autoencoder.encode(clips).latent_dist
            mean = posterior.mean.float()
            noisy = target + 0.1 * torch.rand(len(clips), 1, 1, 1, 1) * torch.randn_like(target)
            own = (torch.rand(len(clips), 1, 1, 1, 1) < min(0.5, step / 2000)).float()
            decoded = autoencoder.decode(own * mean + (1 - own) * noisy).sample.float()
        code_loss = ((mean - target) ** 2).mean() + 1e-3 * ((posterior.logvar.float() + 8) ** 2).mean()
        pixel_loss = ((decoded - clips) ** 2).mean() + 0.05 * (decoded - clips).abs().mean()
        optimizer.zero_grad(set_to_none=True)
        (pixel_loss + 0.3 * code_loss).backward()
        nn.utils.clip_grad_norm_(autoencoder.parameters(), 0.5)
        optimizer.step()


def save(model: nn.Module, folder: Path, curve: list[dict[str, float]]) -> None:
    """Write one component and its training curve."""
    model.save_pretrained(folder)
    (folder / "training_curve.json").write_text(json.dumps(curve))


class CaptionedLatents:
    """A pool of captions with `CLIPS_PER_CAPTION` different clips each, as latents of the linear code."""

    def __init__(self, count: int, seed: int) -> None:
        code = fixed_code()
        rng = np.random.default_rng((seed, 2))
        tokenizer = architecture.build_tokenizer()
        captions, latents = [], []
        for scene in world.sample_scenes(seed, count, held_out=False):
            clips = torch.stack([to_model_range(world.render_scene(rng, scene)) for _ in range(CLIPS_PER_CAPTION)])
            captions.append(scene.caption())
            latents.append(code.encode(clips))
        self.latents = torch.stack(latents)
        tokens = tokenizer(
            captions,
            padding="max_length",
            max_length=architecture.MAX_SEQUENCE_LENGTH,
            truncation=True,
            return_tensors="pt",
        )
        self.ids, self.mask = tokens.input_ids, tokens.attention_mask
        empty = tokenizer([""], padding="max_length", max_length=architecture.MAX_SEQUENCE_LENGTH, return_tensors="pt")
        self.empty_ids, self.empty_mask = empty.input_ids, empty.attention_mask

    def batch(self, captions: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Token ids, mask [captions, L] and latents [captions * CLIPS_PER_CAPTION, 16, T, h, w]."""
        chosen = torch.randint(len(self.ids), (captions,))
        drop = (torch.rand(captions, 1) < CAPTION_DROPOUT).long()
        ids = self.ids[chosen] * (1 - drop) + self.empty_ids * drop
        mask = self.mask[chosen] * (1 - drop) + self.empty_mask * drop
        return ids, mask, self.latents[chosen].flatten(0, 1)


def _sample_sigma(count: int) -> torch.Tensor:
    uniform = torch.rand(count)
    return architecture.FLOW_SHIFT * uniform / (1 + (architecture.FLOW_SHIFT - 1) * uniform)


def flow_matching_loss(
    denoiser: WanTransformer3DModel,
    text_encoder: UMT5EncoderModel,
    batch: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    """Mean squared error of the velocity (noise - data) at a random sigma."""
    ids, mask, data = batch
    text = text_encoder(input_ids=ids, attention_mask=mask).last_hidden_state * mask[..., None]
    sigma = _sample_sigma(len(data))
    noise = torch.randn_like(data)
    level = sigma[:, None, None, None, None]
    noised = (1 - level) * data + level * noise
    text = text.repeat_interleave(CLIPS_PER_CAPTION, dim=0)
    velocity = denoiser(noised, sigma * 1000, text, return_dict=False)[0]
    loss: torch.Tensor = ((velocity.float() - (noise - data)) ** 2).mean()
    return loss


def train_denoiser(size_name: str, out: Path) -> None:
    """Train denoiser and text encoder together by flow matching on the linear code's latents."""
    budget = BUDGETS["denoiser", size_name]
    torch.manual_seed(0)
    size = architecture.SIZES[size_name]
    denoiser, text_encoder = architecture.build_denoiser(size), architecture.build_text_encoder(size)
    pool, unseen = CaptionedLatents(20_000, seed=3), CaptionedLatents(256, seed=4)
    parameters = [*denoiser.parameters(), *text_encoder.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=budget.learning_rate, betas=(0.9, 0.99), weight_decay=1e-2)
    averages = (copy.deepcopy(denoiser), copy.deepcopy(text_encoder))
    average_parameters = [*averages[0].parameters(), *averages[1].parameters()]
    curve: list[dict[str, float]] = []
    start, running = time.monotonic(), math.nan
    for step in range(budget.steps + 1):
        if step % 250 == 0 or step == budget.steps:
            with torch.no_grad(), torch.random.fork_rng():
                torch.manual_seed(5)
                loss = float(np.mean([float(flow_matching_loss(*averages, unseen.batch(16))) for _ in range(8)]))
            curve.append({"step": step, "minutes": (time.monotonic() - start) / 60, "train": running, "unseen": loss})
            print(json.dumps(curve[-1]), flush=True)
            save(averages[0], out / "denoiser", curve)
            save(averages[1], out / "text_encoder", [])
        if step == budget.steps:
            return
        for group in optimizer.param_groups:
            group["lr"] = _learning_rate(budget, step)
        with torch.autocast("cpu", torch.bfloat16):
            value = flow_matching_loss(denoiser, text_encoder, pool.batch(budget.batch // CLIPS_PER_CAPTION))
        optimizer.zero_grad(set_to_none=True)
        value.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        running = float(value) if math.isnan(running) else 0.99 * running + 0.01 * float(value)
        decay = min(0.999, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_(average_parameters, parameters, 1 - decay)


def assemble(work: Path, folder: Path) -> None:
    """Join the trained parts into one diffusers folder, weights in half precision."""
    pipeline = WanPipeline(
        tokenizer=architecture.build_tokenizer(),
        text_encoder=UMT5EncoderModel.from_pretrained(work / "text_encoder"),
        vae=AutoencoderKLWan.from_pretrained(work / "autoencoder"),
        transformer=WanTransformer3DModel.from_pretrained(work / "denoiser"),
        scheduler=architecture.build_scheduler(),
    )
    pipeline.to(torch.float16).save_pretrained(folder)
    for part in ("autoencoder", "denoiser"):
        curve = (work / part / "training_curve.json").read_text()
        (folder / f"training_curve_{part}.json").write_text(curve)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["autoencoder", "denoiser", "assemble", "all"])
    parser.add_argument("--size", choices=sorted(architecture.SIZES), default="full")
    parser.add_argument("--work", type=Path, required=True, help="folder for the parts while they train")
    parser.add_argument("--output", type=Path, help="folder of the finished pipeline")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.stage in ("autoencoder", "all"):
        train_autoencoder(arguments.size, arguments.work)
    if arguments.stage in ("denoiser", "all"):
        train_denoiser(arguments.size, arguments.work)
    if arguments.stage in ("assemble", "all"):
        if arguments.output is None:
            parser.error("--output is needed to assemble")
        assemble(arguments.work, arguments.output)


if __name__ == "__main__":
    main()
