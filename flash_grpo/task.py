"""What a process that is no training reports: progress as events, a result as JSON, a clean end when asked to stop.

Imports no torch.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from flash_grpo.control import Interrupted, Requests, interruption_behind, listening
from flash_grpo.errors import InputError
from flash_grpo.events import Event, EventLog, Failed, Finished, Progress, Subscriber, Warning_, read_events
from flash_grpo.files import disk_problem, write_atomic
from flash_grpo.remaining import forecast

RESULT = "result.json"
QUIET_SECONDS = 0.5
"""Progress within a phase is told at most this often, but for its beginning and its end."""


class _StopNow(BaseException):
    """What a signal raises within `Task.at_once`: libraries take it for no error of theirs, and swallow it nowhere."""


class _Wishes(Requests):
    """Requests of a process that works alone; several that work together tell each other of ordinary errors only."""

    def signalled(self, number: int, frame: FrameType | None) -> None:
        """Signal handler."""
        try:
            super().signalled(number, frame)
        except Interrupted as stop:
            if os.environ.get("WORLD_SIZE", "1") != "1":
                raise
            raise _StopNow from stop


class Task:
    """One process's work: what it tells, what it is asked, what comes out of it."""

    def __init__(self, requests: Requests, tell: Callable[[Event], None], reports: bool) -> None:
        self.requests = requests
        self.result: dict[str, Any] = {}
        """What result.json will hold."""
        self.message = "Done."
        """The sentence of the last event."""
        self._tell, self._reports = tell, reports
        self._started = self._stepped = time.monotonic()
        self._phase, self._done = "", 0
        self._paces: list[float] = []
        self._told = 0.0

    def progress(self, phase: str, done: int, total: int) -> None:
        """Tell how much of a phase is done, in whatever units it has; raises Interrupted if the task shall end."""
        self.point()
        now = time.monotonic()
        if phase != self._phase:
            self._phase, self._done, self._stepped, self._paces = phase, done, now, []
        elif done < total and now - self._told < QUIET_SECONDS:
            return
        if done > self._done:
            self._paces.append((now - self._stepped) / (done - self._done))
            self._done, self._stepped = done, now
        self._told = now
        spent, left = now - self._started, forecast(self._paces, total - done).range() if self._paces else None
        span = (left.middle, 0.0, 0, left.low, left.high) if left else ()
        self._tell(Progress(phase, done, total, spent, *span))

    def warn(self, message: str, code: str) -> None:
        """Tell something a user should know."""
        self._tell(Warning_(message, code))

    def point(self) -> None:
        """Raise Interrupted if a signal came, or DIR/control asks for the task's end."""
        self.requests.interruption_point(alone=self._reports)

    def at_once(self) -> AbstractContextManager[None]:
        """Within this context a signal ends the task immediately; for stretches that write nothing."""
        return self.requests.at_once()


@contextmanager
def reporting(folder: Path | None = None, subscribers: Sequence[Subscriber] = ()) -> Iterator[Task]:
    """Do a task's work within this context; if `folder` is given, it reports into it.

    events.jsonl: progress, warnings, and at last finished (done or interrupted) or failed with its sentence.
    result.json: what the task left in `Task.result`, written whole and only by a task that is done, just before
    `finished`. SIGINT, SIGTERM and a file DIR/control/stop end the work by `Interrupted`, raised by the next
    `Task.progress` or, within `Task.at_once`, by the signal. What went wrong is raised on; RuntimeError with a sentence
    if the disk takes no more.
    """
    with ExitStack() as stack:
        requests = _Wishes(folder or Path())
        tell = _listeners(subscribers) if folder is None else _open_report(stack, folder, requests, subscribers)
        task = Task(requests, tell, reports=folder is not None)
        stack.enter_context(listening(requests))
        try:
            yield task
            if folder is not None:
                write_atomic(folder / RESULT, json.dumps(task.result, indent=1, ensure_ascii=False))
            tell(Finished("done", task.message))
        except (Exception, _StopNow) as error:
            stop = interruption_behind(error)
            last = Finished("interrupted", "Stopped as asked.") if stop else Failed(_sentence(error))
            with suppress(OSError):  # a disk that takes no more must not hide the error that is on its way out
                tell(last)
            if stop:
                raise Interrupted("interrupted") from None
            if disk_problem(error):
                raise RuntimeError(_sentence(error)) from error
            raise


def _open_report(
    stack: ExitStack, folder: Path, requests: Requests, subscribers: Sequence[Subscriber]
) -> Callable[[Event], None]:
    """Take up a report folder, perhaps after an earlier attempt at the same task."""
    try:
        earlier = max((record.attempt for record in read_events(folder, fold=False)), default=0)
        log = stack.enter_context(EventLog(folder, earlier + 1))
        (folder / RESULT).unlink(missing_ok=True)
        requests.clear()
    except OSError as error:
        raise InputError(f"cannot report into {folder}: {error.strerror or error}; choose another --report") from error
    for subscriber in subscribers:
        log.subscribe(subscriber)
    return log.emit


def _listeners(subscribers: Sequence[Subscriber]) -> Callable[[Event], None]:
    def tell(event: Event) -> None:
        for subscriber in subscribers:
            subscriber(event)

    return tell


def _sentence(error: BaseException) -> str:
    if problem := disk_problem(error):
        return f"the disk takes no more: {problem}; free some space and repeat it"
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
