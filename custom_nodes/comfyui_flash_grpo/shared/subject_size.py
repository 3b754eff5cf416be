# A copy of flash_grpo/rewards/subject_size.py, made by `make comfyui-pack`; edit that file instead.
"""Subject size: how much of the frame the subject covers, best inside a range."""

from __future__ import annotations

import torch

from .errors import InputError
from .base import VideoBatch


class SubjectSize:
    """1 where the subject covers between `low` and `high` of the frame, falling linearly to 0 at nothing and all.

    The subject is what differs in colour from the frame's border: each pixel counts from 0 to 1 as its RGB distance
    from the border's median colour goes from half of `tolerance` to one and a half.
    """

    groupwise = False

    def __init__(self, low: float = 0.12, high: float = 0.2, tolerance: float = 0.2) -> None:
        if not 0 < low <= high < 1:
            raise InputError(
                f"subject_size expects 0 < low <= high < 1, got low={low} and high={high}; change the range"
            )
        if tolerance <= 0:
            raise InputError(f"subject_size expects a tolerance above 0, got {tolerance}; 0.2 suits plain backgrounds")
        self.low, self.high, self.tolerance = low, high, tolerance

    def score(self, videos: VideoBatch) -> torch.Tensor:
        size = torch.stack([covered(clip, self.tolerance).mean() for clip in videos.frames])
        return torch.minimum(size / self.low, (1 - size) / (1 - self.high)).clamp(0, 1)


def covered(clip: torch.Tensor, tolerance: float = 0.2) -> torch.Tensor:
    """Share of each frame that the subject covers, [F] in 0..1, for a clip [F, 3, H, W]."""
    edges = [clip[..., 0, :], clip[..., -1, :], clip[..., 1:-1, 0], clip[..., 1:-1, -1]]
    border = torch.cat(edges, dim=-1).median(dim=-1).values
    distance = (clip - border[..., None, None]).square().sum(1).sqrt()
    return ((distance - tolerance / 2) / tolerance).clamp(0, 1).mean((1, 2))
