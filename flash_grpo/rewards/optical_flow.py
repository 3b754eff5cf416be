"""Optical flow between neighbouring frames, for the rewards that judge motion."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType

import numpy as np
import numpy.typing as npt
import torch

from flash_grpo.errors import InputError

Array = npt.NDArray[np.float32]

# Frames are brought to one of two short sides, enough to see motion: enlarged where small, shrunk where large. The
# window of the flow goes with it.
SHORT_SIDES = {64: 9, 128: 15}


def opencv() -> ModuleType:
    """OpenCV, or a sentence on how to get it."""
    try:
        import cv2
    except ImportError as error:
        raise InputError(
            "this reward needs OpenCV, which is not installed; run pip install 'flash-grpo-studio[rewards]'"
        ) from error
    module: ModuleType = cv2
    return module


def flows(clip: torch.Tensor, reward: str, least: int = 2) -> Array:
    """Flow from each frame to the next by Farneback's method, [F - 1, h, w, 2] in short sides per frame.

    `clip` is [F, 3, H, W] in 0..1. Raises InputError, naming the reward, for fewer than `least` frames.
    """
    if clip.shape[0] < least:
        raise InputError(f"reward {reward!r} needs at least {least} frames, got {clip.shape[0]}; use longer videos")
    cv2 = opencv()
    side = 64 if min(clip.shape[-2:]) < 128 else 128
    scale = side / min(clip.shape[-2:])
    size = (round(clip.shape[-1] * scale), round(clip.shape[-2] * scale))
    luma = torch.einsum("fchw,c->fhw", clip.clamp(0, 1), torch.tensor([0.299, 0.587, 0.114])) * 255
    way = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    frames = [cv2.resize(frame, size, interpolation=way).clip(0, 255).astype(np.uint8) for frame in luma.numpy()]
    window = SHORT_SIDES[side]
    found = [cv2.calcOpticalFlowFarneback(a, b, None, 0.5, 3, window, 3, 5, 1.2, 0) for a, b in pairwise(frames)]
    return np.asarray(np.stack(found) / side, np.float32)
