"""Motion smoothness: what moves goes on moving the same way."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch

from flash_grpo.rewards.base import VideoBatch
from flash_grpo.rewards.optical_flow import Array, flows, opencv

REST = 0.002  # short sides per frame; keeps the tiny flow of a still video from counting as jitter


class MotionSmoothness:
    """1 minus the share of motion that changes from one frame to the next; a still video scores 1.

    Flow is followed along itself, so steady movement changes nothing; full reversals bring the score to 0. Raises
    InputError for fewer than 3 frames.
    """

    groupwise = False

    def score(self, videos: VideoBatch) -> torch.Tensor:
        return torch.tensor([1 - _change(clip) for clip in videos.frames], dtype=torch.float32)


def _change(clip: torch.Tensor) -> float:
    flow = flows(clip, "motion_smoothness", least=3)
    changed = moved = 0.0
    for before, after in pairwise(flow):
        ahead = _carried(after, before)
        changed += float(np.linalg.norm(ahead - before, axis=-1).mean())
        moved += float((np.linalg.norm(ahead, axis=-1) + np.linalg.norm(before, axis=-1)).mean())
    return changed / (moved + REST * (len(flow) - 1))


def _carried(field: Array, flow: Array) -> Array:
    """The field read where each pixel has gone with the flow."""
    cv2 = opencv()
    height, width = flow.shape[:2]
    pixels = flow * min(height, width)
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float32)
    carried = cv2.remap(field, columns + pixels[..., 0], rows + pixels[..., 1], cv2.INTER_LINEAR)
    return np.asarray(carried, np.float32)
