"""One video as pictures of a given size, asked for by time; decoded as they are asked for. Imports no torch."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.container import InputContainer
from PIL import Image

from flash_grpo.normalise import claims, fitted, frames_of, pixel_shape, usable

LETTERBOX = "#14171a"
PIXEL_ART = 128
"""Short side in pixels below which a picture is enlarged by whole factors with sharp edges."""


class Clip:
    """Pictures are upright, with square pixels, letterboxed into `box`. Times that are asked for must not go back."""

    def __init__(self, path: Path, container: InputContainer) -> None:
        source = claims(path, container)
        self.path, self.seconds = path, source.seconds
        self.rate = Fraction(usable(source.fps)).limit_denominator(1001)
        self._coming = frames_of(path, container)
        first = next(self._coming)
        self._turns = round(first.rotation / 90) % 4  # quarter turns against the clock
        upright = fitted(first.width, first.height, pixel_shape(container), self._turns % 2 == 1, None)
        self.size = (upright.width, upright.height)
        self.box = self.size
        self._shown, self._next = first, next(self._coming, None)
        self._end = self._end_of(first, Fraction(0))
        self._drawn: Image.Image | None = None

    def at(self, time: Fraction) -> Image.Image | None:
        """The picture that is shown at a time; None once the video is over."""
        while self._next is not None and _time(self._next) <= time:
            self._end = self._end_of(self._next, _time(self._shown))
            self._shown, self._next, self._drawn = self._next, next(self._coming, None), None
        if self._next is None and time >= self._end:
            return None
        if self._drawn is None:
            self._drawn = self._draw(self._shown)
        return self._drawn

    def run_through(self) -> tuple[int, Fraction]:
        """Decode to the end without drawing anything; returns how many frames there are, and when the last begins."""
        frames = 1
        while self._next is not None:
            self._shown, self._next, frames = self._next, next(self._coming, None), frames + 1
        return frames, _time(self._shown)

    def _end_of(self, frame: av.VideoFrame, before: Fraction) -> Fraction:
        """When a frame would end if it were the last: by its own duration, else as long as the one before it."""
        start, base = _time(frame), frame.time_base or Fraction(1, 1000)
        return start + (frame.duration * base if frame.duration else (start - before) or 1 / self.rate)

    def _draw(self, frame: av.VideoFrame) -> Image.Image:
        picture = Image.fromarray(np.rot90(frame.to_ndarray(format="rgb24"), self._turns))
        scale = min(side / own for side, own in zip(self.box, self.size, strict=True))
        method = Image.Resampling.LANCZOS
        if scale >= 1 and min(self.size) < PIXEL_ART:
            method = Image.Resampling.NEAREST
            if int(scale) > 0.85 * scale:  # pixels of one size are worth a narrow edge
                scale = int(scale)
        width, height = (max(1, round(own * scale)) for own in self.size)
        if picture.size != (width, height):
            picture = picture.resize((width, height), method)
        if picture.size == self.box:
            return picture
        drawn = Image.new("RGB", self.box, LETTERBOX)
        drawn.paste(picture, ((self.box[0] - width) // 2, (self.box[1] - height) // 2))
        return drawn


def _time(frame: av.VideoFrame) -> Fraction:
    return (frame.pts or 0) * (frame.time_base or Fraction(1, 1000))
