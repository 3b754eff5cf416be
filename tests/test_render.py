"""Renderings are the evaluation's own videos where they should be, and differ where they should."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flash_grpo import cli
from flash_grpo.attempt import evaluate_run
from flash_grpo.checkpoint import save_checkpoint, write_pointers
from flash_grpo.config import dump_config
from flash_grpo.events import read_events
from flash_grpo.prompts import load_prompts
from flash_grpo.task import reporting
from flash_grpo.video import read_mp4
from tests.runs import BRIGHT, QUICK
from tests.runs import run as train_run
from tests.tiny import config_for, open_model, perturb

SEED = 0
HELD_OUT = load_prompts("pocket:heldout", 3)


SETTINGS: dict[str, Any] = {
    **QUICK,
    "updates": 1,
    "learning_rate": 0.05,
    "checks": False,
    "heldout_limit": len(HELD_OUT),
    "videos_saved": len(HELD_OUT),
    "validation_limit": 2,
    "prompts": "pocket:train",
    "validation_prompts": "pocket:validation",
    "heldout_prompts": "pocket:heldout",
    "rollout_batch": 1,  # bits depend on what is computed together
    "decode_batch": 1,
}


@pytest.fixture(scope="module")
def run(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run, evaluated again with a report."""
    folder = tmp_path_factory.mktemp("render") / "run"
    train_run(tiny_folder, folder, **SETTINGS)
    with reporting(folder.parent / "report") as task:
        evaluate_run(folder, task)
    return folder


def fully_trained(base: Path, folder: Path) -> Path:
    """A run folder whose checkpoint holds all weights, away from the base model's."""
    config = config_for(base, **{**SETTINGS, "adapter": "full"})
    model = open_model(base)
    model.train_all(keep_base=False)
    perturb(model, 0.02)
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(dump_config(config), encoding="utf-8")
    save_checkpoint(folder, 1, config, dict(model.trainable()), None)
    write_pointers(folder, 1, 1)
    return folder


def flash_grpo(*arguments: object, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["flash-grpo", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code if isinstance(stop.value.code, int) else 0


def render(run: Path, output: Path, *arguments: object, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    words = ["render", run, "--output", output, "--checkpoint", "latest", *arguments]
    assert flash_grpo(*words, monkeypatch=monkeypatch) == 0
    result: dict[str, Any] = json.loads((output / "result.json").read_text(encoding="utf-8"))
    return result


def frames(output: Path, result: dict[str, Any], side: str, seed: int = SEED) -> np.ndarray[Any, Any]:
    [path] = [v["path"] for v in result["videos"] if (v["side"], v["seed"]) == (side, seed)]
    return read_mp4(output / path)


def test_a_rendered_held_out_prompt_is_the_video_of_the_evaluation(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt, report = HELD_OUT[1], tmp_path / "report"
    words = ["--prompt", prompt.text, "--seed", 0, "--seed", 1, "--report", report]
    result = render(run, tmp_path / "out", *words, monkeypatch=monkeypatch)
    scores = {side: json.loads((run / f"videos/{n}/scores-heldout.json").read_text())["rewards"]
              for side, n in (("before", "000000"), ("after", "000001"))}  # fmt: skip
    for side, update in (("before", "000000"), ("after", "000001")):
        saved = read_mp4(run / "videos" / update / f"{prompt.id}-{SEED}.mp4")
        assert np.array_equal(frames(tmp_path / "out", result, side), saved)
        # Negative controls: another seed, another prompt.
        assert not np.array_equal(frames(tmp_path / "out", result, side, seed=1), saved)
        assert not np.array_equal(read_mp4(run / "videos" / update / f"{HELD_OUT[0].id}-{SEED}.mp4"), saved)
        [video] = [v for v in result["videos"] if (v["side"], v["seed"]) == (side, SEED)]
        assert video["scores"] == {name: pytest.approx(values[1], abs=1e-6) for name, values in scores[side].items()}
    assert [v["path"] for v in result["videos"]] == [
        f"{side}/prompt-000-{seed}.mp4" for side in ("before", "after") for seed in (0, 1)
    ]
    assert [v["checkpoint"] for v in result["videos"]] == [None, None, 1, 1]
    told = json.loads((run / "videos/000001/scores-heldout.json").read_text())["noise"]
    noise = [v["noise"] for v in result["videos"]]
    assert noise == [told[1], noise[1]] * 2 and noise[1] not in told
    assert (result["steps"], result["width"], result["frames"]) == (3, 32, 5)
    assert json.loads((report / "result.json").read_text()) == result
    told = [record for record in read_events(report) if record.type == "progress"]
    assert (told[-1].data["update"], told[-1].data["updates"]) == (4, 4)
    assert read_events(report)[-1].data["status"] == "done"
    assert "prompt-000-1.mp4" in capsys.readouterr().out


def test_the_evaluation_reported_videos_and_the_comparison(run: Path) -> None:
    report = run.parent / "report"
    told = [r.data for r in read_events(report) if r.type == "progress" and r.data["phase"] == "evaluate"]
    assert (told[0]["update"], told[-1]["update"], told[-1]["updates"]) == (0, 6, 6)
    result = json.loads((report / "result.json").read_text())
    assert result["heldout"] == json.loads((run / "summary.json").read_text())["heldout"]
    assert result["heldout"][BRIGHT]["gain"] != 0 and (result["update"], result["videos"]) == (1, 6)


@pytest.mark.parametrize("command", ["evaluate", "render"])
def test_a_signal_ends_real_work_and_leaves_what_was(command: str, run: Path, tmp_path: Path) -> None:
    summary, report, output = (run / "summary.json").read_bytes(), tmp_path / "report", tmp_path / "out"
    words = {
        "evaluate": [str(run), "--report", str(report)],
        "render": [str(run), "--checkpoint", "latest", "--output", str(output), "--report", str(report),
                   *(word for index in range(60) for word in ("--prompt", f"a red circle {index}"))],
    }[command]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "flash_grpo.cli", command, *words], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not any(r.data.get("phase") == command for r in read_events(report)) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 130, error
    assert error.endswith("flash-grpo: interrupted\n")
    assert read_events(report)[-1].data["status"] == "interrupted"
    assert not (report / "result.json").exists() and (run / "summary.json").read_bytes() == summary
    assert not (output / "result.json").exists()
    assert not [path for folder in (run, output) if folder.exists() for path in folder.rglob(".*")]
    for file in output.rglob("*.mp4"):
        assert len(read_mp4(file)) == 5


def test_strength_goes_from_the_base_model_to_the_checkpoint(
    run: Path, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = fully_trained(tiny_folder, tmp_path / "whole")
    for kind, folder in (("lora", run), ("full", whole)):
        at: dict[float, np.ndarray[Any, Any]] = {}
        for strength in (0.0, 0.5, 1.0):
            output = tmp_path / kind / str(strength)
            words = ["--prompt", "a small red circle", "--strength", strength, "--no-scores"]
            result = render(folder, output, *words, monkeypatch=monkeypatch)
            assert "scores" not in result["videos"][0]
            before, at[strength] = (frames(output, result, side) for side in ("before", "after"))
        assert np.array_equal(at[0.0], before)
        assert not np.array_equal(at[1.0], before)  # negative controls
        assert not np.array_equal(at[0.5], before) and not np.array_equal(at[0.5], at[1.0])


def test_the_same_noise_starts_both_sides_and_every_list_of_prompts(
    run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "mine.txt"
    file.write_text(f"a green cross\n{HELD_OUT[2].text}\n")
    words = ["--prompts", file, "--side", "before", "--no-scores"]
    result = render(run, tmp_path / "a", *words, monkeypatch=monkeypatch)
    assert result["checkpoint"] is None
    alone = render(run, tmp_path / "b", "--prompt", "a green cross", "--no-scores", monkeypatch=monkeypatch)
    listed = read_mp4(tmp_path / "a" / "before" / "mine-000000-0.mp4")
    assert np.array_equal(listed, frames(tmp_path / "b", alone, "before"))
    heldout = read_mp4(tmp_path / "a" / "before" / "mine-000001-0.mp4")
    assert np.array_equal(heldout, read_mp4(run / "videos" / "000000" / f"{HELD_OUT[2].id}-0.mp4"))
    assert not np.array_equal(heldout, listed)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--prompt x --strength 5", "expected a strength from 0 (the base model) to 4, got 5"),
        ("--prompt x --strength nan", "expected a strength"),
        ("--prompt x --seed -1", "expected seeds from 0"),
        ("--prompt x --side befor", "did you mean 'before'"),
        ("--prompt x --checkpoint 30", "no checkpoint of update 30; choose one of 1"),
        ("", "expected at least one prompt, got none"),
        ("--prompts nowhere.txt", "the prompt file nowhere.txt does not exist"),
    ],
)
def test_what_cannot_be_rendered_is_one_sentence(
    run: Path, arguments: str, sentence: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    words = ["render", run, "--output", tmp_path / "out", *arguments.split(), "--report", tmp_path / "report"]
    assert flash_grpo(*words, monkeypatch=monkeypatch) == 2
    error = capsys.readouterr().err
    assert sentence in error and error.count("\n") == 1
    assert "Traceback" not in error
    assert sentence in read_events(tmp_path / "report")[-1].data["message"]
    assert not (tmp_path / "out").exists()
