"""Metric series: from a metrics event to a row, and from rows to as many points as a chart can show."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from flash_grpo_studio.app.store.tables import Metric, MetricSeries

_PLAIN = ("grad_norm", "drift", "clip_fraction", "kl", "dead_groups", "groups", "learning_rate", "nfe", "loss")
_VALUES = np.dtype("<f8")
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Point:
    """All values of one update by series name."""

    update: int
    attempt: int
    time: float
    values: Mapping[str, float]


@dataclass(frozen=True)
class Series:
    """One curve: at `update`, the mean `value` of the updates it stands for, and their lowest and highest."""

    update: list[int]
    value: list[float | None]
    low: list[float | None]
    high: list[float | None]


def flatten(data: Mapping[str, Any]) -> dict[str, float]:
    """The series of a metrics event: names joined by `/`, such as reward/subject_size/mean or branch/3/weight."""
    found = dict(_leaves("reward", data.get("rewards", {})))
    for key in ("advantage", "branch", "seconds", "cost"):
        found.update(_leaves(key, data.get(key, {})))
    found.update((key, float(data[key])) for key in (*_PLAIN, "peak_memory_mb") if data.get(key) is not None)
    return found


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(f"{prefix}/{key}", item)
    elif isinstance(value, int | float):
        yield prefix[:200], float(value)


def put_points(session: Session, job_id: str, points: Sequence[Point]) -> None:
    """Write points; one whose update is already there replaces it. Later points win within a batch."""
    if not points:
        return
    places = _places(session, job_id, (name for point in points for name in point.values))
    rows = {}
    for point in points:
        values = np.full(len(places), np.nan, _VALUES)
        for name, value in point.values.items():
            values[places[name]] = value
        rows[point.update] = {
            "job_id": job_id,
            "update": point.update,
            "attempt": point.attempt,
            "time": point.time,
            "values": values.tobytes(),
        }
    insert = insert_of(session)(Metric)
    replaced = {name: insert.excluded[name] for name in ("attempt", "time", "values")}
    statement = insert.on_conflict_do_update(index_elements=["job_id", "update"], set_=replaced)
    session.execute(statement, list(rows.values()))


def insert_of(session: Session) -> Any:
    """The dialect's INSERT, which knows ON CONFLICT."""
    return sqlite.insert if session.get_bind().dialect.name == "sqlite" else postgresql.insert


def _places(session: Session, job_id: str, names: Iterable[str]) -> dict[str, int]:
    """Position by series name; new names are appended, so that older rows stay valid."""
    query = select(MetricSeries.name, MetricSeries.position).where(MetricSeries.job_id == job_id)
    places: dict[str, int] = {row.name: row.position for row in session.execute(query)}
    fresh = [name for name in dict.fromkeys(names) if name not in places]
    for name in fresh:
        places[name] = len(places)
        session.add(MetricSeries(job_id=job_id, position=places[name], name=name))
    if fresh:
        session.flush()
    return places


def drop_points(session: Session, job_id: str, after_update: int) -> None:
    """Forget what a resumed run will measure again."""
    session.execute(delete(Metric).where(Metric.job_id == job_id, Metric.update > after_update))


def last_values(session: Session, job_id: str) -> dict[str, float]:
    """The newest update's values by series name."""
    query = select(Metric.values).where(Metric.job_id == job_id).order_by(Metric.update.desc()).limit(1)
    row = session.scalar(query)
    if row is None:
        return {}
    names = session.scalars(
        select(MetricSeries.name).where(MetricSeries.job_id == job_id).order_by(MetricSeries.position)
    )
    return {name: float(value) for name, value in zip(names, np.frombuffer(row, _VALUES)) if not np.isnan(value)}  # noqa: B905


def read_series(
    session: Session, job_id: str, points: int, names: Sequence[str] | None = None, after_update: int = -1
) -> tuple[dict[str, Series], int]:
    """A job's curves with at most `points` points each, and how many updates they stand for.

    With more updates than points, neighbours are put together; low and high keep every spike visible.
    names: exact names or prefixes ending in `/`; None takes all. A series without any value is left out.
    """
    known = session.execute(select(MetricSeries.name, MetricSeries.position).where(MetricSeries.job_id == job_id)).all()
    wanted = [(name, place) for name, place in known if names is None or _matches(name, names)]
    query = select(Metric.update, Metric.values).where(Metric.job_id == job_id, Metric.update > after_update)
    rows = session.execute(query.order_by(Metric.update)).all()
    if not rows or not wanted:
        return {}, len(rows)
    updates, table = _table(rows, len(known))
    columns = table[:, [place for _, place in wanted]]
    at, mean, low, high = downsample(updates, columns, points)
    found = {}
    for column, (name, _) in enumerate(wanted):
        there = ~np.isnan(mean[:, column])
        if there.any():
            picked = (array[there, column].tolist() for array in (mean, low, high))
            found[name] = Series(at[there].tolist(), *picked)
    return found, len(rows)


def _matches(name: str, names: Sequence[str]) -> bool:
    return any(name == wanted or (wanted.endswith("/") and name.startswith(wanted)) for wanted in names)


def _table(rows: Sequence[Any], width: int) -> tuple[Any, Floats]:
    """Rows of different length, as series joined later, as one table padded with NaN."""
    updates = np.fromiter((row[0] for row in rows), np.int64, len(rows))
    full = width * _VALUES.itemsize
    joined = b"".join(row[1] if len(row[1]) == full else _padded(row[1], full) for row in rows)
    return updates, np.frombuffer(joined, _VALUES).reshape(len(rows), width)


def _padded(values: bytes, full: int) -> bytes:
    missing = (full - len(values)) // _VALUES.itemsize
    return values + np.full(missing, np.nan, _VALUES).tobytes()


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


def count_points(session: Session, job_id: str) -> int:
    """Updates measured so far."""
    return int(session.scalar(select(func.count()).select_from(Metric).where(Metric.job_id == job_id)) or 0)
