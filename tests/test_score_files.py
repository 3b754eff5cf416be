"""Scores of files are the scores of their pixels, whatever the file, and a bad file is named."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from flash_grpo import cli, score_files
from flash_grpo.events import read_events
from flash_grpo.rewards.base import VideoBatch
from flash_grpo.rewards.scoring import RewardSet
from flash_grpo.video import read_mp4, write_mp4
from tests.runs import BRIGHT

RELATIVE = "tests.test_score_files:relative"


def relative(videos: VideoBatch) -> torch.Tensor:
    """A reward that compares: brightness above the group's mean."""
    values = videos.frames.mean(dim=(1, 2, 3, 4))
    return values - values.mean()


relative.groupwise = True  # type: ignore[attr-defined]


def clip(path: Path, level: int, frames: int = 5, size: int = 64, fps: float = 8) -> Path:
    video = np.full((frames, size, size, 3), level, np.uint8)
    for index in range(frames):
        video[index, 8:24, 4 * index : 4 * index + 16] = (255, 60, 0)
    write_mp4(path, video, fps)
    return path


def flash_grpo(*arguments: object, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["flash-grpo", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code if isinstance(stop.value.code, int) else 0


def scored(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    videos: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["videos"]
    return videos


def test_the_scores_of_files_are_those_of_their_pixels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [clip(tmp_path / "a.mp4", 40), clip(tmp_path / "b.mp4", 90, frames=9, size=32, fps=12)]
    names = ["colorfulness", BRIGHT, "dynamic_degree"]
    words = [word for name in names for word in ("--reward", f"{name}=0.5")]
    report = tmp_path / "report"
    assert flash_grpo("score", *files, *words, "--json", "--report", report, monkeypatch=monkeypatch) == 0
    videos = scored(capsys)
    for file, video, fps in zip(files, videos, (8, 12), strict=True):
        pixels = torch.from_numpy(read_mp4(file)).permute(0, 3, 1, 2).float() / 255
        batch = VideoBatch(pixels[None], [""], [{}], fps)
        expected = RewardSet(dict.fromkeys(names, 1.0)).score(batch, 1)
        assert video["scores"] == {name: pytest.approx(float(values)) for name, values in expected.items()}
        assert (video["fps"], video["frames"], video["width"]) == (fps, len(pixels), pixels.shape[3])
    assert videos[0]["scores"] != videos[1]["scores"]  # negative control
    assert json.loads((report / "result.json").read_text())["videos"] == videos
    last = [record.data for record in read_events(report) if record.type == "progress"][-1]
    assert (last["phase"], last["update"], last["updates"]) == ("score", 2, 2)


def test_a_reward_that_compares_sees_the_videos_of_one_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [clip(tmp_path / f"{level}.mp4", level) for level in (40, 200, 60, 80)]
    mapping = tmp_path / "prompts.csv"
    mapping.write_text(f'file,prompt\n40.mp4,"one, dark"\n{files[1]},two\n60.mp4,"one, dark"\n80.mp4,two\n')
    words = [*files, "--reward", RELATIVE, "--reward", BRIGHT, "--json"]
    assert flash_grpo("score", *words, "--prompts", mapping, monkeypatch=monkeypatch) == 0
    first, second, third, fourth = (video["scores"] for video in scored(capsys))
    assert first[RELATIVE] == pytest.approx((first[BRIGHT] - third[BRIGHT]) / 2, abs=1e-5)
    assert second[RELATIVE] == pytest.approx((second[BRIGHT] - fourth[BRIGHT]) / 2, abs=1e-5)
    # Negative control: all of one prompt.
    assert flash_grpo("score", *words, "--prompt", "one", monkeypatch=monkeypatch) == 0
    together = [video["scores"][RELATIVE] for video in scored(capsys)]
    assert sum(together) == pytest.approx(0, abs=1e-5) and together[0] != pytest.approx(first[RELATIVE], abs=1e-3)
    other = clip(tmp_path / "long.mp4", 40, frames=9)
    assert flash_grpo("score", files[0], other, "--reward", RELATIVE, monkeypatch=monkeypatch) == 2
    assert "needs them alike, got 5 frames of 64x64 at 8 a second" in capsys.readouterr().err


def test_a_json_file_gives_prompts_and_json_gives_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, mapping = clip(tmp_path / "a.mp4", 40), tmp_path / "prompts.json"
    mapping.write_text(json.dumps({"a.mp4": "a red square"}))
    words = ["score", file, "--prompts", mapping, "--reward", "dynamic_degree"]
    assert flash_grpo(*words, "--json", monkeypatch=monkeypatch) == 0
    [plain] = scored(capsys)
    assert plain["prompt"] == "a red square"
    assert flash_grpo(*words, "--options", '{"dynamic_degree": {"no_such": 1}}', monkeypatch=monkeypatch) == 2
    assert "no_such" in capsys.readouterr().err
    assert flash_grpo(*words, monkeypatch=monkeypatch) == 0
    table = capsys.readouterr().out
    assert "a red square" in table and f"{plain['scores']['dynamic_degree']:.4f}" in table


BAD = {"empty.mp4": b"", "words.mp4": b"no video at all", "half.mp4": b"half"}


@pytest.mark.parametrize("name", [*BAD, "missing.mp4"])
def test_a_bad_file_is_named_and_others_go_on_if_asked(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = clip(tmp_path / "good.mp4", 40), tmp_path / name
    if name in BAD:
        content = good.read_bytes() if name == "half.mp4" else BAD[name]
        bad.write_bytes(content[: len(content) * 2 // 3] if name == "half.mp4" else content)
    words = ["score", bad, good, "--reward", BRIGHT, "--json"]
    assert flash_grpo(*words, monkeypatch=monkeypatch) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and str(bad) in captured.err and captured.err.count("\n") == 1
    report = tmp_path / "report"
    assert flash_grpo(*words, "--keep-going", "--report", report, monkeypatch=monkeypatch) == 0
    captured = capsys.readouterr()
    first, second = json.loads(captured.out)["videos"]
    assert str(bad) in first["error"] and "scores" not in first and "scores" in second
    assert f"warning: {first['error']}" in captured.err
    assert [r.data["code"] for r in read_events(report) if r.type == "warning"] == ["unreadable_video"]
    assert flash_grpo("score", bad, "--reward", BRIGHT, "--keep-going", monkeypatch=monkeypatch) == 2
    assert "none of 1 videos can be scored" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--reward", "colourfulness"], "did you mean 'colorfulness'"),
        (["--reward", ""], "expected at least one reward by name"),
        (["--reward", BRIGHT, "--options", "{"], "the options are not valid JSON"),
        (["--reward", BRIGHT, "--options", "[1]"], "expected options as JSON of the form"),
        (["--reward", BRIGHT, "--prompts", "no.json"], "cannot read the prompts no.json"),
        (["--reward", BRIGHT, "--prompts", "p.txt"], "expected prompts as a .json or .csv file"),
        (["--reward", BRIGHT, "--prompts", "p.csv"], "expected the columns file and prompt in p.csv"),
        (["--reward", BRIGHT, "--prompts", "p.json"], "p.json names no prompt for a.mp4"),
        (["--reward", BRIGHT, "--prompts", "p.json", "--prompt", "x"], "got both"),
    ],
)
def test_wrong_wishes_are_one_sentence(
    words: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    clip(tmp_path / "a.mp4", 40)
    for name, content in {"p.txt": "x", "p.csv": "name,prompt\na,b\n", "p.json": '{"b.mp4": "x"}'}.items():
        (tmp_path / name).write_text(content)
    assert flash_grpo("score", "a.mp4", *words, monkeypatch=monkeypatch) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1


def test_a_video_too_large_for_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(score_files, "MAX_MEMORY", 2 * 64 * 64 * 3 * 4)
    assert flash_grpo("score", clip(tmp_path / "a.mp4", 4), "--reward", BRIGHT, monkeypatch=monkeypatch) == 2
    assert "GiB as pixels; cut it or scale it down first" in capsys.readouterr().err
    assert flash_grpo("score", clip(tmp_path / "b.mp4", 4, 2), "--reward", BRIGHT, monkeypatch=monkeypatch) == 0
