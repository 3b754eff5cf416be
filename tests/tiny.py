"""A randomly initialised Wan pipeline, tiny but of the real classes, and the small things tests do with it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from diffusers import WanPipeline

from flash_grpo.config import RunConfig, build_config
from flash_grpo.models.base import TextEmbeddings
from flash_grpo.models.pocket import architecture
from flash_grpo.models.registry import load_model
from flash_grpo.models.wan import WanModel
from flash_grpo.rewards.base import VideoBatch

SIZE = architecture.Size(
    heads=2, head_dim=12, layers=2, ffn_dim=32, text_dim=32, text_heads=2, autoencoder_width=4, residual_blocks=1
)
CAPTIONS = (
    "a small red circle moving slowly left on a black background",
    "a large blue square standing still on a white background",
    "a green cross moving quickly up on a gray background",
    "a purple triangle moving right and a cyan circle standing still on a navy background",
)
NEGATIVE = "a yellow cross standing still on a beige background"
SMALL: dict[str, Any] = {
    "height": 32,
    "width": 32,
    "frames": 5,
    "max_sequence_length": 24,
    "dtype": "float32",
    "device": "cpu",
    "threads": 1,
}


def save_pipeline(folder: Path) -> None:
    """Save the pipeline; its captions and noise matter, as the random text branch is turned up."""
    torch.manual_seed(7)
    denoiser = architecture.build_denoiser(SIZE)
    with torch.no_grad():
        for block in denoiser.blocks:
            block.attn2.to_out[0].weight.mul_(8)
        denoiser.proj_out.weight.mul_(2)
    autoencoder = architecture.build_autoencoder(SIZE)
    channels = range(architecture.LATENT_CHANNELS)
    autoencoder.register_to_config(
        latents_mean=[0.05 * (channel - 8) for channel in channels],
        latents_std=[0.6 + 0.05 * channel for channel in channels],
    )
    WanPipeline(
        tokenizer=architecture.build_tokenizer(),
        text_encoder=architecture.build_text_encoder(SIZE),
        transformer=denoiser,
        vae=autoencoder,
        scheduler=architecture.build_scheduler(),
    ).save_pretrained(folder)


def config_for(folder: Path, **overrides: Any) -> RunConfig:
    """The micro preset on the tiny pipeline, smaller still."""
    values = {"model": str(folder), "negative_prompt": NEGATIVE, "sampling_steps": 6, **SMALL}
    if "candidate_steps" not in overrides:
        values["candidate_steps"] = [0, 1, 2]
    return build_config("micro", {**values, **overrides})


def open_model(folder: Path, adapter: float | None = None, rank: int = 4, alpha: float = 8.0) -> WanModel:
    """Load the pipeline; `adapter` adds a LoRA adapter whose B matrices are random with this spread (0: zero)."""
    model = load_model(config_for(folder))
    assert isinstance(model, WanModel)
    if adapter is not None:
        torch.manual_seed(3)
        model.add_adapter(rank, alpha, ["to_q", "to_k", "to_v", "to_out.0"], "gaussian")
        perturb(model, adapter, only="lora_B")
    return model


@torch.no_grad()
def perturb(model: WanModel, spread: float, only: str = "", seed: int = 11) -> None:
    """Add seeded noise to the trained weights whose name holds `only`."""
    generator = torch.Generator().manual_seed(seed)
    for name, weight in model.trainable():
        if only in name:
            weight.add_(spread * torch.randn(weight.shape, generator=generator))


def embed(model: WanModel) -> TextEmbeddings:
    """Embeddings of the four captions and the negative prompt."""
    return model.encode_prompts(CAPTIONS, NEGATIVE)


def gradient(model: WanModel) -> torch.Tensor:
    """The trained weights' gradients as one vector, and none left behind."""
    parts = []
    for _, weight in model.trainable():
        assert weight.grad is not None
        parts.append(weight.grad.flatten().clone())
        weight.grad = None
    return torch.cat(parts)


def relative_gap(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest difference relative to the largest value."""
    return float(((one - other).abs().max() / other.abs().max()).detach())


def brightness(videos: VideoBatch) -> torch.Tensor:
    """A reward by import path: the mean of all pixels."""
    return videos.frames.mean(dim=(1, 2, 3, 4))


def broken(videos: VideoBatch) -> torch.Tensor:
    """A reward whose answers are no numbers."""
    return torch.full((len(videos),), float("nan"))


class Waning:
    """Brightness, except for three videos: those are the best at the second call and worse ever after."""

    groupwise = False

    def __init__(self) -> None:
        self.calls = 0

    def score(self, videos: VideoBatch) -> torch.Tensor:
        if len(videos) != 3:
            return brightness(videos)
        self.calls += 1
        return torch.linspace(0, 1, 3) + (10 - self.calls if self.calls > 1 else 0)


def constant(videos: VideoBatch) -> torch.Tensor:
    """A reward that tells no video from another."""
    return torch.full((len(videos),), 0.5)


def crash(videos: VideoBatch) -> torch.Tensor:
    """A reward with a mistake in it."""
    raise RuntimeError(f"the judge of {len(videos)} videos has left")


class Slow:
    """Quick for single videos as in evaluations, a minute for groups."""

    groupwise = False

    def score(self, videos: VideoBatch) -> torch.Tensor:
        if len(set(videos.prompts)) < len(videos):
            time.sleep(60)
        return brightness(videos)
