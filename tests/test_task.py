"""Tasks: what a process that is no training reports, however it ends."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flash_grpo.control import Interrupted
from flash_grpo.errors import InputError
from flash_grpo.events import Event, Progress, read_events
from flash_grpo.task import reporting

WORK = """
import sys, time
from pathlib import Path
from flash_grpo.commands.base import working
from flash_grpo.cli import app, main

@app.command()
def dawdle(report: Path, at_once: bool = False):
    with working(report) as task:
        task.result = {"files": ["a.mp4"]}
        task.progress("dawdle", 0, 10)
        if at_once:
            with task.at_once():
                for _ in range(2):
                    try:
                        time.sleep(60)
                    except Exception:  # as libraries do
                        pass
        for done in range(600):
            time.sleep(0.1)
            task.progress("dawdle", 1, 10)

main()
"""


def types(folder: Path) -> list[str]:
    return [record.type for record in read_events(folder)]


def test_a_task_that_is_done_says_so_after_its_result_is_there(tmp_path: Path) -> None:
    there = []

    def look(event: Event) -> None:
        there.append((event.type, (tmp_path / "result.json").exists()))

    with reporting(tmp_path, [look]) as task:
        task.progress("render", 0, 2)
        task.warn("The prompt is long.", "cut_prompts")
        task.progress("render", 2, 2)
        task.result = {"files": [{"path": "Bär.mp4"}], "seconds": 1.5}
    assert there == [("progress", False), ("warning", False), ("progress", False), ("finished", True)]
    assert json.loads((tmp_path / "result.json").read_text()) == {"files": [{"path": "Bär.mp4"}], "seconds": 1.5}
    first, _, last, end = read_events(tmp_path)
    assert (first.data["phase"], first.data["update"], first.data["updates"]) == ("render", 0, 2)
    assert first.data["eta_seconds"] is None and last.data["eta_seconds"] == last.data["eta_high_seconds"] == 0
    assert end.data["status"] == "done"


@pytest.mark.parametrize("error", [InputError("no such video a.mp4; check the path"), RuntimeError("first\nsecond")])
def test_a_task_that_fails_says_its_sentence_and_leaves_no_result(tmp_path: Path, error: Exception) -> None:
    (tmp_path / "result.json").write_text("{}")  # of an earlier attempt
    with pytest.raises(type(error)), reporting(tmp_path) as task:
        task.result = {"files": []}
        raise error
    assert not (tmp_path / "result.json").exists()
    [last] = read_events(tmp_path)
    assert (last.type, last.data["message"]) == ("failed", str(error).splitlines()[0])


def test_a_full_disk_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the disk takes no more: .*; free some space"), reporting(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert read_events(tmp_path)[-1].data["message"].startswith("the disk takes no more")


def test_attempts_at_one_task_share_a_log_and_are_told_apart(tmp_path: Path) -> None:
    for _ in range(2):
        with reporting(tmp_path) as task:
            task.progress("score", 1, 1)
    assert [(record.seq, record.attempt) for record in read_events(tmp_path)] == [(1, 1), (2, 1), (3, 2), (4, 2)]


def test_progress_is_told_sparingly_but_at_both_ends(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def note(event: Event) -> None:
        if isinstance(event, Progress):
            seen.append((event.phase, event.update))

    with reporting(None, [note]) as task:
        for done in range(1001):
            task.progress("download", done, 1000)
        task.progress("verify", 0, 1)
    assert seen[0] == ("download", 0) and seen[-2:] == [("download", 1000), ("verify", 0)]
    assert len(seen) < 50
    assert list(tmp_path.iterdir()) == []


def test_a_file_asks_for_the_end_and_an_old_one_does_not(tmp_path: Path) -> None:
    (tmp_path / "control").mkdir()
    (tmp_path / "control" / "stop").touch()  # meant for an attempt that is no more
    with pytest.raises(Interrupted), reporting(tmp_path) as task:
        task.progress("render", 0, 2)
        (tmp_path / "control" / "stop").touch()
        time.sleep(1.1)
        task.progress("render", 1, 2)
    assert types(tmp_path) == ["progress", "finished"]
    assert read_events(tmp_path)[-1].data["status"] == "interrupted"
    assert not (tmp_path / "result.json").exists()


def test_an_interruption_that_a_library_made_its_own_error_still_is_one(tmp_path: Path) -> None:
    with pytest.raises(Interrupted), reporting(tmp_path):
        try:
            raise Interrupted("interrupted")
        except Interrupted as stop:
            raise ImportError("cannot import torch") from stop
    assert types(tmp_path) == ["finished"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_signal_ends_a_command_cleanly_with_130(tmp_path: Path, number: signal.Signals, at_once: bool) -> None:
    script = tmp_path / "work.py"
    script.write_text(WORK)
    report = tmp_path / "report"
    words = ["dawdle", str(report), *(["--at-once"] if at_once else [])]
    process = subprocess.Popen([sys.executable, script, *words], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not types(report) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, number)
    _, error = process.communicate(timeout=20)
    assert (process.returncode, error) == (130, "flash-grpo: interrupted\n")
    assert read_events(report)[-1].data == {"status": "interrupted", "message": "Stopped as asked."}
    assert [file.name for file in report.iterdir()] == ["events.jsonl"]


def test_a_folder_that_cannot_hold_a_report_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("a file")
    with (
        pytest.raises(InputError, match="cannot report into .*; choose another --report"),
        reporting(tmp_path / "report"),
    ):
        pass


def test_rooms_that_need_no_torch_import_none() -> None:
    code = "import sys, flash_grpo.task; assert not {'torch', 'numpy', 'av'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import sys, flash_grpo.normalise, flash_grpo.download; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
