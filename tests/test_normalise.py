"""Any video becomes one that players seek in, and what is none, or too much, is refused in a sentence."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from flash_grpo import normalise as room
from flash_grpo.control import Interrupted
from flash_grpo.errors import InputError
from flash_grpo.events import Event, Progress, read_events
from flash_grpo.normalise import normalise
from flash_grpo.task import Task, reporting
from tests.test_video import boxes

TICK = Fraction(1, 25)
LEVELS = (30, 220, 90, 160, 60, 200, 120, 250)


def picture(level: int, width: int, height: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.full((height, width, 3), level, np.uint8)


def write(
    path: Path,
    codec: str,
    pixels: str,
    images: Sequence[np.ndarray[Any, np.dtype[np.uint8]]],
    times: Sequence[float],
    base: Fraction = Fraction(1, 1000),
) -> Path:
    """A video file whose frames are shown at these times."""
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=25)
        stream.height, stream.width = images[0].shape[:2]
        stream.pix_fmt, stream.time_base, stream.codec_context.time_base = pixels, base, base
        container.metadata["title"] = "a secret"
        for image, time in zip(images, times, strict=True):
            frame = av.VideoFrame.from_ndarray(image, format="rgb24").reformat(format=pixels)
            frame.pts, frame.time_base = round(time / base), base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def clip(path: Path, codec: str = "mpeg4", pixels: str = "yuv420p", count: int = 30, size: tuple[int, int] = (64, 48),
         fps: int = 25) -> Path:  # fmt: skip
    images = [picture(40 + 5 * index, *size) for index in range(count)]
    return write(path, codec, pixels, images, [index / fps for index in range(count)], Fraction(1, fps))


def run(path: Path, output: Path, **wishes: Any) -> dict[str, Any]:
    with reporting() as task:
        normalise(path, output, task, **wishes)
    return task.result


def shown(path: Path) -> tuple[list[float], list[int], np.ndarray[Any, Any], Any]:
    """Times, positions of key frames, frames and the stream's facts."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        frames = list(container.decode(stream))
        facts = {
            "codec": stream.codec_context.name,
            "pixels": stream.codec_context.pix_fmt,
            "metadata": dict(container.metadata),
            "streams": len(container.streams),
        }
        images = np.stack([frame.to_ndarray(format="rgb24") for frame in frames])
    return [float(f.time or 0) for f in frames], [i for i, f in enumerate(frames) if f.key_frame], images, facts


@pytest.mark.parametrize(
    ("name", "codec", "pixels", "size"),
    [
        ("a.avi", "mpeg4", "yuv420p", (64, 48)),
        ("a.mkv", "ffv1", "yuv420p10le", (33, 17)),
        ("a.webm", "libvpx-vp9", "yuv420p", (65, 47)),
        ("a.mov", "mjpeg", "yuvj422p", (1, 1)),
    ],
)
@pytest.mark.parametrize("fps", [None, 8.0])
def test_any_video_becomes_one_that_players_seek_in(
    tmp_path: Path, name: str, codec: str, pixels: str, size: tuple[int, int], fps: float | None
) -> None:
    output = tmp_path / "out.mp4"
    result = run(clip(tmp_path / name, codec, pixels, size=size), output, fps=fps)
    times, keys, images, facts = shown(output)
    rate = fps or 25.0
    assert (facts["codec"], facts["pixels"], facts["streams"]) == ("h264", "yuv420p", 1)
    assert np.diff(times) == pytest.approx(1 / rate, rel=1e-3)
    assert times[-1] + 1 / rate == pytest.approx(30 / 25, abs=1.5 / rate)
    assert max(np.diff([*keys, len(times)])) <= min(12, rate / 2) and keys[0] == 0
    assert images.shape[1:3] == (size[1] + size[1] % 2, size[0] + size[0] % 2)
    order = boxes(output)
    assert order.index("moov") < order.index("mdat")
    assert b"a secret" not in output.read_bytes() and facts["metadata"].keys() <= {
        "major_brand", "minor_version", "compatible_brands"
    }  # fmt: skip
    assert b"a secret" in (tmp_path / name).read_bytes() or name == "a.avi"
    levels = images[:, : size[1], : size[0]].mean(axis=(1, 2, 3))
    assert 33 < levels[0] < 53 and levels[-1] == pytest.approx(185, abs=25)
    assert (result["frames"], result["width"], result["fps"]) == (len(times), images.shape[2], rate)


def test_a_variable_rate_becomes_constant_and_keeps_its_times(tmp_path: Path) -> None:
    times = (0.5, 0.6, 0.7, 1.3, 1.35, 2.0, 2.5, 2.6)
    images = [picture(level, 64, 48) for level in LEVELS]
    path = write(tmp_path / "a.mkv", "ffv1", "yuv420p", images, times)
    run(path, tmp_path / "out.mp4", fps=20)
    after, _, frames, _ = shown(tmp_path / "out.mp4")
    assert np.diff(after) == pytest.approx(0.05, rel=1e-6)
    levels = frames.mean(axis=(1, 2, 3))
    for time, level in zip(times, LEVELS, strict=True):
        index = round((time - 0.5) * 20)
        assert levels[index] == pytest.approx(level, abs=4), time
    assert levels[10] == pytest.approx(LEVELS[2], abs=4)  # shown on while nothing comes
    assert levels[round(0.8 * 20) + 1] != pytest.approx(LEVELS[2], abs=4)  # negative control


def test_a_picture_is_turned_upright_and_made_smaller(tmp_path: Path) -> None:
    images = [picture(20, 96, 64) for _ in range(5)]
    for image in images:
        image[:16, :16] = 250  # top left
    path = write(tmp_path / "a.mp4", "libx264", "yuv420p", images, [index / 25 for index in range(5)])
    plain = run(path, tmp_path / "plain.mp4")
    assert (plain["width"], plain["height"]) == (96, 64)
    data = path.read_bytes()
    upright = struct.pack(">9i", 0x10000, 0, 0, 0, 0x10000, 0, 0, 0, 0x40000000)
    clockwise = struct.pack(">9i", 0, 0x10000, 0, -0x10000, 0, 0, 64 << 16, 0, 0x40000000)
    place = data.index(upright, data.index(b"tkhd"))
    path.write_bytes(data[:place] + clockwise + data[place + len(upright) :])
    assert (run(path, tmp_path / "out.mp4", max_side=48)["picture"]) == [32, 48]
    frame = shown(tmp_path / "out.mp4")[2][0].mean(axis=2)
    corners = {"left": frame[:6, :6].mean(), "right": frame[:6, -6:].mean(), "below": frame[-6:, -6:].mean()}
    assert corners["right"] > 200 and corners["left"] < 60 and corners["below"] < 60


def test_pixels_become_square() -> None:
    assert room.fitted(720, 576, Fraction(16, 15), False, None) == room.Picture(768, 576)
    assert room.fitted(720, 480, Fraction(8, 9), False, None) == room.Picture(720, 540)
    assert room.fitted(720, 480, Fraction(8, 9), True, 360) == room.Picture(270, 360)
    assert room.fitted(32, 18, Fraction(1), False, 1000) == room.Picture(32, 18)  # never enlarged
    assert room.Picture(33, 17).padded == (34, 18)


def gif(path: Path, width: int, height: int) -> Path:
    """A few bytes that claim a picture of any size."""
    clip(path, "gif", "rgb8", count=3, size=(16, 16), fps=10)
    data = path.read_bytes()
    path.write_bytes(data[:6] + struct.pack("<HH", width, height) + data[10:])
    return path


def growing(path: Path) -> Path:
    """A stream that starts small and then claims more pixels than are allowed."""
    parts = [clip(path.with_name(f"{w}.h264"), "libx264", count=2, size=(w, w)) for w in (64, 3200)]
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    return path


def two_frames_far_apart(path: Path) -> Path:
    return write(path, "ffv1", "yuv420p", [picture(level, 16, 16) for level in LEVELS[:2]], [0, 1e6])


def sound(path: Path) -> Path:
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream("aac", rate=44100, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 44100
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def text(path: Path, content: str) -> Path:
    path.write_text(content)
    return path


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda d: d / "missing.mp4", "missing.mp4: No such file or directory; check the path"),
        (lambda d: d, "it is no file; name a video file"),
        (lambda d: text(d / "empty.mp4", ""), "empty.mp4: it is empty"),
        (lambda d: text(d / "words.mp4", "no video at all"), "words.mp4 as a video .*expected a file such as MP4"),
        (lambda d: gif(d / "bomb.gif", 65535, 65535), "bomb.gif as a video.*more than 9.4 million"),
        (lambda d: gif(d / "bomb.gif", 4000, 4000), "bomb.gif as a video.*more than 9.4 million pixels; .*scale"),
        (lambda d: gif(d / "wide.gif", 9000, 10), "9000x10.*8192 a side; scale it down first"),
        (lambda d: sound(d / "sound.m4a"), "sound.m4a as a video: it holds no video stream; choose another file"),
        (lambda d: growing(d / "grows.h264"), "grows.h264"),
        (lambda d: two_frames_far_apart(d / "long.mkv"), "takes 10000.. seconds, expected at most 600; cut it first"),
    ],
    ids=lambda value: value if isinstance(value, str) else "make",
)  # fmt: skip
def test_what_is_no_video_or_too_much_is_one_sentence_and_writes_nothing(
    tmp_path: Path, make: Any, sentence: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    path = make(folder)
    with pytest.raises(InputError, match=sentence) as caught:
        run(path, tmp_path / "out" / "a.mp4")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists() or list((tmp_path / "out").iterdir()) == []


def test_playlists_and_scripts_open_no_other_file(tmp_path: Path) -> None:
    clip(tmp_path / "secret.mkv")
    playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:1,\nfile:{tmp_path}/secret.mkv\n#EXT-X-ENDLIST\n"
    script = "ffconcat version 1.0\nfile secret.mkv\n"
    # Negative control: without the list of formats the script is followed.
    with av.open(str(text(tmp_path / "a.txt", script))) as container:
        assert len(list(container.decode(video=0))) == 30
    for content in (playlist, script):
        for name in ("a.mp4", "a.m3u8", "a.mkv"):
            with pytest.raises(InputError, match="as a video"):
                run(text(tmp_path / name, content), tmp_path / "out.mp4")


def test_what_a_file_does_not_claim_is_held_to_the_limits_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = clip(tmp_path / "a.h264", "libx264")  # says nothing of its length
    assert room.inspect(path).seconds is None
    monkeypatch.setattr(room, "MAX_SECONDS", 0.5)
    with pytest.raises(InputError, match="seconds, expected at most"):
        run(path, tmp_path / "out.mp4")
    monkeypatch.setattr(room, "MAX_SECONDS", 600)
    assert run(path, tmp_path / "out.mp4")["frames"] == pytest.approx(30, abs=1)
    monkeypatch.setattr(room, "MAX_FRAMES", 20)
    with pytest.raises(InputError, match="more than 20 frames"):
        run(path, tmp_path / "other.mp4")
    monkeypatch.setattr(room, "MAX_BYTES", 100)
    with pytest.raises(InputError, match="GiB, expected at most"):
        run(path, tmp_path / "other.mp4")
    assert not (tmp_path / "other.mp4").exists()


@pytest.mark.parametrize(
    ("name", "wishes", "sentence"),
    [
        ("out.avi", {}, "ending in .mp4"),
        ("a.avi/out.mp4", {}, "cannot write into .*a.avi: File exists; choose another --output"),
        ("out.mp4", {"fps": 0}, "frames per second from 1 to 240, got 0"),
        ("out.mp4", {"fps": float("nan")}, "frames per second"),
        ("out.mp4", {"max_side": 4}, "longest side of 16 to 8192 pixels, got 4"),
    ],
)
def test_wishes_that_make_no_video_are_refused(
    tmp_path: Path, name: str, wishes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        run(clip(tmp_path / "a.avi"), tmp_path / name, **wishes)


def test_memory_does_not_grow_with_the_length(tmp_path: Path) -> None:
    """400 frames of 640x480 take 370 MB as pixels; the command gets by with far less, and torch is never imported."""
    code = (
        "import resource, sys\nfrom pathlib import Path\n"
        "from flash_grpo.normalise import normalise\nfrom flash_grpo.task import reporting\n"
        "with reporting() as task:\n    normalise(Path(sys.argv[1]), Path(sys.argv[2]), task)\n"
        "assert 'torch' not in sys.modules\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)\n"
    )
    peaks = []
    for count in (20, 400):
        images = [picture(100, 640, 480)] * count
        path = write(tmp_path / f"{count}.avi", "mpeg4", "yuv420p", images, [i / 25 for i in range(count)], TICK)
        done = subprocess.run(
            [sys.executable, "-c", code, str(path), str(tmp_path / "out.mp4")],
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(done.stdout))
    print("peak memory in MB:", peaks)
    assert peaks[1] - peaks[0] < 60


def test_an_interruption_leaves_nothing_behind(tmp_path: Path) -> None:
    path = clip(tmp_path / "a.avi", count=40)

    class Impatient(Task):
        def point(self) -> None:
            super().point()
            self.points = getattr(self, "points", 0) + 1
            if self.points == 20:
                self.requests.asked = "interrupted"

    def see(event: Event) -> None:
        if isinstance(event, Progress):
            phases.append(event.phase)

    phases: list[str] = []
    with pytest.raises(Interrupted), reporting(tmp_path / "report", [see]) as task:
        task.__class__ = Impatient
        normalise(path, tmp_path / "out" / "a.mp4", task)
    assert phases[0] == "normalise"
    assert read_events(tmp_path / "report")[-1].data["status"] == "interrupted"
    assert list((tmp_path / "out").iterdir()) == []


def test_the_command(tmp_path: Path) -> None:
    path = clip(tmp_path / "a.avi")
    words = ["normalise", path, "--output", tmp_path / "o.mp4", "--max-side", 32, "--report", tmp_path / "report"]
    done = subprocess.run(
        [sys.executable, "-m", "flash_grpo.cli", *map(str, words)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{tmp_path}/o.mp4: 30 frames of 32x24 at 25 a second\n"
    assert [r.type for r in read_events(tmp_path / "report")][-1] == "finished"
