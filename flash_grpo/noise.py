"""Seeded noise, and the space the branch noise is drawn in.

Every tensor is seeded by what it is for (seed, update, group, member, purpose), never by a rank or a call order, so a
run does not depend on how many devices share the work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F

from flash_grpo.errors import InputError

Purpose = Literal["initial", "branch", "shuffle", "evaluation"]


def noise_seed(seed: int, update: int, group: int, member: int, purpose: Purpose) -> int:
    """A 63-bit seed from what the noise is for."""
    text = f"{purpose}:{seed}:{update}:{group}:{member}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def gaussian(shape: Sequence[int], seed: int) -> torch.Tensor:
    """Standard normal float32 on the CPU, the same on every machine of one torch version."""
    return torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


@dataclass(frozen=True)
class NoiseSpace:
    """Where branch noise lives: `white` has every element on its own; `lowpass` is constant over blocks.

    A block spans `block` x `block` latent pixels and all latent frames of one channel. Elements keep unit variance; the
    policy is then a Gaussian over block averages, and log-densities are taken there.
    """

    kind: Literal["white", "lowpass"]
    block: int = 1

    def check(self, latent_shape: Sequence[int]) -> None:
        """Raise InputError unless blocks tile the latents [C, T, H, W]."""
        height, width = latent_shape[-2:]
        if self.kind == "lowpass" and (height % self.block or width % self.block):
            raise InputError(
                f"lowpass_block {self.block} does not divide the latent size {height}x{width}; choose a common divisor"
            )

    def sample(self, latent_shape: Sequence[int], seed: int) -> torch.Tensor:
        """Noise of shape [C, T, H, W] with unit variance per element."""
        if self.kind == "white":
            return gaussian(latent_shape, seed)
        channels, frames, height, width = latent_shape
        coarse = gaussian((channels, 1, height // self.block, width // self.block), seed)
        fine = coarse.repeat_interleave(self.block, dim=2).repeat_interleave(self.block, dim=3)
        return fine.expand(channels, frames, height, width).contiguous()

    def reduce(self, latents: torch.Tensor) -> torch.Tensor:
        """Coordinates in the noise space: [B, C, T, H, W] -> the same, or block averages [B, C, H/b, W/b]."""
        if self.kind == "white":
            return latents
        return F.avg_pool2d(latents.mean(dim=2), self.block)
