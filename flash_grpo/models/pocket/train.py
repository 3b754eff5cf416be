"""Train the pocket model from scratch and write it as a diffusers folder.

    python -m flash_grpo.models.pocket.train all --size full --work WORK --output FOLDER

Stages: `autoencoder` (first imitates the linear code of `code.py`, then learns its own), `decoder` (the encoder frozen;
may run beside the next stage), `denoiser` (denoiser and text encoder on the frozen encoder's latents), `assemble`.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKLWan, WanPipeline, WanTransformer3DModel
from torch import nn
from transformers import UMT5EncoderModel

from flash_grpo.models.pocket import architecture, world
from flash_grpo.models.pocket.code import LinearCode, fit_linear_code
from flash_grpo.models.wan import store_channels_last

CLIPS_PER_CAPTION = 4
CAPTION_DROPOUT = 0.1
CODE_CLIPS = 3000
POOL_CAPTIONS = {"full": 10_000, "micro": 2_500}


@dataclass(frozen=True)
class Budget:
    """Steps, batch and learning rate of one stage."""

    steps: int
    batch: int
    learning_rate: float


BUDGETS = {
    ("autoencoder", "full"): Budget(2500, 8, 6e-4),
    ("decoder", "full"): Budget(2500, 8, 5e-4),
    ("denoiser", "full"): Budget(5000, 64, 1e-3),
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
        quiet = 1e-4 * ((posterior.logvar.float() + 8) ** 2).mean()
        if step < WARM_UP_STEPS:
            target = code.encode(clips)
            return _pixel_loss(autoencoder, target, clips) + 0.3 * ((latents - target) ** 2).mean() + quiet
        power = 1e-3 * (latents.square().mean() - 1) ** 2
        return _pixel_loss(autoencoder, latents, clips) + power + quiet

    _fit_autoencoder(autoencoder, BUDGETS["autoencoder", size_name], work / "autoencoder", loss)


def train_decoder(size_name: str, work: Path) -> None:
    """Go on with the decoder alone; the latents stay what the denoiser learns."""
    autoencoder = AutoencoderKLWan.from_pretrained(work / "autoencoder")
    for part in (autoencoder.encoder, autoencoder.quant_conv):
        part.requires_grad_(False)

    def loss(step: int, clips: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            latents = autoencoder.encode(clips).latent_dist.mode().float()
        return _pixel_loss(autoencoder, latents, clips)

    _fit_autoencoder(autoencoder, BUDGETS["decoder", size_name], work / "autoencoder", loss)


def _pixel_loss(autoencoder: AutoencoderKLWan, latents: torch.Tensor, clips: torch.Tensor) -> torch.Tensor:
    """Error of decoding slightly noisy latents, as a denoiser will hand them over."""
    noise = 0.08 * torch.rand(len(latents), 1, 1, 1, 1) * torch.randn_like(latents)
    decoded = autoencoder.decode(latents + noise).sample.float()
    loss: torch.Tensor = ((decoded - clips) ** 2).mean() + 0.05 * (decoded - clips).abs().mean()
    return loss


def _fit_autoencoder(
    autoencoder: AutoencoderKLWan, budget: Budget, folder: Path, loss: Callable[[int, torch.Tensor], torch.Tensor]
) -> None:
    store_channels_last(autoencoder)
    unseen = torch.stack([to_model_range(clip) for _, clip in world.clips(77, 64, held_out=True)])
    parameters = [p for p in autoencoder.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=budget.learning_rate, betas=(0.9, 0.99), weight_decay=1e-4)
    curve: list[dict[str, float]] = []
    start = time.monotonic()
    for step, clips in enumerate(_clip_batches(1, budget.batch)):
        if step % 100 == 0 or step == budget.steps:
            curve.append({"step": step, "minutes": (time.monotonic() - start) / 60, "psnr": psnr(autoencoder, unseen)})
            print(json.dumps(curve[-1]), flush=True)
            save(autoencoder, folder, curve)
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


def save(model: nn.Module, folder: Path, curve: list[dict[str, float]]) -> None:
    """Write one component and its training curve."""
    model.save_pretrained(folder)
    (folder / "training_curve.json").write_text(json.dumps(curve))


class CaptionedLatents:
    """A pool of captions with `CLIPS_PER_CAPTION` different clips each, as normalised latents."""

    def __init__(
        self, autoencoder: AutoencoderKLWan, statistics: dict[str, list[float]], count: int, seed: int
    ) -> None:
        mean, std = (torch.tensor(statistics[key]).view(1, -1, 1, 1, 1) for key in ("mean", "std"))
        rng = np.random.default_rng((seed, 2))
        tokenizer = architecture.build_tokenizer()
        captions, latents = [], []
        for scene in world.sample_scenes(seed, count, held_out=False):
            clips = torch.stack([to_model_range(world.render_scene(rng, scene)) for _ in range(CLIPS_PER_CAPTION)])
            captions.append(scene.caption())
            latents.append((encode_clips(autoencoder, clips) - mean) / std)
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
    autoencoder = AutoencoderKLWan.from_pretrained(out / "autoencoder").eval()
    store_channels_last(autoencoder)
    statistics = measure_latents(autoencoder)
    (out / "latents.json").write_text(json.dumps(statistics))
    pool = CaptionedLatents(autoencoder, statistics, POOL_CAPTIONS[size_name], seed=3)
    unseen = CaptionedLatents(autoencoder, statistics, 256, seed=4)
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
    for part in ("autoencoder", "denoiser"):
        curve = (work / part / "training_curve.json").read_text()
        (folder / f"training_curve_{part}.json").write_text(curve)


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
