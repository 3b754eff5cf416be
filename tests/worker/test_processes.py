"""Processes are told apart, found by their tags and ended as families."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from flash_grpo_studio.worker import processes
from flash_grpo_studio.worker.processes import (
    ATTEMPT_TAG,
    JOB_TAG,
    STUDIO_TAG,
    alive,
    birth,
    eldest,
    end_politely,
    family,
    kill_all,
    tagged,
)
from tests.worker.rig import wait

SLEEP = "import time; time.sleep(60)"
FORKS = (
    "import subprocess, sys; "
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True); "
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], env={}); "
)


@pytest.fixture
def start() -> Iterator[object]:
    """Starts tagged processes, which end with the test."""
    with ExitStack() as stack:

        def begin(code: str = SLEEP, studio: str = "studio", job: str = "job") -> subprocess.Popen[bytes]:
            tags = {JOB_TAG: job, ATTEMPT_TAG: "3", STUDIO_TAG: studio}
            child = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, **tags}, start_new_session=True)
            stack.callback(child.wait)
            stack.callback(lambda: kill_all(lambda: family(studio, job)))
            stack.callback(child.kill)
            return child

        yield begin


def test_a_process_is_known_by_its_number_and_its_birth(start: object) -> None:
    child = start()  # type: ignore[operator]
    born = birth(child.pid)
    assert born is not None and alive(child.pid, born)
    assert not alive(child.pid, born - 1), "a later process of the same number is another one"
    child.kill()
    wait(lambda: psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE)
    assert not alive(child.pid, born), "one that only waits to be reaped is dead"
    child.wait()
    assert birth(child.pid) is None


def test_a_clock_that_jumps_changes_no_birth(start: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil's creation time, the control, moves with the wall clock."""
    child = start()  # type: ignore[operator]
    born, wall = birth(child.pid), psutil.Process(child.pid).create_time()
    assert born is not None
    jumped = psutil.boot_time() + 3600
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: jumped)
    monkeypatch.setattr(psutil._pslinux, "BOOT_TIME", jumped, raising=False)
    assert alive(child.pid, born)
    assert abs(psutil.Process(child.pid).create_time() - wall) > 3000


def test_only_this_studios_processes_are_found(start: object) -> None:
    own, foreign = start(), start(studio="another")  # type: ignore[operator]
    other_job = start(job="other")  # type: ignore[operator]
    wait(lambda: len(tagged("studio")) == 2)
    assert {one.pid for one in tagged("studio")} == {own.pid, other_job.pid}
    [found] = tagged("studio", "job")
    assert (found.pid, found.job_id, found.attempt, found.leads) == (own.pid, "job", 3, True)
    assert foreign.pid in {one.pid for one in tagged("another")}


def test_a_family_is_ended_whole_and_nobody_else(start: object) -> None:
    stranger = start(studio="another", job="job")  # type: ignore[operator]
    leader = start(FORKS + SLEEP)  # type: ignore[operator]
    born = birth(leader.pid)
    wait(lambda: len(family("studio", "job", leader.pid, born)) == 3, what="leader, other session, other environment")
    assert len(tagged("studio", "job")) == 2, "control: the tags alone miss the one that dropped its environment"
    assert kill_all(lambda: family("studio", "job", leader.pid, born)) == []
    assert family("studio", "job", leader.pid, born) == []
    assert alive(stranger.pid, birth(stranger.pid))


def test_children_are_found_after_their_leader_died(start: object) -> None:
    leader = start(FORKS + SLEEP)  # type: ignore[operator]
    born = birth(leader.pid)
    wait(lambda: len(family("studio", "job", leader.pid, born)) == 3)
    leader.kill()
    leader.wait()
    assert len(family("studio", "job", leader.pid, born)) == 2
    kill_all(lambda: family("studio", "job", leader.pid, born))
    assert family("studio", "job", leader.pid, born) == []


def test_ending_politely_leaves_time_to_save(start: object, tmp_path: object) -> None:
    saves = (
        "import signal, sys, time\n"
        "def stop(*_):\n"
        f"    time.sleep(0.3); open({str(tmp_path)!r} + '/saved', 'w'); sys.exit(0)\n"
        f"signal.signal(signal.SIGTERM, stop); open({str(tmp_path)!r} + '/ready', 'w'); time.sleep(60)"
    )
    child = start(saves)  # type: ignore[operator]
    wait(lambda: os.path.exists(f"{tmp_path}/ready"))
    assert end_politely(lambda: tagged("studio", "job"), 5.0) == []
    assert child.wait() == 0 and os.path.exists(f"{tmp_path}/saved")


def test_one_that_ignores_being_asked_is_killed(start: object, tmp_path: object) -> None:
    ready = f"{tmp_path}/ready"
    child = start(f"import signal, time; signal.signal(15, signal.SIG_IGN); open({ready!r}, 'w'); time.sleep(60)")  # type: ignore[operator]
    wait(lambda: os.path.exists(ready))
    began = time.monotonic()
    assert end_politely(lambda: tagged("studio", "job"), 0.3) == []
    assert child.wait() == -signal.SIGKILL and time.monotonic() - began > 0.25


def test_only_the_eldest_of_a_launchers_processes_is_asked(start: object, tmp_path: Path) -> None:
    """torchrun gives its children sessions of their own and hands signals on: twice asked, they would not save."""
    child = f"import signal, time; signal.signal(15, lambda *_: open({str(tmp_path / 'hit')!r}, 'a').write('x')); "
    child += f"open({str(tmp_path / 'ready')!r}, 'w'); time.sleep(60)"
    launcher = (
        f"import subprocess, sys; c = subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True); "
        "import signal; signal.signal(15, lambda *_: c.terminate()); c.wait(); import time; time.sleep(60)"
    )
    leader = start(launcher)  # type: ignore[operator]
    wait(lambda: (tmp_path / "ready").exists())
    found = tagged("studio", "job")
    assert [one.leads for one in found] == [True, True] and (eldest(found) or found[1]).pid == leader.pid
    assert end_politely(lambda: tagged("studio", "job"), 0.5) == []
    assert (tmp_path / "hit").read_text() == "x"


def test_what_does_not_die_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = processes.Found(1, 1.0, 1)
    monkeypatch.setattr(processes, "send", lambda one, number: None)
    assert kill_all(lambda: [stuck], seconds=0.1) == [stuck]
