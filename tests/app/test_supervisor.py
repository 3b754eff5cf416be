"""Children are revived, stopped in order, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from flash_grpo_studio.app.supervisor import BAD_INPUT, Child, Supervisor

PATIENT = "import time\ntime.sleep(600)"
STUBBORN = (
    "import signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    "print('ready', flush=True)\n"
    "time.sleep(600)"
)


def child(folder: Path, name: str, code: str, stop_seconds: float = 10.0) -> Child:
    return Child(name, [sys.executable, "-c", code], folder / f"{name}.log", {}, stop_seconds)


def wait(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def alive(process: int) -> bool:
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_child_that_dies_is_started_again_with_longer_pauses(tmp_path: Path) -> None:
    told: list[str] = []
    one = child(tmp_path, "one", PATIENT)
    supervisor = Supervisor([one], told.append)
    supervisor.start()
    pauses = []
    for count in (1, 2):
        assert one.process is not None
        os.kill(one.process.pid, signal.SIGKILL)
        began = time.monotonic()
        wait(lambda expected=count: (supervisor.look(), one.restarts == expected)[1])  # type: ignore[misc]
        pauses.append(time.monotonic() - began)
    assert 0.5 <= pauses[0] < pauses[1]
    assert [sentence.partition(";")[0] for sentence in told] == ["the one ended by signal 9"] * 2
    supervisor.stop()
    assert one.process is None


def test_a_child_that_cannot_run_as_told_is_named_and_not_started_again(tmp_path: Path) -> None:
    one = child(tmp_path, "one", f"print('flash-grpo: no such thing'); raise SystemExit({BAD_INPUT})")
    supervisor = Supervisor([one], print)
    supervisor.start()
    assert one.process is not None
    one.process.wait(30)
    assert supervisor.look() is one
    assert one.last_line() == "flash-grpo: no such thing"
    assert one.restarts == 0


def test_children_stop_in_reverse_order_and_a_stubborn_one_is_killed_with_its_own_children(tmp_path: Path) -> None:
    first = child(tmp_path, "first", PATIENT)
    second = child(tmp_path, "second", STUBBORN, stop_seconds=0.5)
    supervisor = Supervisor([first, second], print)
    supervisor.start()
    wait(lambda: second.last_line() == "ready")
    assert first.process and second.process
    numbers = [first.process.pid, second.process.pid, *(p.pid for p in psutil.Process(second.process.pid).children())]
    assert len(numbers) == 3
    order: list[str] = []
    for one in (first, second):
        stop = one.stop
        one.stop = lambda stop=stop, name=one.name: (order.append(name), stop())[1]  # type: ignore[method-assign, misc]
    supervisor.stop()
    assert order == ["second", "first"]
    wait(lambda: not any(map(alive, numbers)), 5)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is a thing of Linux")
def test_children_end_when_the_supervisor_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time\nfrom pathlib import Path\n"
        "from flash_grpo_studio.app.supervisor import Child, Supervisor\n"
        f"one = Child('one', [sys.executable, '-c', {PATIENT!r}], Path({str(tmp_path / 'log')!r}))\n"
        "Supervisor([one], print).start()\nprint(one.process.pid, flush=True)\ntime.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        number = int(parent.stdout.readline())
        assert alive(number)
        parent.kill()
    wait(lambda: not alive(number), 5)
