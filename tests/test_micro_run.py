"""The smallest whole run, by the command a user types."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from flash_grpo.events import read_events
from flash_grpo.video import read_mp4

COMMAND = [sys.executable, "-m", "flash_grpo.cli"]
ENVIRONMENT = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE"}


@pytest.fixture(scope="module")
def micro_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str], float]:
    folder = tmp_path_factory.mktemp("micro") / "run"
    start = time.monotonic()
    done = subprocess.run(
        [*COMMAND, "train", "--preset", "micro", "--output", str(folder)],
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
    )
    return folder, done, time.monotonic() - start


def test_ends_within_a_minute_and_says_so(
    micro_run: tuple[Path, subprocess.CompletedProcess[str], float],
) -> None:
    folder, done, seconds = micro_run
    assert done.returncode == 0, done.stderr
    assert "win rate" in done.stdout.lower()
    assert seconds < 120, f"took {seconds:.0f} s; the target is 60 s on two free cores"
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "done"
    assert summary["preset"] == "micro"
    for figures in summary["heldout"].values():
        assert {"before", "after", "gain", "ci95", "win_rate"} <= figures.keys()
        low, high = figures["ci95"]
        assert low <= figures["gain"] <= high
        assert abs(figures["after"] - figures["before"] - figures["gain"]) < 1e-5


def test_leaves_videos_that_play(micro_run: tuple[Path, subprocess.CompletedProcess[str], float]) -> None:
    folder = micro_run[0]
    summary = json.loads((folder / "summary.json").read_text())
    before = sorted((folder / summary["files"]["videos_before"]).glob("*heldout*.mp4"))
    after = sorted((folder / summary["files"]["videos_after"]).glob("*heldout*.mp4"))
    assert [f.name for f in before] == [f.name for f in after] != []
    frames = read_mp4(before[0])
    assert frames.shape == (9, 256, 256, 3)
    for name in ("chart", "contact_sheet"):
        assert (folder / summary["files"][name]).stat().st_size > 10_000


def test_events_tell_the_whole_story(micro_run: tuple[Path, subprocess.CompletedProcess[str], float]) -> None:
    types = [record.type for record in read_events(micro_run[0])]
    assert types[0] == "run_started"
    assert types[-1] == "finished"
    assert types.count("metrics") == json.loads((micro_run[0] / "summary.json").read_text())["updates"]
    assert {"progress", "evaluation", "samples", "checkpoint"} <= set(types)


def test_evaluate_repeats_the_report(micro_run: tuple[Path, subprocess.CompletedProcess[str], float]) -> None:
    folder = micro_run[0]
    first = json.loads((folder / "summary.json").read_text())["heldout"]
    done = subprocess.run([*COMMAND, "evaluate", str(folder)], capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    again = json.loads((folder / "summary.json").read_text())["heldout"]
    for name, figures in first.items():
        assert again[name]["before"] == pytest.approx(figures["before"], abs=1e-4)
        assert again[name]["after"] == pytest.approx(figures["after"], abs=1e-4)
