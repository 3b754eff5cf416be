"""What becomes of a job whose processes are gone. Pure: from what was asked and what was said to the next state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from flash_grpo.commands.base import BAD_INPUT, INTERRUPTED, PAUSED
from flash_grpo.events import Record
from flash_grpo_studio.app.jobs.states import State
from flash_grpo_studio.worker.diagnose import Remains, diagnose

Reason = Literal["pause", "cancel", "shutdown", "hung", "removed"]
"""Why a worker ended a run: a person's wish, its own shutdown, or what it saw."""
Target = State | Literal["died"]


@dataclass(frozen=True)
class Case:
    """All that the decision rests on.

    state, message: of the job in the store. ending: the event by which the run said how it ended. reason: why the
    worker ended it, if it did. started: whether there ever was a process. update: the last one measured. done: whether
    the run's summary says that it is complete.
    """

    state: State
    message: str
    kind: str
    update: int
    ending: Record | None
    remains: Remains
    reason: Reason | None = None
    started: bool = True
    done: bool = False
    silent_minutes: float = 0.0


@dataclass(frozen=True)
class Verdict:
    """The job's next state, or `died`, which leaves it to retries; and why, for a person."""

    target: Target
    message: str


def decide(case: Case) -> Verdict:
    """The next state. What the run said of itself counts first, then what was asked, then what its remains tell."""
    status = _status(case)
    if status == "done":
        return Verdict("succeeded", str(case.ending.data.get("message", "")) if case.ending else "its run is complete")
    if case.state == "cancelling":
        return Verdict("cancelled", _at(case, case.message or "cancelled"))
    if case.reason == "removed":
        return Verdict(
            "failed",
            "its folder was removed while it ran, and its checkpoints with it; clone the job to start anew",
        )
    if case.reason == "hung":
        return Verdict("died", f"it hung: no sign of life for {case.silent_minutes:.0f} minutes, so it was killed")
    if status == "failed" and case.ending is not None:
        found = diagnose(case.remains, str(case.ending.data.get("message") or "it failed without a word"))
        return Verdict("died", found.why) if found.again else Verdict("failed", found.why)
    if status in ("paused", "interrupted"):
        return _as_asked(case, status)
    return _without_a_word(case)


def _status(case: Case) -> str | None:
    """done, paused, interrupted or failed, as the run said; by its exit code where a full disk kept it from writing."""
    if case.done:
        return "done"  # the summary comes right before the event, which a kill may have prevented
    if case.ending is not None:
        return "failed" if case.ending.type == "failed" else str(case.ending.data.get("status"))
    return {PAUSED: "paused", INTERRUPTED: "interrupted"}.get(case.remains.exit_code or 0)


def _as_asked(case: Case, status: str) -> Verdict:
    if case.state == "pausing":
        return Verdict("paused", _at(case, case.message or "paused"))
    if case.reason == "shutdown":
        return Verdict("queued", _at(case, "its worker was shut down; it goes on with the next one"))
    if status == "paused":
        return Verdict("paused", _at(case, "its run was asked to pause, not through the studio"))
    return Verdict("died", "its run was interrupted from outside")


def _without_a_word(case: Case) -> Verdict:
    if not case.started and case.state == "pausing":
        return Verdict("paused", _at(case, case.message or "paused"))
    if not case.started:
        return Verdict("queued", "its worker died before it had started anything")
    found = diagnose(case.remains)
    if case.remains.exit_code == BAD_INPUT:
        return Verdict("failed", found.full() if not found.why else found.why)
    if case.state == "pausing" and found.again:
        return Verdict("paused", _at(case, f"{case.message or 'paused'}; it had to be stopped the hard way"))
    if case.reason == "shutdown" and found.again:
        return Verdict("queued", _at(case, "its worker was shut down; it goes on with the next one"))
    return Verdict("died", found.full()) if found.again else Verdict("failed", found.full())


def _at(case: Case, message: str) -> str:
    if case.kind != "alignment" or not case.update:
        return message
    return f"{message}; it stands at update {case.update}"
