"""What a person is told of a run's end, and what becomes of the job: pure rules."""

from __future__ import annotations

import itertools
import signal
from pathlib import Path
from typing import Any

import pytest

from flash_grpo.events import Record
from flash_grpo_studio.app.jobs.states import TRANSITIONS, State
from flash_grpo_studio.worker.decide import Case, Reason, decide
from flash_grpo_studio.worker.diagnose import Remains, diagnose, last_lines
from flash_grpo_studio.worker.memory import kernel_kills


@pytest.mark.parametrize(
    ("code", "output", "words", "again"),
    [
        (-9, "", "killed from outside (SIGKILL)", True),
        (-11, "", "crashed (SIGSEGV)", True),
        (-15, "", "ended from outside (SIGTERM)", True),
        (1, "torch.OutOfMemoryError: CUDA out of memory. Tried", "the device ran out of memory", False),
        (
            1,
            "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory",
            "machine ran out of memory",
            False,
        ),
        (1, "OSError: [Errno 28] No space left on device", "the disk is full", False),
        (1, "flash-grpo: the run failed: the gradient of update 3 is not finite", "diverged", False),
        (1, "flash-grpo: the run failed: the reward said no; details are in log.txt", "the reward said no", False),
        (2, "noise\nflash-grpo: unknown preset 'x'; did you mean 'y'?\n", "unknown preset 'x'", False),
        (2, "flash-grpo: out of luck: No space left on device", "out of luck", False),
        (3, "", "exit code 3", False),
        (0, "", "left no result", True),
        (None, "update 3/8", "without a word", True),
        (None, "OSError: [Errno 28] No space left on device", "the disk is full", False),
        (1, "Root Cause:\n  exitcode  : -9 (pid: 7)", "killed from outside (SIGKILL)", True),
    ],
)
def test_an_end_without_a_word_is_explained(code: int | None, output: str, words: str, again: bool) -> None:
    found = diagnose(Remains(code, output))
    assert words in found.why and found.again is again and "\n" not in found.why


def test_the_kernels_own_count_explains_a_kill() -> None:
    assert "ran out of memory" in diagnose(Remains(-9, kernel_killed=True)).why
    assert "ran out of memory" not in diagnose(Remains(-15, kernel_killed=True)).why


def test_kernel_kills_are_counted(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert kernel_kills((events, tmp_path / "missing")) == 2


def test_a_lost_process_of_several_is_worth_another_try() -> None:
    said = "process 0 of 2 lost contact with another one: that was killed, ran out of memory or took longer than"
    assert diagnose(Remains(1), said).again and not diagnose(Remains(1), "the reward failed").again


def test_the_last_lines_are_the_last_that_say_something() -> None:
    output = "first\n\n╭──╮\nprogress 1\rprogress 2\n" + "\n".join(f"line {n}" for n in range(11)) + "\n\n"
    lines = last_lines(output)
    assert len(lines) == 12 and lines[0] == "progress 2" and lines[-1] == "line 10"


def ending(status: str | None, message: str = "said") -> Record | None:
    if status is None:
        return None
    data = {"message": message} if status == "failed" else {"status": status, "message": message}
    return Record(1, 1, 0.0, "failed" if status == "failed" else "finished", data)


def case(state: State, status: str | None, code: int | None = 0, reason: Reason | None = None, **more: Any) -> Case:
    return Case(
        state, "ann asked", "alignment", 7, ending(status), Remains(code, more.pop("output", "")), reason, **more
    )


@pytest.mark.parametrize(
    ("given", "target"),
    [
        (case("running", "done"), "succeeded"),
        (case("pausing", "done"), "succeeded"),
        (case("cancelling", "done"), "succeeded"),
        (case("pausing", "paused", 75, "pause"), "paused"),
        (case("pausing", "interrupted", 130, "pause"), "paused"),
        (case("pausing", None, -9, "pause"), "paused"),
        (case("pausing", "failed", 1, "pause"), "failed"),
        (case("cancelling", "interrupted", 130, "cancel"), "cancelled"),
        (case("cancelling", None, -9, "cancel"), "cancelled"),
        (case("cancelling", "paused", 75, "pause"), "cancelled"),
        (case("running", "paused", 75, "shutdown"), "queued"),
        (case("running", "interrupted", 130, "shutdown"), "queued"),
        (case("running", None, -9, "shutdown"), "queued"),
        (case("running", None, 2, "shutdown"), "failed"),
        (case("pausing", "paused", 75, "shutdown"), "paused"),
        (case("cancelling", None, -9, "shutdown"), "cancelled"),
        (case("running", "paused", 75), "paused"),
        (case("running", "interrupted", 130), "died"),
        (case("running", "failed", 1), "failed"),
        (case("running", None, -9), "died"),
        (case("running", None, None), "died"),
        (case("running", None, 130), "died"),
        (case("running", None, 2), "failed"),
        (case("running", None, -9, "hung"), "died"),
        (case("running", None, -9, "removed"), "failed"),
        (case("cancelling", None, -9, "removed"), "cancelled"),
        (case("starting", None, None, started=False), "queued"),
        (case("pausing", None, None, started=False), "paused"),
        (case("cancelling", None, None, started=False), "cancelled"),
    ],
)
def test_the_next_state(given: Case, target: str) -> None:
    found = decide(given)
    assert found.target == target
    state: State = "running" if given.state == "starting" and given.started else given.state
    assert found.target == "died" or found.target in TRANSITIONS[state], "and it is a legal one"
    assert found.message


def test_whatever_remains_the_next_state_is_a_legal_one() -> None:
    states: tuple[State, ...] = ("starting", "running", "pausing", "cancelling")
    reasons: tuple[Reason | None, ...] = (None, "pause", "cancel", "shutdown", "hung", "removed")
    statuses, codes = (None, "done", "paused", "interrupted", "failed"), (None, 0, 1, 2, 75, 130, -9)
    for state, status, code, reason, begun in itertools.product(states, statuses, codes, reasons, (True, False)):
        target = decide(case(state, status, code, reason, started=begun)).target
        assert target == "died" or target in TRANSITIONS[state], (state, status, code, reason, begun)


def test_a_fault_keeps_the_last_lines_below_its_sentence() -> None:
    found = decide(case("running", None, -signal.SIGSEGV, output="loading\nlast words"))
    assert found.message.splitlines() == ["its process crashed (SIGSEGV)", "loading", "last words"]
