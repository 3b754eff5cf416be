"""A contact sheet of video files: a row per pair, the same moments left and right. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np

from flash_grpo.clip import Clip
from flash_grpo.errors import InputError
from flash_grpo.files import make_folder
from flash_grpo.normalise import open_video
from flash_grpo.pairs import Pair
from flash_grpo.report import contact_sheet
from flash_grpo.task import Task
from flash_grpo.video import Frames

MOST_PAIRS = 64
MOMENTS = 4
_HIGH, _WIDEST = 112, 2.5


def write_sheet(pairs: Sequence[Pair], output: Path, task: Task, labels: tuple[str, str]) -> None:
    """Write a PNG of pairs of videos; of unequal ones the moments of the shorter. InputError for what is no video.

    A video is decoded twice and only the pictures shown are kept, so that memory does not grow with it.
    """
    if output.suffix.lower() != ".png":
        raise InputError(f"expected an output ending in .png, got {output}; rename it")
    if not 1 <= len(pairs) <= MOST_PAIRS:
        raise InputError(f"expected 1 to {MOST_PAIRS} pairs of videos, got {len(pairs)}; make several sheets")
    make_folder(output.parent)
    sizes = []
    for place, pair in enumerate(pairs):
        task.progress("sheet", place, 2 * len(pairs))
        sizes.append((_measured(pair.left), _measured(pair.right)))
    shape = max(size.shape for two in sizes for size in two)
    box = (round(_HIGH * min(max(shape, 1.0), _WIDEST)), _HIGH)
    count = min(MOMENTS, max(min(left.frames, right.frames) for left, right in sizes))
    rows = []
    for place, (pair, two) in enumerate(zip(pairs, sizes, strict=True)):
        task.progress("sheet", len(pairs) + place, 2 * len(pairs))
        last = min(size.last for size in two)
        moments = [last * number / max(1, count - 1) for number in range(count)]
        rows.append((pair.caption, _pictures(pair.left, moments, box), _pictures(pair.right, moments, box)))
    contact_sheet(rows, output, count, [pair.scores for pair in pairs], labels)
    task.progress("sheet", 2 * len(pairs), 2 * len(pairs))
    task.result = {"file": str(output.resolve()), "size": output.stat().st_size, "pairs": len(pairs), "moments": count}
    task.message = f"Wrote {len(pairs)} rows."


@dataclass(frozen=True)
class _Size:
    """Frames of a video, when its last one begins, and its width over its height."""

    frames: int
    last: Fraction
    shape: float


def _measured(path: Path) -> _Size:
    with open_video(path) as container:
        clip = Clip(path, container)
        frames, last = clip.run_through()
        return _Size(frames, last, clip.size[0] / clip.size[1])


def _pictures(path: Path, moments: Sequence[Fraction], box: tuple[int, int]) -> Frames:
    with open_video(path) as container:
        clip = Clip(path, container)
        clip.box = box
        return np.stack([np.asarray(picture) for moment in moments if (picture := clip.at(moment)) is not None])
