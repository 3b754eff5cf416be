# A copy of flash_grpo/rewards/colorfulness.py, made by `make comfyui-pack`; edit that file instead.
"""Colourfulness after Hasler and Suesstrunk (2003)."""

from __future__ import annotations

import torch

from .base import VideoBatch


class Colorfulness:
    """Spread and strength of the opponent colours, mean over frames, in hundredths of the published measure.

    0 is gray; the published scale calls 0.15 slightly, 0.45 averagely and 1.09 extremely colourful.
    """

    groupwise = False

    def score(self, videos: VideoBatch) -> torch.Tensor:
        return torch.stack([_colorfulness(clip).mean() for clip in videos.frames])


def _colorfulness(clip: torch.Tensor) -> torch.Tensor:
    red, green, blue = (clip * 255).unbind(1)
    red_green = (red - green).flatten(1)
    yellow_blue = ((red + green) / 2 - blue).flatten(1)
    spread = (red_green.var(1, correction=0) + yellow_blue.var(1, correction=0)).sqrt()
    strength = (red_green.mean(1).square() + yellow_blue.mean(1).square()).sqrt()
    return (spread + 0.3 * strength) / 100
