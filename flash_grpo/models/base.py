"""What the method needs of a video model: one small protocol, whatever the family."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn


@dataclass(frozen=True)
class TextEmbeddings:
    """Embeddings of prompts, each [l, D] without its zero padding, and of the negative prompt [1, L, D]."""

    prompts: Sequence[torch.Tensor]
    negative: torch.Tensor

    def pick(self, indices: Sequence[int]) -> torch.Tensor:
        """Embeddings of the chosen prompts, padded with zeros to [len(indices), L, D]."""
        picked = self.negative.new_zeros((len(indices), *self.negative.shape[1:]))
        for row, index in enumerate(indices):
            tokens = self.prompts[index]
            picked[row, : len(tokens)] = tokens
        return picked


def without_padding(embeddings: torch.Tensor) -> list[torch.Tensor]:
    """Split [P, L, D] into rows cut after their last token that is not all zero."""
    used = embeddings.abs().amax(dim=2) > 0
    positions = torch.arange(1, embeddings.shape[1] + 1)
    lengths = (used * positions).amax(dim=1)
    return [row[: int(length)].clone() for row, length in zip(embeddings, lengths, strict=True)]


class VideoModel(Protocol):
    """A text-to-video flow model: velocities of latents, and pixels from latents.

    `network` is what `velocity` calls: the denoiser, or its wrapper when several processes train. `backward_cost` is
    the measured time of a backward in forwards.
    """

    denoiser: nn.Module
    network: Any
    scheduler: Any
    device: torch.device

    @property
    def backward_cost(self) -> float:
        """Time of a backward in forwards."""

    def encode_prompts(self, texts: Sequence[str], negative: str) -> TextEmbeddings:
        """Encode prompts once; may be called until `free_text_encoder`."""

    def token_counts(self, texts: Sequence[str]) -> list[int]:
        """Text tokens of each prompt before it is cut to the longest length the run allows."""

    def free_text_encoder(self) -> None:
        """Give the text encoder's memory back."""

    def latent_shape(self, frames: int, height: int, width: int) -> tuple[int, int, int, int]:
        """Channels, latent frames, latent height and width of a video."""

    def velocity(
        self,
        latents: torch.Tensor,
        timesteps: torch.Tensor,
        text: torch.Tensor,
        negative: torch.Tensor,
        guidance: float,
    ) -> torch.Tensor:
        """Guided velocity, float32 [B, C, T, h, w], for latents [B, ...], timesteps [B], text [B, L, D]."""

    def decode(self, latents: torch.Tensor) -> torch.Tensor:
        """Latents [B, C, T, h, w] to frames [B, F, 3, H, W] in 0..1, float32 on the CPU."""

    def add_adapter(self, rank: int, alpha: float, targets: Sequence[str], init: str) -> None:
        """Freeze the denoiser and add a trainable LoRA adapter."""

    def train_all(self, keep_base: bool) -> None:
        """Make all weights trainable; `keep_base` keeps a frozen copy for the KL term."""

    def enable_gradient_checkpointing(self) -> None:
        """Trade a second forward for activation memory."""

    def trainable(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Named parameters that train."""

    def base_weights(self) -> AbstractContextManager[None]:
        """Within this context the denoiser is the base model: the adapter is off."""


def network_cost(videos: int, guidance: float) -> int:
    """Network evaluations of one forward over `videos` latents; a guidance pair counts two."""
    return videos * (2 if guidance > 1 else 1)
