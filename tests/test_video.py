"""MP4 files: what a player needs is there, and the same frames give the same bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import av
import numpy as np
import pytest

from flash_grpo.errors import InputError
from flash_grpo.video import Frames, display_scale, enlarge, read_mp4, write_mp4


def clip(frames: int = 9, height: int = 32, width: int = 32) -> Frames:
    """A white square crossing a blue ground."""
    video = np.zeros((frames, height, width, 3), np.uint8)
    video[..., 2] = 160
    for index in range(frames):
        video[index, 8:16, 2 + 2 * index : 10 + 2 * index] = 255
    return video


def boxes(path: Path) -> list[str]:
    """Names of the top-level MP4 boxes, in order."""
    data, offset, names = path.read_bytes(), 0, []
    while offset < len(data):
        size, name = struct.unpack_from(">I4s", data, offset)
        names.append(name.decode())
        offset += size
    return names


@pytest.mark.parametrize("fps", [8.0, 24.0, 30000 / 1001])
def test_a_player_finds_h264_at_a_constant_rate_with_the_index_in_front(tmp_path: Path, fps: float) -> None:
    path = tmp_path / "videos" / "a.mp4"
    write_mp4(path, clip(), fps)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        assert stream.codec_context.name == "h264"
        assert stream.codec_context.pix_fmt == "yuv420p"
        assert float(stream.average_rate or 0) == pytest.approx(fps)
        times = [frame.time for frame in container.decode(stream)]
    assert np.diff(times) == pytest.approx(1 / fps, rel=1e-3)
    assert len(times) == 9
    order = boxes(path)
    assert order.index("moov") < order.index("mdat")


@pytest.mark.parametrize(("fps", "distance"), [(8.0, 4), (24.0, 12), (60.0, 12), (1.0, 1)])
def test_a_key_frame_is_near_wherever_a_player_seeks(tmp_path: Path, fps: float, distance: int) -> None:
    write_mp4(tmp_path / "a.mp4", clip(frames=30, height=64, width=64), fps)
    with av.open(str(tmp_path / "a.mp4")) as container:
        keys = [index for index, frame in enumerate(container.decode(video=0)) if frame.key_frame]
    assert keys == list(range(0, 30, distance))


def test_frames_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    write_mp4(path, clip(), 8, scale=8)
    back = read_mp4(path)
    assert back.shape == (9, 256, 256, 3)
    error = np.abs(back.astype(int) - enlarge(clip(), 8).astype(int)).mean()
    assert error < 4
    assert np.abs(back[::-1].astype(int) - enlarge(clip(), 8).astype(int)).mean() > 4 * error  # the order matters


def test_the_same_frames_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        write_mp4(tmp_path / name, clip(), 8, scale=8)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()


@pytest.mark.parametrize(
    ("frames", "fps", "sentence"),
    [
        (clip(height=33), 8, "even sizes, got 32x33"),
        (clip().astype(np.float32), 8, "uint8.*got float32"),
        (clip()[0], 8, r"got uint8 \[32, 32, 3\]"),
        (clip(frames=0), 8, "at least one frame"),
        (clip(), 0, "frames per second"),
    ],
)
def test_unusable_frames_are_one_sentence_and_leave_no_file(
    tmp_path: Path, frames: Frames, fps: float, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        write_mp4(tmp_path / "a.mp4", frames, fps)
    assert list(tmp_path.iterdir()) == []


def test_an_odd_size_fits_when_enlarged_by_two(tmp_path: Path) -> None:
    write_mp4(tmp_path / "a.mp4", clip(height=33), 8, scale=2)
    assert read_mp4(tmp_path / "a.mp4").shape == (9, 66, 64, 3)


@pytest.mark.parametrize("content", [None, b"", b"no video at all"])
def test_a_file_that_is_no_video_is_one_sentence(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.mp4"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match="cannot read .*a.mp4 as a video"):
        read_mp4(path)


def test_small_clips_are_shown_at_256_pixels_or_more() -> None:
    assert display_scale(32, 32) == 8
    assert display_scale(48, 64) == 6
    assert display_scale(480, 832) == 1


def test_nearest_keeps_the_colours() -> None:
    big = enlarge(clip(), 4, "nearest")
    assert big.shape == (9, 128, 128, 3)
    assert (big[:, ::4, ::4] == clip()).all()
