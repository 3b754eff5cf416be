"""Dynamic degree: how much moves."""

from __future__ import annotations

import numpy as np
import torch

from flash_grpo.errors import InputError
from flash_grpo.rewards.base import VideoBatch
from flash_grpo.rewards.optical_flow import flows


class DynamicDegree:
    """Mean speed of the fastest 5 % of the picture, as a share of `full` (short sides per second), at most 1.

    Raises InputError for fewer than 2 frames.
    """

    groupwise = False

    def __init__(self, full: float = 0.6) -> None:
        if full <= 0:
            raise InputError(f"dynamic_degree expects `full` above 0, got {full}; 0.6 short sides per second is brisk")
        self.full = full

    def score(self, videos: VideoBatch) -> torch.Tensor:
        speeds = [_speed(clip) * videos.fps / self.full for clip in videos.frames]
        return torch.tensor(speeds, dtype=torch.float32).clamp(max=1)


def _speed(clip: torch.Tensor) -> float:
    """Short sides per frame."""
    flow = flows(clip, "dynamic_degree")
    speed = np.hypot(flow[..., 0], flow[..., 1]).reshape(len(flow), -1)
    fastest = max(1, speed.shape[1] // 20)
    return float(np.partition(speed, -fastest, axis=1)[:, -fastest:].mean())
