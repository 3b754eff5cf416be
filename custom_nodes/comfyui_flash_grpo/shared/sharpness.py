# A copy of flash_grpo/rewards/sharpness.py, made by `make comfyui-pack`; edit that file instead.
"""Sharpness: variance of the Laplacian."""

from __future__ import annotations

import torch

from .base import VideoBatch


class Sharpness:
    """log(1 + variance of the Laplacian of the luma in 0..255), mean over frames; 0 for a flat frame."""

    groupwise = False

    def score(self, videos: VideoBatch) -> torch.Tensor:
        return torch.stack([_sharpness(clip).mean() for clip in videos.frames])


def _sharpness(clip: torch.Tensor) -> torch.Tensor:
    luma = torch.einsum("fchw,c->fhw", clip, torch.tensor([0.299, 0.587, 0.114])) * 255
    # Inner pixels only: a padded border would count as an edge.
    around = luma[:, :-2, 1:-1] + luma[:, 2:, 1:-1] + luma[:, 1:-1, :-2] + luma[:, 1:-1, 2:]
    return torch.log1p((around - 4 * luma[:, 1:-1, 1:-1]).flatten(1).var(1, correction=0))
