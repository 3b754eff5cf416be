"""What is asked of a run from outside: signals, and files in RUN/control."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from flash_grpo.errors import InputError, unknown_name
from flash_grpo.files import write_atomic

ENDINGS = {"pause": "paused", "stop": "interrupted"}
"""Requests that end the run, and the status it ends with."""
REQUESTS = ("save", "sample", *ENDINGS)
POLL_SECONDS = 1.0


class Interrupted(Exception):
    """The run stopped because it was asked to; `status` is `interrupted` or `paused`."""

    def __init__(self, status: str) -> None:
        super().__init__(f"the run was {status}")
        self.status = status


def interruption_behind(error: BaseException | None) -> Interrupted | None:
    """The interruption behind an error: libraries turn what is raised while they import or load into their own."""
    while error is not None and not isinstance(error, Interrupted):
        error = error.__cause__ or error.__context__
    return error


def ask(folder: Path, request: str) -> None:
    """Put a request into RUN/control; the run reads it between updates and acknowledges it by an event."""
    if request not in REQUESTS:
        raise unknown_name("request", request, REQUESTS)
    if not (folder / "config.yaml").is_file():
        raise InputError(f"{folder} is no run folder: it holds no config.yaml; name the folder that train wrote")
    write_atomic(folder / "control" / request, "")


class Requests:
    """What a run was asked and has not done yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "control"
        self.asked: str | None = None
        self._at_once = False
        self._polled = 0.0

    def pending(self) -> list[str]:
        """Requests lying in RUN/control, those that end the run last; a signal counts as `stop`."""
        found = [name for name in REQUESTS if (self.folder / name).exists()]
        return [*found, "stop"] if self.asked and "stop" not in found else found

    def acknowledge(self, request: str) -> None:
        """Take a request off the pile."""
        (self.folder / request).unlink(missing_ok=True)

    def clear(self) -> None:
        """Forget what earlier attempts were asked."""
        for name in REQUESTS:
            self.acknowledge(name)

    def signalled(self, number: int, frame: FrameType | None) -> None:
        """Signal handler: remember the wish; where nothing can be lost, stop on the spot."""
        self.asked = "interrupted"
        signal.signal(number, signal.SIG_DFL)  # a second signal ends the process the hard way
        if self._at_once:
            raise Interrupted(self.asked)

    def interruption_point(self, alone: bool) -> None:
        """Raise Interrupted if a signal came or, when `alone`, a file asks for the run's end.

        Called between network forwards, where the weights are those of the last complete update. Several processes
        agree on files between updates, as one of them stopping alone would leave the others waiting.
        """
        if self.asked is None and alone and time.monotonic() - self._polled > POLL_SECONDS:
            self._polled = time.monotonic()
            for name, status in ENDINGS.items():
                if (self.folder / name).exists():
                    self.acknowledge(name)
                    self.asked = status
        if self.asked is not None:
            raise Interrupted(self.asked)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Within this context a signal raises Interrupted immediately; for stretches that change nothing."""
        if self.asked is not None:
            raise Interrupted(self.asked)
        before, self._at_once = self._at_once, True
        try:
            yield
        finally:
            self._at_once = before


@contextmanager
def listening(requests: Requests) -> Iterator[None]:
    """Within this context SIGINT and SIGTERM reach `requests`; outside the main thread they are left alone."""
    try:
        previous = {number: signal.signal(number, requests.signalled) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals are the owner's business
        previous = {}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
