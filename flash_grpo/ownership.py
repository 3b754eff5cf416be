"""Who may write into a run folder: a lock with a fencing token, so that a revived owner that lost it writes nothing."""

from __future__ import annotations

import json
import os
import socket
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from flash_grpo.errors import InputError
from flash_grpo.files import write_atomic

LOCK = "lock"


class OwnershipLost(Exception):
    """Another process took the run over; this one must not write into its folder any more."""


@dataclass(frozen=True)
class Owner:
    """What the lock says: a token that grows with every owner, who holds it, and whether it was given back.

    `process_started` is the process's creation time (Unix seconds), which tells it from a later one of the same number.
    """

    token: int
    id: str
    host: str
    process: int
    process_started: float
    released: bool = False

    def alive(self) -> bool | None:
        """Whether the owner still runs; None if it is on another machine, where nobody can tell from here."""
        if self.released:
            return False
        if self.host != socket.gethostname():
            return None
        try:
            return abs(psutil.Process(self.process).create_time() - self.process_started) < 1
        except psutil.Error:
            return False


def read_owner(folder: Path) -> Owner | None:
    """The last owner of a run folder; None if it never had one or the lock cannot be read."""
    try:
        return Owner(**json.loads((folder / LOCK).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


class Ownership:
    """This process's right to write into one run folder."""

    def __init__(self, folder: Path, owner: Owner) -> None:
        self.folder, self.owner = folder, owner

    @property
    def token(self) -> int:
        """The fencing token, from 1; it also numbers the run's attempts."""
        return self.owner.token

    def check(self) -> None:
        """Raise OwnershipLost unless this process still owns the folder; called before every write."""
        present = read_owner(self.folder)
        if present is None or present.id != self.owner.id:
            holder = f"process {present.process} on {present.host}" if present else "somebody who removed its lock"
            raise OwnershipLost(
                f"the run {self.folder} was taken over by {holder}; this process stops and writes no more"
            )

    def release(self) -> None:
        """Give the folder back; harmless if it was lost."""
        present = read_owner(self.folder)
        if present is not None and present.id == self.owner.id:
            _write(self.folder, Owner(**{**asdict(self.owner), "released": True}))


def take_ownership(folder: Path, take_over: bool = False) -> Ownership:
    """Become the owner of a run folder that nobody owns any more.

    Raises InputError if the owner still runs, or may run on another machine, unless `take_over` is given.
    """
    last = read_owner(folder)
    alive = last.alive() if last else False
    if last is not None and alive is not False and not take_over:
        certainty = "is" if alive else "may be"
        raise InputError(
            f"the run {folder} {certainty} in the hands of process {last.process} on {last.host}; "
            "stop that one first, or take the run from it with --take-over"
        )
    process = os.getpid()
    owner = Owner(
        token=(last.token if last else 0) + 1,
        id=uuid.uuid4().hex,
        host=socket.gethostname(),
        process=process,
        process_started=psutil.Process(process).create_time(),
    )
    _write(folder, owner)
    ownership = Ownership(folder, owner)
    ownership.check()
    return ownership


def _write(folder: Path, owner: Owner) -> None:
    write_atomic(folder / LOCK, json.dumps(asdict(owner)))
