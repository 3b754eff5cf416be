"""Child processes that belong together: started in order, restarted when they die, stopped in reverse, no orphans."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 8.0
SETTLED_SECONDS = 60.0
"""A child that lived this long is restarted at once the next time."""
BAD_INPUT = 2
"""Exit code of a child that cannot run as it was told to; starting it again would not help."""
_PR_SET_PDEATHSIG = 1


@dataclass
class Child:
    """One process of the studio. `stop_seconds` is what it gets to end in good order before it is killed."""

    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    stop_seconds: float = 10.0
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    restarts: int = 0
    _pause: float = FIRST_PAUSE_SECONDS
    _again_at: float = 0.0

    def start(self) -> None:
        """Start the process in a session of its own, so that a Ctrl-C in the terminal reaches only the studio."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                list(self.command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                start_new_session=True,
                preexec_fn=_ends_with_its_parent() if sys.platform == "linux" else None,
            )
        self.started = time.monotonic()

    def died(self) -> int | None:
        """The exit code of a process that ended by itself, else None."""
        return self.process.poll() if self.process else None

    def last_line(self) -> str:
        """The last line of its log, for a message."""
        try:
            lines = self.log.read_bytes()[-4000:].decode("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""

    def revive(self, tell: Callable[[str], None]) -> None:
        """Start it again if it died, after a pause that doubles with every early death."""
        code, now = self.died(), time.monotonic()
        if code is None:
            return
        if not self._again_at:
            if now - self.started > SETTLED_SECONDS:
                self._pause = FIRST_PAUSE_SECONDS
            self._again_at = now + self._pause
            self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)
            how = f"by signal {-code}" if code < 0 else f"with code {code}"
            tell(f"the {self.name} ended {how}; starting it again (its log: {self.log})")
        if now >= self._again_at:
            self._again_at = 0.0
            self.restarts += 1
            self.start()

    def stop(self) -> None:
        """SIGTERM, then after `stop_seconds` SIGKILL to its whole group."""
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(self.stop_seconds)
            except subprocess.TimeoutExpired:
                self.kill()
        self.process = None

    def kill(self) -> None:
        """SIGKILL to its group, and wait until it is gone."""
        if self.process is None or self.process.poll() is not None:
            return
        with suppress(ProcessLookupError):  # it may end between the look and the signal
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _ends_with_its_parent() -> Callable[[], None]:
    """A hook for the child: it gets SIGTERM when the studio dies without a word. The library is loaded beforehand."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def hook() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    return hook


class Supervisor:
    """Keeps children alive until it is told to stop. Start it in the main thread, with which its children end."""

    def __init__(self, children: Sequence[Child], tell: Callable[[str], None]) -> None:
        self.children, self.tell = list(children), tell

    def start(self) -> None:
        """Start all in order; if one cannot be started, none is left."""
        try:
            for child in self.children:
                child.start()
        except BaseException:
            self.stop()
            raise

    def look(self) -> Child | None:
        """Revive what died; returns a child that says it cannot run as it was told to."""
        for child in self.children:
            if child.died() == BAD_INPUT:
                return child
            child.revive(self.tell)
        return None

    def stop(self) -> None:
        """Stop all in reverse order; a second Ctrl-C meanwhile kills what is left."""
        try:
            for child in reversed(self.children):
                child.stop()
        except KeyboardInterrupt:
            self.tell("stopping at once")
            for child in self.children:
                child.kill()
