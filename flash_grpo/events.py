"""Typed events and their append-only log, `events.jsonl`: the only way a run speaks. Imports no torch."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

VERSION = 1

Phase = str
"""A stretch of a run: setup, rollout, reward, replay, evaluate, save."""


@dataclass(frozen=True)
class Event:
    """What every event is: a type on the wire and fields that turn into JSON."""

    type: ClassVar[str]


@dataclass(frozen=True)
class RunStarted(Event):
    """A run begins: its whole configuration and the versions of what computes it."""

    type = "run_started"
    config: Mapping[str, Any]
    versions: Mapping[str, str]
    preset: str | None = None


@dataclass(frozen=True)
class Progress(Event):
    """Where the run is; `cost` and `nfe` are network evaluations spent so far.

    eta_seconds: what is left, unknown at first, with the range that eight of ten ends are expected in.
    """

    type = "progress"
    phase: Phase
    update: int
    updates: int
    elapsed_seconds: float
    eta_seconds: float | None = None
    cost: float = 0.0
    nfe: int = 0
    eta_low_seconds: float | None = None
    eta_high_seconds: float | None = None


@dataclass(frozen=True)
class Metrics(Event):
    """What one update measured.

    rewards: per reward name {mean, std, min, max, group_spread} of the rollouts; branch: per branch step {weight,
    reward, groups}; seconds and cost: by phase; drift: |log-ratio| of rollout and replay before the optimiser step.
    """

    type = "metrics"
    update: int
    rewards: Mapping[str, Mapping[str, float]]
    advantage: Mapping[str, float]
    grad_norm: float
    branch: Mapping[int, Mapping[str, float]]
    drift: float
    clip_fraction: float
    kl: float | None
    dead_groups: int
    groups: int
    learning_rate: float
    seconds: Mapping[Phase, float]
    cost: Mapping[Phase, float]
    nfe: int
    peak_memory_mb: float
    loss: float


@dataclass(frozen=True)
class Samples(Event):
    """Videos were written; paths are relative to the run folder."""

    type = "samples"
    update: int
    files: Sequence[str]


@dataclass(frozen=True)
class Evaluation(Event):
    """Rewards on fixed prompts and seeds: per reward {mean, ci95: [low, high]}; `best` marks a new best validation."""

    type = "evaluation"
    update: int
    split: str
    rewards: Mapping[str, Mapping[str, Any]]
    videos: int
    best: bool = False


@dataclass(frozen=True)
class Checkpoint(Event):
    """A checkpoint is complete on disk; `path` is relative to the run folder."""

    type = "checkpoint"
    update: int
    path: str
    best: bool = False


@dataclass(frozen=True)
class Warning_(Event):
    """Something a user should know, as a sentence, with a stable code for programs."""

    type = "warning"
    message: str
    code: str
    update: int | None = None


@dataclass(frozen=True)
class Resumed(Event):
    """The run continues after `from_update`; later events of earlier attempts no longer count."""

    type = "resumed"
    from_update: int


@dataclass(frozen=True)
class Request(Event):
    """A request from RUN/control was carried out: save, sample, pause or stop."""

    type = "request"
    request: str
    update: int


@dataclass(frozen=True)
class Finished(Event):
    """The run ended as asked: status done, paused or interrupted."""

    type = "finished"
    status: str
    message: str


@dataclass(frozen=True)
class Failed(Event):
    """The run cannot go on; the message is a sentence for a person."""

    type = "failed"
    message: str


@dataclass(frozen=True)
class Record:
    """An event as written: with its number in the log, the attempt that wrote it and the time (Unix seconds)."""

    seq: int
    attempt: int
    time: float
    type: str
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def update(self) -> int | None:
        """The update that the event belongs to, where it belongs to one."""
        value = self.data.get("update")
        return value if isinstance(value, int) else None


Subscriber = Callable[[Event], None]


class EventLog:
    """Appends events to `RUN/events.jsonl`, one flushed line each, and hands them to subscribers in this process.

    Continues the numbering of an existing log; a line torn by a crash is closed off, so what follows stays readable.
    `guard` is called before every write, and may raise to forbid it.
    """

    def __init__(self, folder: Path, attempt: int = 1, guard: Callable[[], None] = lambda: None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "events.jsonl"
        self.attempt, self.guard = attempt, guard
        self._subscribers: list[Subscriber] = []
        self._lock = threading.Lock()
        existing = self.path.read_bytes() if self.path.exists() else b""
        self._seq = max((record.seq for record in parse_records(existing)), default=0)
        self._file = self.path.open("ab", buffering=0)
        if existing and not existing.endswith(b"\n"):
            self._file.write(b"\n")

    def subscribe(self, callback: Subscriber) -> None:
        """Call `callback` with every later event, after it is written."""
        self._subscribers.append(callback)

    def emit(self, event: Event) -> None:
        """Write one event; a number that is not finite becomes null."""
        body = {f.name: getattr(event, f.name) for f in dataclasses.fields(event)}
        with self._lock:
            self.guard()
            self._seq += 1
            head = {"v": VERSION, "seq": self._seq, "attempt": self.attempt, "time": time.time(), "type": event.type}
            line = json.dumps(_plain({**head, **body}), ensure_ascii=False, allow_nan=False)
            _write_all(self._file.fileno(), line.encode() + b"\n")
        for subscriber in self._subscribers:
            subscriber(event)

    def close(self) -> None:
        """Make the log durable and close it; closing twice is harmless."""
        if not self._file.closed:
            os.fsync(self._file.fileno())
            self._file.close()

    def __enter__(self) -> EventLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _write_all(descriptor: int, data: bytes) -> None:
    """One write in practice; the loop covers a disk that takes only part of it."""
    while data:
        data = data[os.write(descriptor, data) :]


def _plain(value: Any) -> Any:
    """Turn a field into JSON's types: numbers of other libraries become floats or ints, non-finite ones null."""
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Sequence | set | frozenset):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        return _plain(value.item())
    raise TypeError(f"expected a JSON value in an event, got {type(value).__name__}: convert it before emitting")


def parse_records(content: bytes) -> list[Record]:
    """The events in lines of a log; a line torn by a crash, or that is no event, is left out."""
    records = []
    for line in content.split(b"\n"):
        try:
            fields = json.loads(line)
        except ValueError:
            continue  # empty, or torn by a crash in the middle of its write
        if isinstance(fields, dict) and {"seq", "attempt", "time", "type"} <= fields.keys():
            head = {name: fields.pop(name) for name in ("seq", "attempt", "time", "type")}
            fields.pop("v", None)
            records.append(Record(**head, data=fields))
    return records


def read_events(path: Path, fold: bool = True) -> list[Record]:
    """The events of a log file or run folder, in order.

    fold: leave out what a later `resumed` superseded: events of earlier attempts past the update it resumed from.
    A missing file reads as no events; torn lines are skipped.
    """
    file = path / "events.jsonl" if path.is_dir() else path
    records = parse_records(file.read_bytes()) if file.exists() else []
    return _fold(records) if fold else records


def _fold(records: Sequence[Record]) -> list[Record]:
    kept: list[Record] = []
    for record in records:
        if record.type == Resumed.type:
            last = int(record.data["from_update"])
            kept = [old for old in kept if not _superseded(old, record.attempt, last)]
        kept.append(record)
    return kept


def _superseded(old: Record, attempt: int, from_update: int) -> bool:
    if old.attempt >= attempt:
        return False
    # An earlier attempt's ending, and its report, are no longer the run's, whatever update they show.
    ending = old.type in (Finished.type, Failed.type)
    report = old.type == Evaluation.type and old.data["split"] == "heldout" and bool(old.update)
    return ending or report or (old.update is not None and old.update > from_update)
