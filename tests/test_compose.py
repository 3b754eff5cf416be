"""Compositions show the right video on the right side at the right time, with its words, whatever the files are."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from flash_grpo.cli import app
from flash_grpo.compose import Style, compose
from flash_grpo.errors import InputError
from flash_grpo.events import read_events
from flash_grpo.lettering import font_for, one_line, wrapped
from flash_grpo.pairs import Pair, pairs_of
from flash_grpo.sheet import write_sheet
from flash_grpo.task import reporting
from flash_grpo.video import Frames, write_mp4
from tests.test_normalise import shown, sound, write
from tests.test_video import boxes

RED, BLUE = (200, 40, 40), (40, 40, 200)
STEP = 12
"""Levels of the green channel between frames: by it a frame tells its number."""


def numbered(color: tuple[int, int, int], frames: int = 9, width: int = 64, height: int = 48) -> Frames:
    """A plain video whose frames tell their number."""
    video = np.empty((frames, height, width, 3), np.uint8)
    video[:] = color
    video[..., 1] = 40 + STEP * np.arange(frames)[:, None, None]
    return video


def clip(path: Path, color: tuple[int, int, int], fps: float = 8, **shape: int) -> Path:
    write_mp4(path, numbered(color, **shape), fps)
    return path


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(clip(tmp_path / "left.mp4", RED), clip(tmp_path / "right.mp4", BLUE), "a red and a blue one")


def composed(pairs: Pair | Sequence[Pair], output: Path, **style: Any) -> dict[str, Any]:
    with reporting() as task:
        compose([pairs] if isinstance(pairs, Pair) else pairs, output, task, Style(**{"width": 240, **style}))
    return task.result


def pictures(path: Path) -> list[np.ndarray[Any, np.dtype[np.int64]]]:
    if path.suffix == ".mp4":
        return list(shown(path)[2].astype(int))
    with Image.open(path) as image:
        found = []
        for number in range(image.n_frames):
            image.seek(number)
            found.append(np.asarray(image.convert("RGB")).astype(int))
        return found


def areas(picture: np.ndarray[Any, Any], least: int = 20) -> tuple[Any, Any]:
    """Where it is red and where blue, and the green in it: (left, right, top, bottom, green). Words do not count."""
    red, blue = picture[..., 0], picture[..., 2]
    found = []
    for inside in ((red > 150) & (blue < 110), (blue > 150) & (red < 90)):
        inside = inside & (inside.sum(axis=1) > least)[:, None]
        rows, columns = np.nonzero(inside)
        found.append((columns.min(), columns.max(), rows.min(), rows.max(), np.median(picture[inside][:, 1])))
    return found[0], found[1]


def numbers(picture: np.ndarray[Any, Any]) -> tuple[int, int]:
    """The frames' numbers that are shown left and right; fails if the sides are swapped."""
    red, blue = areas(picture)
    assert red[1] < blue[0], f"the red video is not left of the blue one: {red}, {blue}"
    return round((red[4] - 40) / STEP), round((blue[4] - 40) / STEP)


@pytest.mark.parametrize("ending", [".mp4", ".gif", ".webp"])
def test_every_frame_shows_the_left_video_left_and_the_right_one_right(pair: Pair, tmp_path: Path, ending: str) -> None:
    result = composed(pair, tmp_path / f"both{ending}")
    frames = pictures(tmp_path / f"both{ending}")
    assert [numbers(frame) for frame in frames] == [(number, number) for number in range(9)]
    assert (result["frames"], result["fps"], result["cut"]) == (9, 8.0, False)
    assert frames[0].shape == (result["height"], result["width"], 3)
    red, blue = areas(frames[4])
    assert red[1] - red[0] == pytest.approx(blue[1] - blue[0], abs=2) and red[2:4] == pytest.approx(blue[2:4], abs=1)
    assert (red[1] - red[0]) / (red[3] - red[2]) == pytest.approx(64 / 48, rel=0.02)
    # Negative control: the check itself sees swapped sides.
    composed(Pair(pair.right, pair.left), tmp_path / f"swapped{ending}")
    with pytest.raises(AssertionError, match="not left of"):
        numbers(pictures(tmp_path / f"swapped{ending}")[0])


def test_an_mp4_is_one_that_players_seek_in_and_the_same_every_time(pair: Pair, tmp_path: Path) -> None:
    for name in ("a.mp4", "b.mp4"):
        composed(pair, tmp_path / name, width=301)
    assert (tmp_path / "a.mp4").read_bytes() == (tmp_path / "b.mp4").read_bytes()
    times, keys, images, facts = shown(tmp_path / "a.mp4")
    assert (facts["codec"], facts["pixels"], facts["streams"]) == ("h264", "yuv420p", 1)
    assert np.diff(times) == pytest.approx(1 / 8) and max(np.diff(keys)) <= 4
    assert images.shape[2] == pytest.approx(301, abs=3) and images.shape[1] % 2 == images.shape[2] % 2 == 0
    order = boxes(tmp_path / "a.mp4")
    assert order.index("moov") < order.index("mdat")
    assert b"red and a blue" not in (tmp_path / "a.mp4").read_bytes()


@pytest.mark.parametrize("ending", [".gif", ".webp"])
def test_an_animation_repeats_and_keeps_the_time(tmp_path: Path, ending: str) -> None:
    two = Pair(clip(tmp_path / "l.mp4", RED, fps=24), clip(tmp_path / "r.mp4", BLUE, fps=24))
    composed(two, tmp_path / f"a{ending}")
    with Image.open(tmp_path / f"a{ending}") as image:
        assert image.info["loop"] == 0
        total = 0
        for number in range(image.n_frames):
            image.seek(number)
            image.load()
            total += image.info["duration"]
    assert total == pytest.approx(9000 / 24, abs=10)


def test_labels_and_caption_are_there(pair: Pair, tmp_path: Path) -> None:
    def still(caption: str = "", **style: Any) -> np.ndarray[Any, Any]:
        composed(Pair(pair.left, pair.right, caption), tmp_path / "x.webp", **style)
        return pictures(tmp_path / "x.webp")[0]

    plain = still(labels=("", ""))
    first, second = still(labels=("Base", "")), still(labels=("", "Aligned"))
    top = areas(plain)[0][2]
    for labelled, left in ((first, True), (second, False)):
        rows, columns = np.nonzero(np.abs(labelled - plain).max(axis=2) > 60)
        assert len(rows) > 20 and rows.max() < top, "a label is missing or runs into the video"
        middle = areas(plain)[1][0]
        assert (columns.max() < middle) if left else (columns.min() >= middle - 4)
    captioned = still("the prompt, <b>as text</b> & nothing else", labels=("", ""))
    assert captioned.shape[0] > plain.shape[0]
    assert (captioned[plain.shape[0] - 8 :] < 160).any(), "the caption is not drawn"
    long = still("word " * 400, labels=("", ""))
    assert captioned.shape[0] <= long.shape[0] < captioned.shape[0] + 60
    assert (long[:, -14:] > 250).all(), "the caption runs off the edge"


def test_scores_stand_under_the_caption(pair: Pair, tmp_path: Path) -> None:
    composed(pair, tmp_path / "a.webp")
    scored = Pair(pair.left, pair.right, pair.caption, {"subject_size": (0.25, 0.75)})
    composed(scored, tmp_path / "b.webp")
    one, other = (pictures(tmp_path / name)[0] for name in ("a.webp", "b.webp"))
    assert other.shape[0] > one.shape[0]


def test_letters_of_other_alphabets_are_drawn() -> None:
    """A letter that a font lacks is drawn as a box, the same for all."""

    def drawn(text: str) -> bytes:
        image = font_for(text, 24).getmask(text)
        return bytes(image)

    assert drawn("ж") != drawn("ß") and drawn("ж")
    if drawn("\uffff") == drawn("青"):
        pytest.skip("no font of this machine has Chinese letters")
    assert drawn("青") != drawn("猫")
    assert font_for("a plain text", 13).path == font_for("mit ß und Ж", 13).path, "the same font on every machine"


def test_lines_fit_and_hold_all_there_is_room_for() -> None:
    font = font_for("", 13)
    for text in ("one two three " * 30, "x" * 500, "日本語" * 50, "a", ""):
        lines = wrapped(text, 120, 3, font)
        assert len(lines) <= 3 and all(font.getlength(line) <= 120 for line in lines)
        assert text.replace(" ", "").startswith("".join(lines).replace(" ", "").replace("…", ""))
    assert wrapped("one two three " * 30, 120, 2, font)[-1].endswith("…")
    assert wrapped("one two", 120, 2, font) == ["one two"]
    assert one_line("a\nb\u202ec\td\x1b[0m") == "a b c d [0m"


def test_a_wipe_moves_over_both_and_comes_back(pair: Pair, tmp_path: Path) -> None:
    two = Pair(pair.left, pair.right)
    composed(two, tmp_path / "wipe.mp4", layout="wipe", labels=("", ""), width=416)
    frames = pictures(tmp_path / "wipe.mp4")
    edges = []
    for number, frame in enumerate(frames):
        red, blue = areas(frame, least=3)
        assert red[1] < blue[0] <= red[1] + 9, "there is more than a line between both"
        assert [round((area[4] - 40) / STEP) for area in (red, blue)] == [number, number]
        edges.append(red[1])
    assert max(edges) - min(edges) > 0.7 * 384 and len(set(edges)) > 5
    left, right = areas(frames[0], least=3)
    assert right[1] - left[0] == pytest.approx(384, abs=4), "a wipe is as wide as one video"


def test_several_pairs_share_one_picture(tmp_path: Path) -> None:
    two = clip(tmp_path / "l.mp4", RED), clip(tmp_path / "r.mp4", BLUE)
    pairs = [Pair(*two, "first"), Pair(*two, "second"), Pair(*two, "third")]
    composed(pairs, tmp_path / "grid.webp")
    picture = pictures(tmp_path / "grid.webp")[0]
    red = ((picture[..., 0] > 150) & (picture[..., 2] < 110)).astype(int)
    assert sorted({int((np.diff(row) == 1).sum()) for row in red}) == [0, 1, 2], "two pairs in the first row"
    assert max(int((np.diff(column) == 1).sum()) for column in red.T) == 2, "and one in the second"


# videos that do not match --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "right"), [(9, 5), (4, 9), (1, 9), (1, 1)])
def test_the_shorter_video_ends_both_with_a_notice(tmp_path: Path, left: int, right: int) -> None:
    two = Pair(clip(tmp_path / "l.mp4", RED, frames=left), clip(tmp_path / "r.mp4", BLUE, frames=right))
    with reporting(tmp_path / "report") as task:
        compose([two], tmp_path / "a.mp4", task)
    frames = pictures(tmp_path / "a.mp4")
    assert [numbers(frame) for frame in frames] == [(number, number) for number in range(min(left, right))]
    warnings = [record.data for record in read_events(tmp_path / "report") if record.type == "warning"]
    if left == right:
        assert warnings == [] and task.result["cut"] is False
    else:
        longer, shorter = ("l.mp4", "r.mp4") if left > right else ("r.mp4", "l.mp4")
        assert [warning["code"] for warning in warnings] == ["unequal_lengths"]
        assert f"{longer} is longer than {shorter}" in warnings[0]["message"]


@pytest.mark.parametrize(("left", "right", "fps"), [(8, 16, None), (16, 8, None), (8, 12, 24), (12, 12, 4)])
def test_other_rates_are_met_by_time(tmp_path: Path, left: int, right: int, fps: float | None) -> None:
    """One second of each: what is shown at a time is what each video shows then."""
    two = Pair(clip(tmp_path / "l.mp4", RED, left, frames=left), clip(tmp_path / "r.mp4", BLUE, right, frames=right))
    result = composed(two, tmp_path / "a.mp4", fps=fps)
    rate = fps or max(left, right)
    assert (result["fps"], result["frames"], result["cut"]) == (rate, rate, False)
    found = [tuple(round((area[4] - 40) / STEP) for area in areas(frame)) for frame in pictures(tmp_path / "a.mp4")]
    assert found == [(int(n * left / rate + 1e-6), int(n * right / rate + 1e-6)) for n in range(int(rate))]


def test_a_variable_rate_is_met_by_time(tmp_path: Path) -> None:
    times = (0.0, 0.1, 0.7, 0.75, 1.5)
    left = write(tmp_path / "l.mkv", "ffv1", "yuv420p", list(numbered(RED, 5)), times)
    right = clip(tmp_path / "r.mp4", BLUE, 20, frames=17)
    composed(Pair(left, right), tmp_path / "a.mp4", fps=20)
    found = [numbers(frame)[0] for frame in pictures(tmp_path / "a.mp4")]
    assert found == [sum(time <= n / 20 + 1e-6 for time in times) - 1 for n in range(17)]


def test_other_sizes_are_letterboxed_and_odd_ones_work(tmp_path: Path) -> None:
    left = write(tmp_path / "l.mkv", "ffv1", "yuv444p", list(numbered(RED, 3, 33, 61)), (0, 0.125, 0.25))
    composed(Pair(left, clip(tmp_path / "r.mp4", BLUE, frames=3, width=96, height=40)), tmp_path / "a.mp4")
    red, blue = areas(pictures(tmp_path / "a.mp4")[0])
    for area, shape in ((red, 33 / 61), (blue, 96 / 40)):
        assert (area[1] - area[0]) / (area[3] - area[2]) == pytest.approx(shape, rel=0.1), "a video is distorted"
    assert (red[2] + red[3]) / 2 == pytest.approx((blue[2] + blue[3]) / 2, abs=3), "not on one height"


def test_small_pictures_are_enlarged_with_their_pixels(tmp_path: Path) -> None:
    video = np.zeros((2, 32, 32, 3), np.uint8)
    video[:, ::2] = 255
    images = list(video)
    two = [write(tmp_path / f"{name}.mkv", "ffv1", "bgr0", images, (0, 0.125)) for name in ("l", "r")]
    composed(Pair(*two), tmp_path / "a.gif", labels=("", ""), width=None)
    column = pictures(tmp_path / "a.gif")[0][:, 40, 0]
    inside = column[np.argmax(column < 128) :][: 8 * 30]
    assert set(np.unique(inside)) <= {*range(0, 9), *range(247, 256)}, "edges between pixels are blurred"
    runs = [len(list(group)) for _, group in itertools.groupby(inside > 128)]
    assert set(runs[1:-1]) == {8}


def test_a_long_video_becomes_a_bounded_animation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flash_grpo.compose.ANIMATION_FRAMES", 5)
    monkeypatch.setattr("flash_grpo.compose.ANIMATION_PIXELS", 5 * 300 * 150)
    two = Pair(clip(tmp_path / "l.mp4", RED, fps=60), clip(tmp_path / "r.mp4", BLUE, fps=60))
    with reporting(tmp_path / "report") as task:
        compose([two], tmp_path / "a.webp", task)
    assert (task.result["frames"], task.result["fps"], task.result["cut"]) == (3, 20.0, False), "every third frame"
    two = Pair(clip(tmp_path / "l.mp4", RED), clip(tmp_path / "r.mp4", BLUE))
    with reporting(tmp_path / "report") as task:
        compose([two], tmp_path / "a.webp", task)
    assert (task.result["frames"], task.result["cut"]) == (5, True)
    assert task.result["width"] * task.result["height"] <= 300 * 150
    assert (
        "write an .mp4 for all of it"
        in [r for r in read_events(tmp_path / "report") if r.type == "warning"][-1].data["message"]
    )


def test_an_animation_keeps_to_its_bytes(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (4, 128, 128, 3), np.uint8)
    for name in ("l.mp4", "r.mp4"):
        write_mp4(tmp_path / name, noise, 8)
    two = Pair(tmp_path / "l.mp4", tmp_path / "r.mp4", "noise")
    free = composed(two, tmp_path / "a.webp")["size"]
    assert composed(two, tmp_path / "a.webp", most_bytes=free // 2)["size"] <= free // 2
    with pytest.raises(InputError, match=r"do not fit into 0.0005 MB as a webp; write an .mp4"):
        composed(two, tmp_path / "b.webp", most_bytes=500)
    assert not (tmp_path / "b.webp").exists()


# bad input -----------------------------------------------------------------------------------------------------------


def broken(kind: str, folder: Path) -> Path:
    path = folder / "broken.mp4"
    whole = clip(folder / "whole.mp4", RED, frames=40).read_bytes()
    if kind == "empty":
        path.touch()
    elif kind == "text":
        path.write_text("<script>alert(1)</script>")
    elif kind == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    elif kind == "no frame":
        with av.open(str(path), "w") as container:
            stream: Any = container.add_stream("libx264", rate=8)
            stream.width = stream.height = 32
            frame = av.VideoFrame(32, 32, "yuv420p")
            frame.pts, frame.time_base = 0, Fraction(1, 8)
            stream.encode(frame)  # and nothing of it reaches the file
    elif kind == "no video":
        sound(path)
    return path


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["missing", "empty", "text", "truncated", "no frame", "no video"])
def test_what_is_no_video_is_one_sentence_and_leaves_nothing(tmp_path: Path, kind: str, side: str) -> None:
    bad, good = broken(kind, tmp_path), clip(tmp_path / "good.mp4", BLUE)
    two = (bad, good) if side == "left" else (good, bad)
    with pytest.raises(InputError, match=r"cannot (read|decode).*broken\.mp4") as caught:
        composed(Pair(*two), tmp_path / "out" / "a.mp4")
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"cannot (read|decode).*broken\.mp4"), reporting() as task:
        write_sheet([Pair(*two)], tmp_path / "out" / "a.png", task, ("a", "b"))
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["LEFT", "RIGHT", "--output", "a.avi"], "an output ending in .mp4, .gif, .webp, got a.avi"),
        (["LEFT", "--output", "a.mp4"], "videos in pairs, left and right in turn, got 1"),
        (["LEFT", "RIGHT", "--output", "a.mp4", "--layout", "wype"], "unknown layout 'wype'; did you mean 'wipe'"),
        (["LEFT", "RIGHT", "--output", "a.mp4", "--fps", "0"], "frames per second from 1 to 120, got 0"),
        (["LEFT", "RIGHT", "--output", "a.mp4", "--fps", "nan"], "frames per second from 1 to 120, got nan"),
        (["LEFT", "RIGHT", "--output", "a.mp4", "--width", "9"], "width of 64 to 4096 pixels, got 9"),
        (["LEFT", "RIGHT", "--output", "a.mp4", "--columns", "0"], "1 to 16 columns, got 0"),
        (["LEFT", "RIGHT", "--output", "a.mp4", "--label", "x"], "two labels, for left and right, got 1"),
        (["LEFT", "RIGHT", "--output", "a.mp4", "--caption", "x", "--caption", "y"], "a caption per pair or none"),
        (["LEFT", "RIGHT", "--output", "a.mp4", "--pairs", "p.json"], "the pairs came twice"),
        (["--output", "a.mp4", "--pairs", "p.json"], "cannot read the pairs p.json"),
        (["LEFT", "RIGHT"] * 17 + ["--output", "a.mp4"], "1 to 16 pairs of videos, got 17"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    named = {"LEFT": str(pair.left), "RIGHT": str(pair.right)}
    result = CliRunner().invoke(app, ["compose", *(named.get(word, word) for word in words)])
    assert isinstance(result.exception, InputError) and sentence in str(result.exception)
    assert not (tmp_path / "a.mp4").exists()


def test_pairs_come_from_a_file_of_json(pair: Pair, tmp_path: Path) -> None:
    file, line = tmp_path / "pairs.json", {"left": str(pair.left), "right": str(pair.right), "caption": "--help"}
    file.write_text(json.dumps([{**line, "scores": {"size": [0, 1]}}]), encoding="utf-8")
    assert pairs_of([], [], file) == [Pair(pair.left, pair.right, "--help", {"size": (0.0, 1.0)})]
    for content, said in (
        ("[{}]", "0.left"),
        ("{", "is no JSON"),
        (json.dumps([{**line, "scores": {"size": [1]}}]), "0.scores.size"),
        (json.dumps([{**line, "shell": "rm"}]), "0.shell"),
    ):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(InputError, match=said):
            pairs_of([], [], file)


def test_the_commands_report(pair: Pair, tmp_path: Path) -> None:
    two, report = [str(pair.left), str(pair.right)], tmp_path / "report"
    words = ["compose", *two, "--output", str(tmp_path / "a.mp4"), "--caption", "hello", "--report", str(report)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert json.loads((report / "result.json").read_text())["frames"] == 9
    assert [record.type for record in read_events(report)][-1] == "finished"
    words = ["contact-sheet", *two, "--output", str(tmp_path / "a.png"), "--report", str(report)]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert json.loads((report / "result.json").read_text())["moments"] == 4


# contact sheets of files ---------------------------------------------------------------------------------------------


def test_a_contact_sheet_shows_the_same_moments_left_and_right(tmp_path: Path) -> None:
    pairs = [
        Pair(clip(tmp_path / "l.mp4", RED, 8, frames=10), clip(tmp_path / "r.mp4", BLUE, 16, frames=17), "first"),
        Pair(clip(tmp_path / "m.mp4", RED, frames=1), clip(tmp_path / "s.mp4", BLUE, width=48, height=96), "second"),
    ]
    with reporting() as task:
        write_sheet(pairs, tmp_path / "sheet.png", task, ("Base", "Aligned"))
    with Image.open(tmp_path / "sheet.png") as image:
        pixels = np.asarray(image.convert("RGB")).astype(int)
    middle = pixels.shape[1] // 2
    row = pixels[np.nonzero(areas(pixels)[0])[0][0] + areas(pixels)[0][2] + 20]
    cells = [row[:middle][(row[:middle, 0] > 120) & (row[:middle, 2] < 110)][:, 1]]
    cells += [row[middle:][(row[middle:, 2] > 120) & (row[middle:, 0] < 110)][:, 1]]
    left, right = ([round((level - 40) / STEP) for level, _ in itertools.groupby(cell)] for cell in cells)
    assert left == [0, 2, 5, 8] and right == [0, 5, 10, 16]
    with pytest.raises(InputError, match=r"ending in .png"), reporting() as task:
        write_sheet(pairs, tmp_path / "sheet.jpg", task, ("a", "b"))
    with pytest.raises(InputError, match="1 to 64 pairs"), reporting() as task:
        write_sheet(pairs * 40, tmp_path / "b.png", task, ("a", "b"))
