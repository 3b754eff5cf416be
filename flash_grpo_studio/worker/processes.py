"""Processes of runs on this machine: found by the tags in their environment, and ended as a whole family."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

JOB_TAG, ATTEMPT_TAG, STUDIO_TAG = "FLASH_GRPO_JOB", "FLASH_GRPO_ATTEMPT", "FLASH_GRPO_STUDIO"
"""Set for a run and inherited by all it starts. The studio's is the workspace's token: two studios on one machine must
never take each other's processes for orphans."""
_DEAD = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Found:
    """A living process: `born` tells it from a later one of the same number; `group` is its process group."""

    pid: int
    born: float
    group: int
    job_id: str | None = None
    attempt: int | None = None

    @property
    def leads(self) -> bool:
        """Whether it is the one a worker started, not a child of it."""
        return self.pid == self.group


def birth(pid: int) -> float | None:
    """When a process was started, in seconds of a clock that nobody sets; None if it does not live.

    On Linux since the machine's boot: psutil's creation time moves with the wall clock, and a living process would
    seem to be another one after the clock jumped.
    """
    try:
        process = psutil.Process(pid)
        if process.status() in _DEAD:
            return None
        if psutil.LINUX:
            # The command's name, in brackets, may itself hold spaces and brackets; field 22 is the start in ticks.
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            return int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return float(process.create_time())
    except (psutil.Error, OSError, ValueError, IndexError):
        return None


def alive(pid: int | None, born: float | None) -> bool:
    """Whether exactly this process still lives; one that only waits to be reaped does not."""
    if pid is None or born is None:
        return False
    present = birth(pid)
    return present is not None and abs(present - born) < 0.02


def tagged(studio: str, job_id: str | None = None) -> list[Found]:
    """The living processes of a studio's runs, or of one job's, oldest first."""
    found = []
    for process in psutil.process_iter():
        try:
            tags = process.environ()
        except psutil.Error:
            continue  # another user's, or gone meanwhile
        job = tags.get(JOB_TAG)
        if tags.get(STUDIO_TAG) != studio or not job or (job_id is not None and job != job_id):
            continue
        if (one := _found(process.pid, job, tags.get(ATTEMPT_TAG))) is not None:
            found.append(one)
    return sorted(found, key=lambda one: (one.born, one.pid))


def _found(pid: int, job_id: str | None = None, attempt: str | None = None) -> Found | None:
    born = birth(pid)
    if born is None:
        return None
    try:
        number = int(attempt) if attempt and attempt.isdigit() else None
        return Found(pid, born, os.getpgid(pid), job_id, number)
    except OSError:
        return None


def family(studio: str, job_id: str, leader: int | None = None, born: float | None = None) -> list[Found]:
    """All living processes of a job: those with its tag, the leader's process group, and the leader's descendants.

    Each finds what another misses: a launcher puts its children into sessions of their own, and a child may have
    dropped its environment. Nothing born before the leader counts, so a reused number harms nobody.
    """
    found = {one.pid: one for one in tagged(studio, job_id)}
    if leader is not None and born is not None:
        # While a group has members nobody else gets its number: a leader born later means that the group is gone.
        gone = birth(leader) is not None and not alive(leader, born)
        numbers = set() if gone else _group(leader) | _descendants(leader, born)
        kin = (one for pid in numbers if (one := _found(pid)) is not None and one.born >= born - 0.02)
        found |= {one.pid: one for one in kin if one.pid not in found}
        if alive(leader, born) and leader not in found and (one := _found(leader)) is not None:
            found[leader] = one
    found.pop(os.getpid(), None)
    return list(found.values())


def eldest(found: Iterable[Found]) -> Found | None:
    """The process that a worker started: of those that lead a group the first, as launchers give their children groups
    of their own.
    """
    leaders = [one for one in found if one.leads]
    return min(leaders, key=lambda one: (one.born, one.pid), default=None)


def _group(leader: int) -> set[int]:
    found = set()
    for pid in psutil.pids():
        with suppress(OSError):
            if pid != leader and os.getpgid(pid) == leader:
                found.add(pid)
    return found


def _descendants(leader: int, born: float) -> set[int]:
    if not alive(leader, born):
        return set()
    try:
        return {child.pid for child in psutil.Process(leader).children(recursive=True)}
    except psutil.Error:
        return set()


def send(one: Found, number: signal.Signals) -> None:
    """Send a signal to exactly this process; one that is gone is left in peace."""
    if alive(one.pid, one.born):
        with suppress(ProcessLookupError):
            os.kill(one.pid, number)


def kill_all(find: Callable[[], Iterable[Found]], seconds: float = 20.0) -> list[Found]:
    """SIGKILL what `find` finds until it finds nothing more; returns what outlived `seconds`, normally nothing.

    A process in the middle of a disk or driver call dies only when that returns.
    """
    deadline = time.monotonic() + seconds
    while left := list(find()):
        for one in left:
            send(one, signal.SIGKILL)
        if time.monotonic() > deadline:
            return left
        time.sleep(_POLL_SECONDS)
    return []


def end_politely(find: Callable[[], list[Found]], patience: float) -> list[Found]:
    """SIGTERM one job's leader, so that the run saves what it has, wait for `patience`, then SIGKILL what is left."""
    leader = eldest(find())
    if leader is not None:
        send(leader, signal.SIGTERM)
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and alive(leader.pid, leader.born):
            time.sleep(_POLL_SECONDS)
    return kill_all(find)
