# A copy of flash_grpo/video.py, made by `make comfyui-pack`; edit that file instead.
"""Video files: MP4 that every browser and player shows, written atomically and reproducibly."""

from __future__ import annotations

from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Literal

import av
import numpy as np
import numpy.typing as npt
from av.video.reformatter import Colorspace
from PIL import Image

from .errors import InputError
from .files import atomic_path

Frames = npt.NDArray[np.uint8]

SHOWN_AT_LEAST = 256
"""Short side in pixels below which a clip is enlarged for the eye."""

# One thread: the same frames give the same bytes on every machine. Colours are tagged, so no player guesses a matrix.
_X264 = "threads=1:lookahead-threads=1:colorprim=bt709:transfer=bt709:colormatrix=bt709:range=tv"
_RESAMPLING = {"nearest": Image.Resampling.NEAREST, "lanczos": Image.Resampling.LANCZOS}


def display_scale(height: int, width: int, at_least: int = SHOWN_AT_LEAST) -> int:
    """The smallest whole factor that brings the short side to `at_least` pixels."""
    return max(1, -(-at_least // min(height, width)))


def enlarge(frames: Frames, scale: int, method: Literal["nearest", "lanczos"] = "lanczos") -> Frames:
    """Enlarge frames [F,H,W,3] by a whole factor."""
    if scale == 1:
        return frames
    if method == "nearest":
        return frames.repeat(scale, axis=1).repeat(scale, axis=2)
    size = (frames.shape[2] * scale, frames.shape[1] * scale)
    return np.stack([np.asarray(Image.fromarray(frame).resize(size, _RESAMPLING[method])) for frame in frames])


def write_mp4(
    path: Path, frames: Frames, fps: float, scale: int = 1, method: Literal["nearest", "lanczos"] = "lanczos"
) -> None:
    """Write frames, uint8 [F,H,W,3], as H.264, yuv420p, constant rate, index at the front; `scale` enlarges them.

    Key frames are so close that a player reaches any frame at once. Raises InputError for another dtype or shape, no
    frames, odd sizes, or a rate that is not positive.
    """
    _check(frames, fps, scale)
    shown = enlarge(np.ascontiguousarray(frames), scale, method)
    rate = Fraction(fps).limit_denominator(1001)
    with atomic_path(path) as temporary:
        writer = Mp4Writer(temporary, shown.shape[2], shown.shape[1], rate, crf=16, key_every=key_distance(rate))
        with closing(writer):
            for image in shown:
                writer.write(yuv420(image))
            writer.finish()


def yuv420(image: npt.NDArray[np.uint8]) -> av.VideoFrame:
    """An RGB picture [H,W,3] as H.264 takes it."""
    frame = av.VideoFrame.from_ndarray(image, format="rgb24")
    return frame.reformat(format="yuv420p", dst_colorspace=Colorspace.ITU709)


def key_distance(rate: Fraction) -> int:
    """Frames between key frames of a video that players seek in: half a second at most, and never more than 12."""
    return max(1, min(12, int(rate / 2)))


class Mp4Writer:
    """Encodes frames one by one: H.264, yuv420p, constant rate, index at the front once it is closed.

    crf: x264's quality, lower is better. key_every: frames between key frames; x264 chooses where it is None.
    """

    def __init__(
        self, path: Path, width: int, height: int, rate: Fraction, crf: int, key_every: int | None = None
    ) -> None:
        self.count, self.rate = 0, rate
        options = {"movflags": "+faststart", "fflags": "+bitexact"}
        self._container = av.open(str(path), "w", format="mp4", options=options)
        stream = self._container.add_stream("libx264", rate=rate)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.time_base = 1 / rate
        keys = f":keyint={key_every}:min-keyint=1:scenecut=0" if key_every is not None else ""
        stream.options = {"crf": str(crf), "preset": "medium", "x264-params": f"{_X264}{keys}"}
        stream.codec_context.flags |= av.codec.context.Flags.bitexact
        self._stream = stream

    def write(self, frame: av.VideoFrame) -> None:
        """Encode the next frame, of yuv420p and the video's size, whatever time it had."""
        frame.pts, frame.time_base = self.count, 1 / self.rate
        frame.pict_type = av.video.frame.PictureType.NONE  # else a key frame of a source becomes one here
        self._container.mux(self._stream.encode(frame))
        self.count += 1

    def finish(self) -> None:
        """Encode what is still held."""
        self._container.mux(self._stream.encode(None))

    def close(self) -> None:
        """Close the file."""
        self._container.close()


def _check(frames: Frames, fps: float, scale: int) -> None:
    if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] != 3 or not len(frames):
        raise InputError(
            "expected at least one frame as uint8 [frames, height, width, 3], "
            f"got {frames.dtype} {list(frames.shape)}; convert the video first"
        )
    if scale < 1:
        raise InputError(f"expected a scale of 1 or more, got {scale}")
    height, width = frames.shape[1] * scale, frames.shape[2] * scale
    if height % 2 or width % 2:
        raise InputError(
            f"H.264 with yuv420p needs even sizes, got {width}x{height}; "
            "crop a row or column, or enlarge by an even scale"
        )
    if not 0 < fps <= 1000:
        raise InputError(f"expected frames per second between 0 and 1000, got {fps}")


def read_mp4(path: Path) -> Frames:
    """All frames of a video file, uint8 [F,H,W,3].

    Raises InputError if the file is missing or holds no readable video.
    """
    try:
        with av.open(str(path)) as container:
            frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    except (OSError, IndexError, ValueError) as error:
        # PyAV's errors are OSError or ValueError; a file without a video stream is an IndexError.
        raise InputError(f"cannot read {path} as a video: {error}") from error
    if not frames:
        raise InputError(f"cannot read {path} as a video: it holds no frame")
    return np.stack(frames)
