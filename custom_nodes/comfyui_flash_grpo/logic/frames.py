"""Two videos made comparable: one rate, one length, one size; whatever was changed is told."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F

from ..shared.video import display_scale
from .problem import Problem

MAX_FPS = 240.0
GAP, STRIP = 8, 32
"""Pixels between two videos side by side, and of the strip above them that names them."""


@dataclass(frozen=True)
class Clip:
    """Frames [F, H, W, 3] in 0..1, and how many of them make a second."""

    frames: torch.Tensor
    fps: float

    def __post_init__(self) -> None:
        shape = tuple(self.frames.shape)
        if len(shape) != 4 or shape[3] < 3 or not shape[0] or min(shape[1:3]) < 2:
            raise Problem(f"expected a video of frames [F, H, W, 3], got {list(shape)}; connect decoded images")
        if not (math.isfinite(self.fps) and 0 < self.fps <= MAX_FPS):
            raise Problem(f"expected 0 to {MAX_FPS:g} frames per second, got {self.fps:g}; correct fps")


def aligned(before: Clip, after: Clip) -> tuple[Clip, Clip, list[str]]:
    """Both videos with the same rate, length and even size, and a notice for each difference that was evened out."""
    notices = []
    if abs(before.fps - after.fps) > 0.01 * before.fps:
        notices.append(f"rates differ ({before.fps:g} and {after.fps:g} per second): after is shown at {before.fps:g}")
        after = _resampled(after, before.fps)
    first, second = len(before.frames), len(after.frames)
    count = min(first, second)
    if first != second:
        notices.append(f"lengths differ ({first} and {second} frames): only the first {count} are compared")
    if count == 1:
        notices.append("one frame: nothing moves, so only pictures are compared")
    sizes = [tuple(clip.frames.shape[1:3]) for clip in (before, after)]
    height, width = (max(size[axis] for size in sizes) for axis in (0, 1))
    if sizes[0] != sizes[1]:
        (h1, w1), (h2, w2) = sizes
        notices.append(f"sizes differ ({w1}x{h1} and {w2}x{h2}): both are fitted into {width}x{height}")
    box = (height + height % 2, width + width % 2)
    fitted = [Clip(fit(clip.frames[:count, ..., :3], *box), before.fps) for clip in (before, after)]
    return fitted[0], fitted[1], notices


def fit(frames: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Frames scaled into a box without changing their proportions, the rest of it black."""
    found, target = tuple(frames.shape[1:3]), (height, width)
    if found == target:
        return frames
    scale = min(height / found[0], width / found[1])
    # A missing row or column is filled, not scaled for.
    size = found if max(height - found[0], width - found[1]) <= 1 else _size(found, scale, target)
    moved = frames.float().movedim(-1, 1)
    if size != found:
        moved = F.interpolate(moved, size=size, mode="bilinear", antialias=True, align_corners=False).clamp(0, 1)
    top, left = (height - size[0]) // 2, (width - size[1]) // 2
    padded = F.pad(moved, (left, width - size[1] - left, top, height - size[0] - top))
    return padded.movedim(1, -1)


def side_by_side(before: Clip, after: Clip) -> torch.Tensor:
    """One video of two aligned ones, named above; small ones are enlarged for the eye."""
    scale = display_scale(*before.frames.shape[1:3])
    left, right = (_enlarged(clip.frames, scale) for clip in (before, after))
    gap = torch.zeros(left.shape[0], left.shape[1], GAP, 3)
    row = torch.cat([left, gap, right], dim=2)
    strip = _strip(row.shape[2], left.shape[2] + GAP).expand(row.shape[0], -1, -1, -1)
    return torch.cat([strip, row], dim=1)


def as_bytes(frames: torch.Tensor) -> npt.NDArray[np.uint8]:
    """Frames as uint8 [F, H, W, 3]."""
    array: npt.NDArray[np.uint8] = (frames.float().clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()
    return array


def _resampled(clip: Clip, fps: float) -> Clip:
    """The frame that is shown at each moment of another rate."""
    count = max(1, round(len(clip.frames) * fps / clip.fps))
    places = [min(len(clip.frames) - 1, int((index + 0.5) * clip.fps / fps)) for index in range(count)]
    return Clip(clip.frames[places], fps)


def _size(found: tuple[int, ...], scale: float, box: tuple[int, int]) -> tuple[int, int]:
    return min(box[0], max(1, round(found[0] * scale))), min(box[1], max(1, round(found[1] * scale)))


def _enlarged(frames: torch.Tensor, scale: int) -> torch.Tensor:
    """Frames as bytes would hold them, each pixel a square of `scale` by `scale`."""
    return frames.float().clamp(0, 1).cpu().repeat_interleave(scale, dim=1).repeat_interleave(scale, dim=2)


def _strip(width: int, second: int) -> torch.Tensor:
    """A strip that says which side is which, [1, STRIP, width, 3]."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", (width, STRIP))
    font = ImageFont.load_default(size=STRIP // 2)
    for left, text in ((0, "before"), (second, "after")):
        ImageDraw.Draw(picture).text((left + 8, STRIP // 2), text, fill="white", font=font, anchor="lm")
    return torch.from_numpy(np.asarray(picture).copy()).float()[None] / 255
