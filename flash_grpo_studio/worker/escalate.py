"""Ending a run by degrees: asked by a file, then by SIGTERM, then killed; each step once, by a clock nobody sets."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from flash_grpo.control import ask
from flash_grpo.errors import InputError
from flash_grpo_studio.worker.decide import Reason
from flash_grpo_studio.worker.launch import RunProcess
from flash_grpo_studio.worker.processes import send


@dataclass(frozen=True)
class Patience:
    """Seconds a worker waits for this and that.

    look: between two looks at a run. pause, cancel: from asking to SIGTERM; end: from SIGTERM to SIGKILL.
    shutdown_ask, shutdown_end: the same when the worker itself has to go. hang: without any event, or hang_factor
    times the longest silence so far, whichever is longer. store: for the database to come back at a run's end.
    """

    look: float = 0.5
    pause: float = 600.0
    cancel: float = 15.0
    end: float = 120.0
    shutdown_ask: float = 8.0
    shutdown_end: float = 7.0
    hang: float = 900.0
    hang_factor: float = 10.0
    store: float = 10.0

    def steps(self, reason: Reason) -> tuple[float | None, float, float]:
        """Seconds until it is asked (None: never), until SIGTERM, until SIGKILL."""
        if reason == "pause":
            return 0.0, self.pause, self.pause + self.end
        if reason == "cancel":
            return 0.0, self.cancel, self.cancel + self.end
        if reason == "shutdown":
            return 0.0, self.shutdown_ask, self.shutdown_ask + self.shutdown_end
        return None, 0.0, 0.0


class Escalation:
    """Ends one run. `run` is its folder where it takes requests by files; other tasks are asked by SIGTERM at once."""

    def __init__(self, patience: Patience, process: RunProcess, run: Path | None, kill: Callable[[], object]) -> None:
        self.patience, self.process, self.run, self.kill = patience, process, run, kill
        self.reason: Reason | None = None
        self._since = 0.0
        self._terminated = False

    def begin(self, reason: Reason, now: float) -> bool:
        """Set out to end the run; another reason starts its own clock. Returns whether this is new."""
        if reason == self.reason:
            return False
        self.reason, self._since = reason, now
        return True

    def step(self, now: float) -> None:
        """Do what is due."""
        if self.reason is None:
            return
        asked, terminated, killed = self.patience.steps(self.reason)
        passed = now - self._since
        if passed >= killed:
            self.kill()
            return
        if asked is not None and not self._terminated and not self._ask():
            terminated = asked
        if passed >= terminated and not self._terminated:
            # To the leader alone: a launcher hands it on to its children, and a run that gets it twice ends at once
            # without saving.
            self._terminated = True
            send(self.process.found(), signal.SIGTERM)

    def _ask(self) -> bool:
        """Put the request there, again and again: a run that is just starting clears what it finds. False: cannot."""
        request = "stop" if self.reason == "cancel" else "pause"
        if self.run is None:
            return False
        if (self.run / "control" / request).exists():
            return True
        with suppress(InputError, OSError):
            ask(self.run, request)
            return True
        return False
