"""Two videos as one, side by side or behind a moving boundary, with labels and the prompt; also several pairs at once.

Decodes, draws and encodes one moment at a time, so that memory does not grow with the videos; pictures that move (GIF,
WebP), which are made in memory, are held to a size instead. Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from PIL import Image

from flash_grpo.board import Board, Plan, box_for
from flash_grpo.clip import Clip
from flash_grpo.errors import InputError, unknown_name
from flash_grpo.files import atomic_path, make_folder
from flash_grpo.normalise import open_video
from flash_grpo.pairs import Pair
from flash_grpo.task import Task
from flash_grpo.video import Mp4Writer, key_distance, yuv420

LAYOUTS = ("side_by_side", "wipe")
FORMATS = {".mp4": "mp4", ".gif": "gif", ".webp": "webp"}
MOST_PAIRS = 16
WIDEST = {"mp4": 1920, "gif": 960, "webp": 960}
"""Width in pixels that is not exceeded unasked."""
ANIMATION_FRAMES, ANIMATION_RATE = 300, 25
ANIMATION_PIXELS = 40_000_000
"""Of all frames of a GIF or WebP together."""
ANIMATION_BYTES = 8_000_000
SWEEP_SECONDS = 4.0
"""About how long the boundary of a wipe takes to come back."""
_TRIES = 8
Told = Callable[[int, int], None]
"""Is told how many frames are done, of about how many."""


@dataclass(frozen=True)
class Style:
    """How a composition looks. fps, width, columns: as the videos suggest where None. most_bytes: of a GIF or WebP."""

    layout: str = "side_by_side"
    labels: tuple[str, str] = ("Before", "After")
    fps: float | None = None
    width: int | None = None
    columns: int | None = None
    most_bytes: int = ANIMATION_BYTES

    def __post_init__(self) -> None:
        if self.layout not in LAYOUTS:
            raise unknown_name("layout", self.layout, LAYOUTS)
        if self.fps is not None and not (math.isfinite(self.fps) and 1 <= self.fps <= 120):
            raise InputError(
                f"expected frames per second from 1 to 120, got {self.fps:g}; leave --fps out to keep them"
            )
        if self.width is not None and not 64 <= self.width <= 4096:
            raise InputError(f"expected a width of 64 to 4096 pixels, got {self.width}; choose another")
        if self.columns is not None and not 1 <= self.columns <= MOST_PAIRS:
            raise InputError(f"expected 1 to {MOST_PAIRS} columns, got {self.columns}; choose another number")


def compose(pairs: Sequence[Pair], output: Path, task: Task, style: Style | None = None) -> None:
    """Write pairs of videos as one MP4, GIF or WebP, as `write_composition` does, and report it."""
    facts, cut = write_composition(
        pairs, output, style or Style(), lambda done, frames: task.progress("compose", done, frames)
    )
    if cut:
        task.warn(cut, "unequal_lengths")
    task.result = {"file": str(output.resolve()), "size": output.stat().st_size, **facts, "cut": bool(cut)}
    task.message = f"Composed {facts['frames']} frames."


def write_composition(
    pairs: Sequence[Pair], output: Path, style: Style, told: Told = lambda done, frames: None
) -> tuple[dict[str, Any], str]:
    """Write pairs of videos as one MP4, GIF or WebP; the ending of `output` says which.

    Pictures of other sizes are letterboxed, small ones enlarged with their pixels; other rates are met by time; where
    the shortest video ends, all end. Returns what was written, and a sentence if it ends before some of its videos.
    Raises InputError for what is no video or cannot be composed.
    """
    kind = FORMATS.get(output.suffix.lower())
    if kind is None:
        raise InputError(f"expected an output ending in {', '.join(FORMATS)}, got {output}; rename it")
    if not 1 <= len(pairs) <= MOST_PAIRS:
        raise InputError(f"expected 1 to {MOST_PAIRS} pairs of videos, got {len(pairs)}; compose them in parts")
    make_folder(output.parent)
    shrink = 1.0
    with atomic_path(output) as temporary:
        for _ in range(_TRIES):
            found = _write(pairs, temporary, kind, style, shrink, told)
            size = temporary.stat().st_size
            if kind == "mp4" or size <= style.most_bytes:
                return found
            shrink *= max(0.4, 0.95 * math.sqrt(style.most_bytes / size))
        raise InputError(f"the videos do not fit into {style.most_bytes / 1e6:g} MB as a {kind}; write an .mp4")


def _write(
    pairs: Sequence[Pair], path: Path, kind: str, style: Style, shrink: float, told: Told
) -> tuple[dict[str, Any], str]:
    """Write the composition once; returns what was written, and why it ends before some of its videos, if so."""
    with ExitStack() as stack:
        files = [file for pair in pairs for file in (pair.left, pair.right)]
        clips = [Clip(file, stack.enter_context(open_video(file))) for file in files]
        rate = _rate(clips, style, kind)
        length = min((clip.seconds for clip in clips if clip.seconds), default=0.0)
        loop, most = math.ceil(length * rate) or ANIMATION_FRAMES, None  # as the files say, or one that does not
        if kind != "mp4":
            loop = min(loop, ANIMATION_FRAMES)
        board = _board(pairs, clips, style, shrink, kind, ANIMATION_PIXELS // loop)
        if kind != "mp4":  # files may say less than they hold
            most = min(ANIMATION_FRAMES, max(loop, ANIMATION_PIXELS // (board.width * board.height)))
        writer = stack.enter_context(closing(_writer(path, kind, board, rate)))
        frames, cut = _play(clips, board, writer, rate, loop, most, told)
        writer.finish()
    facts = {"format": kind, "layout": style.layout, "width": board.width, "height": board.height}
    return {**facts, "fps": float(rate), "frames": frames, "seconds": float(frames / rate)}, cut


def _rate(clips: Sequence[Clip], style: Style, kind: str) -> Fraction:
    """The fastest video's rate, of which a GIF or WebP shows every second frame or fewer where they are too many."""
    rate = Fraction(style.fps).limit_denominator(1001) if style.fps else max(clip.rate for clip in clips)
    return rate / math.ceil(rate / ANIMATION_RATE) if kind != "mp4" else rate


def _board(pairs: Sequence[Pair], clips: Sequence[Clip], style: Style, shrink: float, kind: str, pixels: int) -> Board:
    """A board of the wished width, made smaller by `shrink` and, of an animation, to about `pixels`; its clips know."""
    columns = min(style.columns or math.ceil(math.sqrt(len(pairs))), len(pairs))
    plan = Plan(pairs, style.labels, style.layout == "wipe", columns)
    sizes = [clip.size for clip in clips]
    whole = box_for(sizes, plan, style.width or WIDEST[kind], style.width is not None)
    while True:
        box = (max(2, int(whole[0] * shrink)), max(2, int(whole[1] * shrink)))
        board = Board(plan, box)
        if kind == "mp4" or board.width * board.height <= pixels or min(box) <= 16:
            break
        shrink *= 0.95 * math.sqrt(pixels / (board.width * board.height))
    for clip in clips:
        clip.box = box
    return board


def _play(
    clips: Sequence[Clip], board: Board, writer: _Writer, rate: Fraction, loop: int, most: int | None, told: Told
) -> tuple[int, str]:
    """Draw frame after frame until the first video ends; returns their number, and a sentence if others go on."""
    sweeps = max(1, round(float(loop / rate) / SWEEP_SECONDS))
    count = 0
    while True:
        # A quarter of a frame later, so that times that files round up still name their frame.
        moment = (count + Fraction(1, 4)) / rate if count else Fraction(0)
        shown = [clip.at(moment) for clip in clips]
        there = [picture for picture in shown if picture is not None]
        if len(there) < len(clips) or count == most:
            return count, _why_it_ends(clips, shown, count, rate)
        boundary = 0.5 + 0.42 * math.sin(2 * math.pi * sweeps * count / loop)
        writer.write(board.picture(list(zip(there[::2], there[1::2], strict=True)), boundary))
        count += 1
        told(min(count, loop), loop)


def _why_it_ends(clips: Sequence[Clip], shown: Sequence[Image.Image | None], count: int, rate: Fraction) -> str:
    longer = next((clip.path.name for clip, picture in zip(clips, shown, strict=True) if picture is not None), None)
    ended = next((clip.path.name for clip, picture in zip(clips, shown, strict=True) if picture is None), None)
    length = f"after {count} frames ({float(count / rate):.1f} s)"
    if ended is None:
        return f"the composition ends {length}, the most a moving picture may have; write an .mp4 for all of it"
    return f"{longer} is longer than {ended}; the composition ends with that one, {length}" if longer else ""


class _Writer(Protocol):
    """Takes the finished pictures, one by one."""

    def write(self, picture: Image.Image) -> None:
        """Take the next picture."""

    def finish(self) -> None:
        """All have come."""

    def close(self) -> None:
        """Let go of the file."""


def _writer(path: Path, kind: str, board: Board, rate: Fraction) -> _Writer:
    return _Movie(path, board, rate) if kind == "mp4" else _Animation(path, kind, rate)


class _Movie:
    """An MP4 that players seek in."""

    def __init__(self, path: Path, board: Board, rate: Fraction) -> None:
        self._file = Mp4Writer(path, board.width, board.height, rate, crf=18, key_every=key_distance(rate))
        self.finish, self.close = self._file.finish, self._file.close

    def write(self, picture: Image.Image) -> None:
        """Encode a picture."""
        self._file.write(yuv420(np.asarray(picture)))


class _Animation:
    """A GIF or WebP that repeats for ever."""

    def __init__(self, path: Path, kind: str, rate: Fraction) -> None:
        self._path, self._kind, self._rate = path, kind, rate
        self._pictures: list[Image.Image] = []

    def write(self, picture: Image.Image) -> None:
        """Keep a picture."""
        small = picture.convert("P", palette=Image.Palette.ADAPTIVE) if self._kind == "gif" else picture
        self._pictures.append(small)

    def finish(self) -> None:
        """Write the file. A GIF counts hundredths of a second, so some of its frames last one longer than others."""
        unit = 10 if self._kind == "gif" else 1
        ends = [round(place * 1000 / self._rate / unit) * unit for place in range(len(self._pictures) + 1)]
        lasting = [after - before for before, after in pairwise(ends)]
        first, rest = self._pictures[0], self._pictures[1:]
        how: dict[str, Any] = {"quality": 80, "method": 4} if self._kind == "webp" else {"optimize": False}
        first.save(self._path, self._kind.upper(), save_all=True, append_images=rest, duration=lasting, loop=0, **how)

    def close(self) -> None:
        """Nothing is open."""
