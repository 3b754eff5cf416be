"""How a run takes its folder and how it ends: requests, signals, failures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flash_grpo.checkpoint import read_pointer
from flash_grpo.errors import InputError
from flash_grpo.events import Event, Metrics, RunStarted, read_events
from flash_grpo.trainer import Interrupted
from tests.runs import QUICK, at, of_type, run, summary_of
from tests.tiny import SMALL


def test_a_run_never_writes_into_a_folder_in_use(tiny_folder: Path, tmp_path: Path) -> None:
    finished = tmp_path / "finished"
    run(tiny_folder, finished, updates=1)
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    with pytest.raises(InputError, match="holds another run; choose another with --output, or go on with that one"):
        run(tiny_folder, finished)
    assert before == {path: path.stat().st_mtime_ns for path in finished.rglob("*")}
    with pytest.raises(InputError, match="is not empty"):
        run(tiny_folder, tmp_path)


def test_a_refused_set_up_does_not_block_its_folder(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    with pytest.raises(InputError, match="reward"):
        run(tiny_folder, output, rewards={"colourfulnes": 1.0})
    summary = run(tiny_folder, output, updates=1)
    assert summary["status"] == "done"
    assert [r.type for r in read_events(output)].count("run_started") == 1


@pytest.mark.parametrize(("request_", "status"), [("stop", "interrupted"), ("pause", "paused")])
def test_a_request_file_ends_the_run_after_the_present_update(
    tiny_folder: Path, tmp_path: Path, request_: str, status: str
) -> None:
    output = tmp_path / "run"
    ask = at(Metrics, lambda: (output / "control" / request_).touch())
    with pytest.raises(Interrupted) as stop:
        run(tiny_folder, output, ask, updates=50)
    assert stop.value.status == status
    check_ended(output, status, updates=1)
    assert read_pointer(output, "latest") == output / "checkpoints" / "000001"


def check_ended(output: Path, status: str, updates: int) -> None:
    summary = summary_of(output)
    assert (summary["status"], summary["updates"]) == (status, updates)
    last = read_events(output)[-1]
    assert (last.type, last.data["status"]) == ("finished", status)
    assert last.data["message"].endswith(".")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(("moment", "updates"), [(Metrics, 1), (RunStarted, 0)], ids=["training", "set-up"])
def test_a_signal_ends_the_run_cleanly(
    tiny_folder: Path, tmp_path: Path, number: signal.Signals, moment: type[Event], updates: int
) -> None:
    output = tmp_path / "run"
    handlers = signal.getsignal(number)
    with pytest.raises(Interrupted):
        run(tiny_folder, output, at(moment, lambda: os.kill(os.getpid(), number)), updates=50)
    check_ended(output, "interrupted", updates)
    assert signal.getsignal(number) == handlers


def test_the_command_line_ends_with_130_on_sigterm(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    values = {**QUICK, **SMALL, "model": tiny_folder, "updates": 10_000}
    options = [f"--set={key}={json.dumps(value, default=str)}" for key, value in values.items()]
    command = [sys.executable, "-m", "flash_grpo.cli", "train", "--preset", "micro", "--output", str(output), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not of_type(output, "metrics") and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    process.terminate()
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130, error
    assert error.endswith(f"flash-grpo: the run was interrupted; go on with: flash-grpo resume {output}\n")
    check_ended(output, "interrupted", summary_of(output)["updates"])


@pytest.mark.parametrize(
    ("reward", "error", "sentence"),
    [
        ("tests.tiny:broken", InputError, "values are not finite; make the reward answer a finite number"),
        ("tests.tiny:crash", RuntimeError, "the judge of 3 videos has left"),
    ],
)
def test_a_broken_reward_fails_the_run_with_a_sentence(
    tiny_folder: Path, tmp_path: Path, reward: str, error: type[Exception], sentence: str
) -> None:
    output = tmp_path / "run"
    with pytest.raises(error, match=sentence):
        run(tiny_folder, output, rewards={reward: 1.0})
    summary, last = summary_of(output), read_events(output)[-1]
    assert summary["status"] == "failed" and sentence in summary["error"]
    assert last.type == "failed" and sentence in last.data["message"]
    assert (output / "log.txt").read_text(encoding="utf-8").count(" ERROR flash_grpo.") == 1


def test_a_second_run_of_the_process_writes_its_own_log(tiny_folder: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        with pytest.raises(RuntimeError):
            run(tiny_folder, tmp_path / name / "run", rewards={"tests.tiny:crash": 1.0})
    for name in ("one", "two"):
        assert (tmp_path / name / "run" / "log.txt").read_text(encoding="utf-8").count(" ERROR flash_grpo.") == 1
