"""JPEG compressibility: how few bytes the frames need."""

from __future__ import annotations

import io

import numpy as np
import torch
from PIL import Image

from flash_grpo.errors import InputError
from flash_grpo.rewards.base import VideoBatch


class JpegCompressibility:
    """Minus the mean size of a frame as JPEG, in kilobytes (1000 bytes), at the given quality."""

    groupwise = False

    def __init__(self, quality: int = 95) -> None:
        if not 1 <= quality <= 95:
            raise InputError(f"jpeg_compressibility expects a quality from 1 to 95, got {quality}; 95 is usual")
        self.quality = quality

    def score(self, videos: VideoBatch) -> torch.Tensor:
        clips = (videos.frames.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 1, 3, 4, 2).numpy()
        sizes = [float(np.mean([self._bytes(frame) for frame in clip])) for clip in clips]
        return -torch.tensor(sizes, dtype=torch.float32) / 1000

    def _bytes(self, frame: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> int:
        buffer = io.BytesIO()
        Image.fromarray(frame).save(buffer, format="JPEG", quality=self.quality)
        return buffer.tell()
