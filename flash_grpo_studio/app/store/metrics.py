"""Metric series: from a metrics event to a row of values."""

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
VALUES = np.dtype("<f8")


@dataclass(frozen=True)
class Point:
    """All values of one update by series name."""

    update: int
    attempt: int
    time: float
    values: Mapping[str, float]


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
        values = np.full(len(places), np.nan, VALUES)
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
    return {name: float(value) for name, value in zip(names, np.frombuffer(row, VALUES)) if not np.isnan(value)}  # noqa: B905


def count_points(session: Session, job_id: str) -> int:
    """Updates measured so far."""
    return int(session.scalar(select(func.count()).select_from(Metric).where(Metric.job_id == job_id)) or 0)
