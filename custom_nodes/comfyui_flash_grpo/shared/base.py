# A copy of flash_grpo/rewards/base.py, made by `make comfyui-pack`; edit that file instead.
"""What a reward sees and what it must answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from .errors import InputError


@dataclass(frozen=True)
class VideoBatch:
    """Videos to be judged, with what they were made from.

    `frames` is [B, F, 3, H, W], float32 in 0..1 on the CPU; `prompts` and `metadata` have B entries; `fps` is frames
    per second. Raises InputError when the counts or shapes do not fit together.
    """

    frames: torch.Tensor
    prompts: Sequence[str]
    metadata: Sequence[Mapping[str, object]]
    fps: float

    def __post_init__(self) -> None:
        shape = tuple(self.frames.shape)
        if len(shape) != 5 or shape[2] != 3:
            raise InputError(f"expected frames [B, F, 3, H, W], got {list(shape)}; stack RGB videos of one size")
        if not len(self.prompts) == len(self.metadata) == shape[0]:
            raise InputError(
                f"expected one prompt and one metadata entry for each of {shape[0]} videos, got {len(self.prompts)} "
                f"and {len(self.metadata)}; pass lists of equal length"
            )

    def __len__(self) -> int:
        return int(self.frames.shape[0])

    def part(self, start: int, stop: int) -> VideoBatch:
        """The videos from `start` up to `stop`, as a batch of their own."""
        span = slice(start, stop)
        return VideoBatch(self.frames[span], self.prompts[span], self.metadata[span], self.fps)


@runtime_checkable
class Reward(Protocol):
    """One judgement of videos.

    `groupwise` True: called once per group, with all videos of one prompt; False: videos are independent.
    """

    groupwise: bool

    def score(self, videos: VideoBatch) -> torch.Tensor:
        """One finite float per video, [B] float32."""
        ...
