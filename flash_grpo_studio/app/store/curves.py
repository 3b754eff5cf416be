"""Curves for charts: all a job measured, put together into as many points as a chart can show."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Integer, LargeBinary, func, literal, select
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.orm import Session

from flash_grpo_studio.app.store.metrics import VALUES
from flash_grpo_studio.app.store.tables import Attempt, Event, Metric, MetricSeries

MOST_BYTES = 256 * 2**20
Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Series:
    """One curve: at `update`, the mean `value` of the updates it stands for, and their lowest and highest."""

    update: list[int]
    value: list[float | None]
    low: list[float | None]
    high: list[float | None]


@dataclass(frozen=True)
class Measured:
    """All of a job's values: updates [N] in order, table [N, series] with NaN where there is none."""

    course: tuple[int, int]
    updates: Integers
    table: Floats


class Curves:
    """Reads curves, and keeps the tables of jobs lately looked at: of a run that is watched only what is new is read.

    A kept table is good as long as the job took no other course: no attempt and no resumption came since.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._kept: OrderedDict[str, Measured] = OrderedDict()
        self._lock = threading.Lock()

    def read(
        self, session: Session, job_id: str, points: int, names: Sequence[str] | None = None, after_update: int = -1
    ) -> tuple[dict[str, Series], int]:
        """A job's curves with at most `points` points each, and how many updates they stand for.

        With more updates than points, neighbours are put together; low and high keep every spike visible.
        names: exact names or prefixes ending in `/`; None takes all. A series without any value is left out.
        """
        query = select(MetricSeries.name, MetricSeries.position).where(MetricSeries.job_id == job_id)
        known = session.execute(query.order_by(MetricSeries.position)).all()
        wanted = [(name, place) for name, place in known if names is None or _matches(name, names)]
        measured = self._measured(session, job_id, len(known))
        first = int(np.searchsorted(measured.updates, after_update, side="right"))
        updates = measured.updates[first:]
        if not len(updates) or not wanted:
            return {}, len(updates)
        columns = measured.table[first:, [place for _, place in wanted]]
        return _as_series(wanted, *downsample(updates, columns, points)), len(updates)

    def _measured(self, session: Session, job_id: str, width: int) -> Measured:
        course = _course(session, job_id)
        with self._lock:
            kept = self._kept.get(job_id)
        newest = session.scalar(select(func.max(Metric.update)).where(Metric.job_id == job_id))
        last = int(kept.updates[-1]) if kept is not None and len(kept.updates) else -1
        if kept is None or kept.course != course or newest is None or newest < last:
            kept, last = Measured(course, np.empty(0, np.int64), np.empty((0, width))), -1
        if newest is not None and newest > last:
            updates, table = _rows(session, job_id, width, last)
            older = _widened(kept.table, width)
            kept = Measured(course, np.concatenate([kept.updates, updates]), np.concatenate([older, table]))
        elif kept.table.shape[1] != width:
            kept = Measured(course, kept.updates, _widened(kept.table, width))
        self._keep(job_id, kept)
        return kept

    def _keep(self, job_id: str, measured: Measured) -> None:
        with self._lock:
            self._kept[job_id] = measured
            self._kept.move_to_end(job_id)
            size = sum(kept.table.nbytes for kept in self._kept.values())
            while size > self.most_bytes and self._kept:
                _, oldest = self._kept.popitem(last=False)
                size -= oldest.table.nbytes


def _course(session: Session, job_id: str) -> tuple[int, int]:
    """What changes when a job measures something again: its attempts and its resumptions."""
    attempts = session.scalar(select(func.max(Attempt.number)).where(Attempt.job_id == job_id))
    resumed = session.scalar(select(func.max(Event.id)).where(Event.job_id == job_id, Event.type == "resumed"))
    return attempts or 0, resumed or 0


def _rows(session: Session, job_id: str, width: int, after_update: int) -> tuple[Integers, Floats]:
    """Updates after `after_update` and their values, padded to `width` series."""
    if session.get_bind().dialect.name == "postgresql":
        return _joined_rows(session, job_id, width, after_update)
    query = select(Metric.update, Metric.values).where(Metric.job_id == job_id, Metric.update > after_update)
    rows = session.execute(query.order_by(Metric.update)).all()
    full = width * VALUES.itemsize
    joined = b"".join(row[1] if len(row[1]) == full else _padded(row[1], full) for row in rows)
    updates = np.fromiter((row[0] for row in rows), np.int64, len(rows))
    return updates, np.frombuffer(joined, VALUES).reshape(len(rows), width)


def _joined_rows(session: Session, job_id: str, width: int, after_update: int) -> tuple[Integers, Floats]:
    """The same, put together by PostgreSQL: one long value instead of many rows crosses the wire ten times faster."""
    nothing = literal(b"", LargeBinary)
    number = func.int4send(Metric.update, type_=LargeBinary)
    length = func.octet_length(Metric.values, type_=Integer)
    query = select(
        length,
        func.string_agg(number, aggregate_order_by(nothing, Metric.update), type_=LargeBinary),
        func.string_agg(Metric.values, aggregate_order_by(nothing, Metric.update), type_=LargeBinary),
    ).where(Metric.job_id == job_id, Metric.update > after_update)
    parts = session.execute(query.group_by(length)).all()
    updates = [np.frombuffer(numbers, ">i4").astype(np.int64) for _, numbers, _ in parts]
    tables = [np.frombuffer(values, VALUES).reshape(-1, size // VALUES.itemsize) for size, _, values in parts]
    if not parts:
        return np.empty(0, np.int64), np.empty((0, width))
    order = np.argsort(joined := np.concatenate(updates))
    return joined[order], np.concatenate([_widened(table, width) for table in tables])[order]


def _padded(values: bytes, full: int) -> bytes:
    missing = (full - len(values)) // VALUES.itemsize
    return values + np.full(missing, np.nan, VALUES).tobytes()


def _widened(table: Floats, width: int) -> Floats:
    """The table with NaN for series that joined later."""
    missing = width - table.shape[1]
    return np.pad(table, ((0, 0), (0, missing)), constant_values=np.nan) if missing else table


def _matches(name: str, names: Sequence[str]) -> bool:
    return any(name == wanted or (wanted.endswith("/") and name.startswith(wanted)) for wanted in names)


def _as_series(
    wanted: Sequence[tuple[str, int]], at: Any, mean: Floats, low: Floats, high: Floats
) -> dict[str, Series]:
    found = {}
    for column, (name, _) in enumerate(wanted):
        there = ~np.isnan(mean[:, column])
        if there.any():
            picked = (array[there, column].tolist() for array in (mean, low, high))
            found[name] = Series(at[there].tolist(), *picked)
    return found


def downsample(updates: Any, table: Floats, points: int) -> tuple[Any, Floats, Floats, Floats]:
    """Rows [N] and values [N, S] put together into at most `points` buckets of equal count: last row, mean, min, max.

    NaN stands for no value and does not count; a bucket without any value is NaN.
    """
    count = len(updates)
    if count <= points:
        return updates, table, table, table
    edges = np.linspace(0, count, points + 1).astype(np.int64)
    starts, ends = edges[:-1], edges[1:]
    valid = ~np.isnan(table)
    counts = np.add.reduceat(valid, starts, axis=0, dtype=np.int64)
    sums = np.add.reduceat(np.where(valid, table, 0.0), starts, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    low = np.fmin.reduceat(table, starts, axis=0)
    high = np.fmax.reduceat(table, starts, axis=0)
    return updates[ends - 1], mean, low, high
