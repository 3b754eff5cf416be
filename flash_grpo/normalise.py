"""Any video a user brings, made into one that every player seeks in: constant rate, H.264, short groups of pictures.

Decodes and encodes frame by frame, so that memory does not grow with the video; what a file claims and what comes out
of it are both held to limits. Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
from av.container import InputContainer
from av.error import FFmpegError

from flash_grpo.errors import InputError
from flash_grpo.files import atomic_path, make_folder
from flash_grpo.task import Task
from flash_grpo.video import Mp4Writer, key_distance

MAX_BYTES = 2 * 2**30
MAX_SECONDS = 600.0
MAX_PIXELS = 4096 * 2304
MAX_SIDE = 8192
MAX_FRAMES = 72_000
"""Decoded frames: ten minutes of 120 a second."""
FASTEST, USUAL = 60.0, 30.0
"""The fastest rate taken over from a file, in frames per second, and the rate where a file names none."""

# Formats that hold their video themselves. Playlists and scripts (HLS, DASH, concat) are left out: they would make this
# process open other files and addresses that their author chose.
FORMATS = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,flv,gif,apng,webp_anim,ogg,asf,h264,hevc,obu,ivf,"
    "m4v,mxf,nut,yuv4mpegpipe,wtv,rm,dv,h263,swf"
)
_OPEN = {"format_whitelist": FORMATS, "protocol_whitelist": "file", "max_pixels": str(MAX_PIXELS)}


@dataclass(frozen=True)
class Source:
    """What a file says of its video, within the limits; `seconds` is None where it does not say."""

    path: Path
    container: str
    codec: str
    width: int
    height: int
    fps: float | None
    seconds: float | None


@dataclass(frozen=True)
class Picture:
    """Size of the result: the picture scaled to `width` x `height`, then its edge repeated to even numbers."""

    width: int
    height: int

    @property
    def padded(self) -> tuple[int, int]:
        """Width and height of the file's frames."""
        return self.width + self.width % 2, self.height + self.height % 2


def open_video(path: Path) -> InputContainer:
    """Open a file that holds a video of a known format; InputError names it otherwise."""
    try:
        size = path.stat().st_size
    except OSError as error:
        raise InputError(f"cannot read the video {path}: {error.strerror}; check the path") from error
    if not path.is_file():
        raise InputError(f"cannot read the video {path}: it is no file; name a video file")
    if not size:
        raise InputError(f"cannot read the video {path}: it is empty; copy or download it again")
    if size > MAX_BYTES:
        raise InputError(
            f"the video {path} has {size / 2**30:.1f} GiB, expected at most {MAX_BYTES / 2**30:g}; cut or compress it"
        )
    try:
        return av.open(f"file:{path}", options=_OPEN, stream_options=[])
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot read {path} as a video ({_said(error)}); expected a file such as MP4, WebM, MOV, AVI or GIF"
        ) from error


def inspect(path: Path) -> Source:
    """What a file says of its video, held to the limits, without decoding more than finding that out takes."""
    with open_video(path) as container:
        return claims(path, container)


def claims(path: Path, container: InputContainer) -> Source:
    """What an open file says of its video, held to the limits."""
    if not container.streams.video:
        raise InputError(f"cannot read {path} as a video: it holds no video stream; choose another file")
    stream = container.streams.video[0]
    if stream.codec_context is None or not stream.codec_context.width or not stream.codec_context.height:
        raise InputError(
            f"cannot read {path} as a video: its codec is unknown, or its pictures have more than "
            f"{MAX_PIXELS / 1e6:.1f} million pixels; convert it to MP4 or scale it down first"
        )
    check_size(path, stream.codec_context.width, stream.codec_context.height)
    seconds: float | None = None
    if stream.duration is not None and stream.time_base is not None:
        seconds = float(stream.duration * stream.time_base)
    elif container.duration is not None:
        seconds = container.duration / av.time_base
    if seconds is not None:
        check_seconds(path, seconds)
    if stream.frames > MAX_FRAMES:
        raise _too_many_frames(path)
    rate = stream.average_rate or stream.guessed_rate
    fps = float(rate) if rate else None
    codec = stream.codec_context
    return Source(path, container.format.name, codec.name, codec.width, codec.height, fps, seconds)


def check_size(path: Path, width: int, height: int) -> None:
    """InputError if a picture is larger than what is decoded here."""
    if width * height > MAX_PIXELS or max(width, height) > MAX_SIDE:
        raise InputError(
            f"the video {path} has pictures of {width}x{height}, expected at most {MAX_PIXELS / 1e6:.1f} million "
            f"pixels and {MAX_SIDE} a side; scale it down first"
        )


def check_seconds(path: Path, seconds: float) -> None:
    """InputError if a video is longer than what is decoded here."""
    if seconds > MAX_SECONDS:
        raise InputError(
            f"the video {path} takes {seconds:.0f} seconds, expected at most {MAX_SECONDS:.0f}; cut it first"
        )


def _too_many_frames(path: Path) -> InputError:
    return InputError(f"the video {path} has more than {MAX_FRAMES} frames; cut it first")


def frames_of(path: Path, container: InputContainer) -> Iterator[av.VideoFrame]:
    """The frames of a video in order, each held to the limits as it comes; InputError where it cannot be decoded.

    Times start at 0 and are known: of a file without times, they follow from its rate.
    """
    stream = container.streams.video[0]
    stream.codec_context.options = {"max_pixels": str(MAX_PIXELS)}
    stream.thread_type = "SLICE"  # threads by frame would hold many frames at once
    base = stream.time_base or Fraction(1, 1000)
    step = round(1 / (base * Fraction(stream.average_rate or stream.guessed_rate or int(USUAL)))) or 1
    first: int | None = None
    last, count = -step, 0
    try:
        for frame in container.decode(stream):
            check_size(path, frame.width, frame.height)
            if (count := count + 1) > MAX_FRAMES:
                raise _too_many_frames(path)
            if first is None:
                first = frame.pts or 0
            time = last + step if frame.pts is None else frame.pts - first
            if time <= last:  # a clock that stands or runs backwards
                time = last + 1
            check_seconds(path, float(time * base))
            frame.pts, frame.time_base = time, base
            last = time
            yield frame
    except FFmpegError as error:
        raise InputError(
            f"cannot decode the video {path} after {count} frames ({_said(error)}); it may be cut off, or hold "
            "pictures too large: copy it again or convert it to MP4"
        ) from error
    if not count:
        raise InputError(f"cannot read {path} as a video: it holds no frame; choose another file")


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or " ".join(str(error).split())


def normalise(path: Path, output: Path, task: Task, fps: float | None = None, max_side: int | None = None) -> None:
    """Write a video as MP4: H.264, yuv420p, constant rate, a key frame at least every half second, index in front.

    Turned upright where it says how it lies, square pixels, no sound and no metadata. `fps` defaults to the file's
    mean rate; `max_side` scales a larger picture down. Raises InputError for what is no video or exceeds the limits.
    """
    _check_wishes(output, fps, max_side)
    task.progress("normalise", 0, 1)
    make_folder(output.parent)
    with open_video(path) as container, atomic_path(output) as temporary:
        source = claims(path, container)
        rate = Fraction(fps or usable(source.fps)).limit_denominator(1001)
        writer: _Writer | None = None
        try:
            for frame in frames_of(path, container):
                if writer is None:
                    writer = _Writer(temporary, frame, rate, max_side, pixel_shape(container))
                writer.write(frame)
                _tell(task, source, frame)
            if writer is None:
                raise InputError(f"cannot read {path} as a video: it holds no frame; choose another file")
            writer.finish()
        finally:
            if writer is not None:
                writer.close()
    task.progress("normalise", 1, 1)
    task.result = {
        "file": str(output.resolve()),
        "size": output.stat().st_size,
        **writer.facts(),
        "source": _plain(source),
    }
    task.message = f"Wrote {writer.count} frames."


def _check_wishes(output: Path, fps: float | None, max_side: int | None) -> None:
    if output.suffix.lower() != ".mp4":
        raise InputError(f"expected a file ending in .mp4 as output, got {output}; rename it")
    if fps is not None and not (math.isfinite(fps) and 1 <= fps <= 240):
        raise InputError(f"expected frames per second from 1 to 240, got {fps:g}; leave --fps out to keep the rate")
    if max_side is not None and not 16 <= max_side <= MAX_SIDE:
        raise InputError(f"expected a longest side of 16 to {MAX_SIDE} pixels, got {max_side}; choose another")


def usable(fps: float | None) -> float:
    """A rate in frames per second as a file names it, held to what is taken over; the usual one where it is none."""
    return USUAL if fps is None or not math.isfinite(fps) or fps <= 0 else min(max(fps, 1.0), FASTEST)


def _tell(task: Task, source: Source, frame: av.VideoFrame) -> None:
    if source.seconds and frame.time is not None:
        task.progress("normalise", min(int(1000 * frame.time / source.seconds), 999), 1000)
    else:
        task.point()


def _plain(source: Source) -> dict[str, Any]:
    return {**vars(source), "path": str(source.path)}


def pixel_shape(container: InputContainer) -> Fraction:
    """Width of a pixel over its height."""
    shape = container.streams.video[0].sample_aspect_ratio
    return Fraction(shape) if shape and Fraction(1, 10) <= shape <= 10 else Fraction(1)


def fitted(width: int, height: int, shape: Fraction, turned: bool, max_side: int | None) -> Picture:
    """The picture's size with square pixels, upright, its longer side at most `max_side`."""
    wide, high = float(width * max(shape, Fraction(1))), float(height / min(shape, Fraction(1)))
    if turned:
        wide, high = high, wide
    shrink = min(1.0, min(max_side or MAX_SIDE, MAX_SIDE) / max(wide, high))
    if wide * high * shrink**2 > MAX_PIXELS:
        shrink = math.sqrt(MAX_PIXELS / (wide * high))
    return Picture(max(1, round(wide * shrink)), max(1, round(high * shrink)))


class _Writer:
    """Resamples, turns, scales and pads frames, and encodes them."""

    def __init__(self, path: Path, first: av.VideoFrame, rate: Fraction, max_side: int | None, shape: Fraction) -> None:
        self.rate = rate
        self._size, self._format = (first.width, first.height), first.format.name
        turn = round(first.rotation / 90) % 4  # quarter turns against the clock
        self.picture = fitted(first.width, first.height, shape, turn % 2 == 1, max_side)
        self._graph = self._filters(first, turn)
        self.key_every = key_distance(rate)
        self._file = Mp4Writer(path, *self.picture.padded, rate, crf=18, key_every=self.key_every)

    def _filters(self, first: av.VideoFrame, turn: int) -> av.filter.Graph:
        width, height = self.picture.padded
        turns = {0: [], 1: [("transpose", "cclock")], 2: [("hflip", ""), ("vflip", "")], 3: [("transpose", "clock")]}
        chain = [
            ("fps", f"fps={self.rate.numerator}/{self.rate.denominator}:round=near"),
            *turns[turn],
            ("scale", f"{self.picture.width}:{self.picture.height}:flags=lanczos:out_color_matrix=bt709:out_range=tv"),
            ("format", "yuv444p"),
            ("pad", f"{width}:{height}:0:0"),
            ("fillborders", f"right={width - self.picture.width}:bottom={height - self.picture.height}:mode=smear"),
            ("format", "yuv420p"),
            ("setsar", "1"),
        ]
        graph = av.filter.Graph()
        link = graph.add_buffer(
            width=first.width, height=first.height, format=first.format, time_base=first.time_base or Fraction(1, 1000)
        )
        for name, arguments in chain:
            following = graph.add(name, arguments) if arguments else graph.add(name)
            link.link_to(following)
            link = following
        link.link_to(graph.add("buffersink"))
        graph.configure()
        return graph

    def write(self, frame: av.VideoFrame) -> None:
        """Take one frame in; none, one or several come out."""
        if (frame.width, frame.height) != self._size or frame.format.name != self._format:
            pts, base = frame.pts, frame.time_base  # a picture that changes its size within the video
            frame = frame.reformat(width=self._size[0], height=self._size[1], format=self._format)
            frame.pts, frame.time_base = pts, base
        self._graph.push(frame)
        self._drain()

    def finish(self) -> None:
        """Encode what is still held."""
        self._graph.push(None)
        self._drain()
        self._file.finish()

    def _drain(self) -> None:
        while True:
            try:
                frame = self._graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                return
            assert isinstance(frame, av.VideoFrame)
            self._file.write(frame)

    @property
    def count(self) -> int:
        """Frames written so far."""
        return self._file.count

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def facts(self) -> dict[str, Any]:
        """What was written."""
        width, height = self.picture.padded
        return {
            "width": width,
            "height": height,
            "picture": [self.picture.width, self.picture.height],
            "fps": float(self.rate),
            "frames": self.count,
            "seconds": float(self.count / self.rate),
            "key_frame_every": self.key_every,
        }
