"""Clips that carry the number of each frame in their pixels, and the scripts that read it back in a browser.

Along the top lie twelve blocks: one white, one black, then ten bits, the highest first. Below moves a picture that
differs from frame to frame and from side to side.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flash_grpo.video import Frames, write_mp4

BITS, BLOCKS = 10, 12
FILM = {"width": 832, "height": 480}
POCKET = {"width": 256, "height": 256}

READER = """
window.fgRead = (pictures) => {
  const width = 12 * 4;
  window.fgCanvas ??= new OffscreenCanvas(width, 8).getContext("2d", { willReadFrequently: true });
  // First both pictures, then their pixels: what is read must be of one moment.
  pictures.forEach((picture, place) => {
    const wide = picture.videoWidth ?? picture.width, high = picture.videoHeight ?? picture.height;
    fgCanvas.fillRect(0, place, width, 1);
    if (wide) fgCanvas.drawImage(picture, 0, Math.floor(high / 32), wide, 1, 0, place, width, 1);
  });
  const pixels = fgCanvas.getImageData(0, 0, width, pictures.length).data;
  return pictures.map((_, place) => {
    const block = (number) => pixels[4 * (width * place + 4 * number + 2)] > 127;
    if (!block(0) || block(1)) return null;
    let number = 0;
    for (let bit = 2; bit < 12; bit++) number = 2 * number + block(bit);
    return number;
  });
};
window.fgWatch = async (player, milliseconds) => {
  const found = { apart: {}, frames: {}, samples: 0, unread: 0 };
  const end = performance.now() + milliseconds;
  while (performance.now() < end) {
    await new Promise(requestAnimationFrame);
    found.samples++;
    const [one, other] = fgRead(player.pictures);
    if (one === null || other === null) found.unread++;
    else found.apart[Math.abs(one - other)] = (found.apart[Math.abs(one - other)] ?? 0) + 1;
    found.frames[one] = (found.frames[one] ?? 0) + 1;
  }
  return found;
};
"""
"""fgRead([video or canvas]): the number each shows, null without a barcode. fgWatch(player, milliseconds): looks at
each frame of the page what is on the screen; how often the sides were how many frames apart, which frames were seen."""


def barcoded(count: int, *, width: int, height: int, tint: int = 0, grain: int = 0) -> Frames:
    """Frames [F,H,W,3] with their numbers 0, 1, ... burnt in; `tint` tells sides apart, `grain` makes large files."""
    frames = np.full((count, height, width, 3), (60 + tint, 90, 120 - tint), np.uint8)
    if grain:
        frames += np.random.default_rng(tint).integers(0, grain, frames.shape, np.uint8)
    band, block = height // 16, width // BLOCKS
    for number in range(count):
        bits = [1, 0, *((number >> place) & 1 for place in reversed(range(BITS)))]
        frames[number, :band] = 0
        for place, bit in enumerate(bits):
            frames[number, :band, place * block : (place + 1) * block] = 255 * bit
        left = number * (width - height // 4) // max(1, count - 1)
        frames[number, height // 2 : height // 2 + height // 4, left : left + height // 4] = (230 - tint, 200, 80)
    return frames


def read_barcode(picture: Frames) -> int | None:
    """The number in a picture [H,W,3]; None without a barcode."""
    row = picture[picture.shape[0] // 32].mean(axis=1)
    bits = [row[(2 * place + 1) * len(row) // (2 * BLOCKS)] > 127 for place in range(BLOCKS)]
    if not bits[0] or bits[1]:
        return None
    return sum(int(bit) << place for place, bit in enumerate(reversed(bits[2:])))


def write_clip(
    path: Path, count: int, *, width: int, height: int, fps: float = 24.0, tint: int = 0, grain: int = 0
) -> Path:
    """Write such a clip; returns its path."""
    write_mp4(path, barcoded(count, width=width, height=height, tint=tint, grain=grain), fps)
    return path
