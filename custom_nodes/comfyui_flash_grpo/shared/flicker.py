# A copy of flash_grpo/rewards/flicker.py, made by `make comfyui-pack`; edit that file instead.
"""Flicker: brightness and colour that jump back and forth."""

from __future__ import annotations

import torch

from .errors import InputError
from .base import VideoBatch

SCALE = 0.02  # mean jump, in 0..1, that brings the score down to 1/e


class Flicker:
    """1 without flicker, falling exponentially with the mean jump of a frame away from the mean of its neighbours.

    Colours are averaged over wide, soft cells first, which see steady movement as slow change. Raises InputError for
    fewer than 3 frames.
    """

    groupwise = False

    def score(self, videos: VideoBatch) -> torch.Tensor:
        if videos.frames.shape[1] < 3:
            raise InputError(
                f"reward 'flicker' needs at least 3 frames, got {videos.frames.shape[1]}; use longer videos"
            )
        return torch.stack([torch.exp(-_jump(clip) / SCALE) for clip in videos.frames])


def _jump(clip: torch.Tensor) -> torch.Tensor:
    cells = torch.nn.functional.adaptive_avg_pool2d(clip, 16)
    for _ in range(2):  # twice a box makes cells that fade towards their edges
        cells = torch.nn.functional.avg_pool2d(cells, 6, stride=1)
    return (cells[1:-1] - (cells[:-2] + cells[2:]) / 2).abs().mean()
