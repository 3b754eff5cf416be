"""Queries for lists: pages by key, counts, and what many rows need together instead of one by one."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Select, String, and_, false, func, or_, select, true
from sqlalchemy.orm import Session, defer

from flash_grpo.errors import InputError, unknown_name
from flash_grpo_studio.app.jobs.states import ACTIVE
from flash_grpo_studio.app.store.tables import Event, Job, User

Key = tuple[Any, bool]
"""A column and whether it descends."""


@dataclass(frozen=True)
class Page:
    """Some rows, how many there are in all, and where the next page begins (None: there is none)."""

    rows: Sequence[Any]
    total: int
    next: str | None


def paged(session: Session, query: Select[Any], keys: Sequence[Key], limit: int, cursor: str | None) -> Page:
    """A page of `query` in the order of `keys`, which must tell all rows apart and hold no NULL.

    Going on by the last row's keys, not by a count, no row is told twice or missed when others come and go. Raises
    InputError for a cursor that is none.
    """
    count = query.with_only_columns(func.count(), maintain_column_froms=True).order_by(None)
    total = int(session.scalar(count) or 0)
    columns = [column for column, _ in keys]
    page = query.add_columns(*columns).order_by(*(column.desc() if down else column.asc() for column, down in keys))
    if cursor is not None:
        page = page.where(_after(keys, _read_cursor(cursor, [column for column, _ in keys])))
    rows = session.execute(page.limit(limit + 1)).all()
    more = len(rows) > limit
    rows = rows[:limit]
    following = _write_cursor(rows[-1][-len(keys) :]) if more and rows else None
    return Page([row[0] for row in rows], total, following)


def _after(keys: Sequence[Key], values: Sequence[Any]) -> ColumnElement[bool]:
    """Later than `values` in the order of `keys`."""
    choices: list[ColumnElement[bool]] = []
    equal: ColumnElement[bool] = true()
    for (column, down), value in zip(keys, values, strict=True):
        choices.append(and_(equal, column < value if down else column > value))
        equal = and_(equal, column == value)
    return or_(false(), *choices)


def _write_cursor(values: Sequence[Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(list(values)).encode()).decode().rstrip("=")


def _read_cursor(cursor: str, columns: Sequence[Any]) -> list[Any]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        values = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        values = None
    if not isinstance(values, list) or len(values) != len(columns) or not all(map(_fits, columns, values)):
        raise InputError("the cursor is none of this list; leave it out to begin anew")
    return values


def _fits(column: Any, value: Any) -> bool:
    """Whether a column can be compared with a value."""
    if column.type.python_type is str:
        return isinstance(value, str) and "\0" not in value and not any("\ud800" <= sign <= "\udfff" for sign in value)
    return isinstance(value, int | float) and abs(value) < 2**53 if not isinstance(value, bool) else False


@dataclass(frozen=True)
class JobFilter:
    """Which jobs; empty fields do not restrict."""

    states: Sequence[str] = ()
    kinds: Sequence[str] = ()
    owner: str | None = None
    text: str | None = None
    parent_id: str | None = None


SORTS: Mapping[str, tuple[Key, ...]] = {
    "-created": ((Job.created, True),),
    "created": ((Job.created, False),),
    "-changed": ((Job.changed, True),),
    "changed": ((Job.changed, False),),
    "name": ((func.lower(Job.name, type_=String), False),),
    "-name": ((func.lower(Job.name, type_=String), True),),
    "state": ((Job.state, False), (Job.created, True)),
    "queue": ((Job.priority, True), (Job.position, False)),
}


def jobs_page(
    session: Session, seen: ColumnElement[bool], wanted: JobFilter, sort: str, limit: int, cursor: str | None
) -> Page:
    """A page of the jobs an actor may see (`seen`), without their specs, which may be large."""
    if sort not in SORTS:
        raise unknown_name("sort", sort, SORTS)
    query = select(Job).where(seen).options(defer(Job.spec), defer(Job.result))
    if wanted.states:
        query = query.where(Job.state.in_(wanted.states))
    if wanted.kinds:
        query = query.where(Job.kind.in_(wanted.kinds))
    if wanted.owner:
        query = query.join(User, User.id == Job.owner_id).where(or_(User.id == wanted.owner, User.name == wanted.owner))
    if wanted.parent_id:
        query = query.where(Job.parent_id == wanted.parent_id)
    if wanted.text:
        pattern = f"%{escaped(wanted.text.lower())}%"
        query = query.where(or_(func.lower(Job.name).like(pattern, escape="\\"), Job.id == wanted.text))
    return paged(session, query, (*SORTS[sort], (Job.id, False)), limit, cursor)


def escaped(text: str) -> str:
    """A text for LIKE in which no sign has a meaning of its own."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def state_counts(session: Session, seen: ColumnElement[bool]) -> dict[str, int]:
    """How many visible jobs there are by state."""
    rows = session.execute(select(Job.state, func.count()).where(seen).group_by(Job.state))
    return dict(rows.all())


def queue_positions(session: Session, job_ids: Sequence[str]) -> dict[str, int]:
    """Places in the queue, from 1, of those of the jobs that are queued; one query for all."""
    if not job_ids:
        return {}
    place = func.row_number().over(order_by=(Job.priority.desc(), Job.position)).label("place")
    queue = select(Job.id, place).where(Job.state == "queued").subquery()
    return dict(session.execute(select(queue.c.id, queue.c.place).where(queue.c.id.in_(job_ids))).all())


def user_names(session: Session, user_ids: Sequence[str]) -> dict[str, str]:
    """Names by id."""
    query = select(User.id, User.name).where(User.id.in_(set(user_ids)))
    return dict(session.execute(query).all())


@dataclass(frozen=True)
class Happening:
    """An event with whose job it belongs to."""

    id: int
    job_id: str | None
    type: str
    time: float
    update: int | None
    attempt: int | None
    user_id: str | None
    data: Mapping[str, Any]
    owner_id: str | None
    shared: bool | None


def newest_event_id(session: Session) -> int:
    """The highest number given so far."""
    return int(session.scalar(select(func.max(Event.id))) or 0)


def happenings(session: Session, after: int, limit: int, job_id: str | None = None) -> list[Happening]:
    """Events of jobs, and deletions of jobs, with higher numbers than `after`, in order."""
    query = select(
        Event.id,
        Event.job_id,
        Event.type,
        Event.time,
        Event.update,
        Event.attempt,
        Event.user_id,
        Event.data,
        Job.owner_id,
        Job.shared,
    ).outerjoin(Job, Job.id == Event.job_id)
    of_jobs: ColumnElement[bool] = or_(Event.job_id.is_not(None), Event.type == "deleted")
    query = query.where(Event.id > after, of_jobs if job_id is None else Event.job_id == job_id)
    rows = session.execute(query.order_by(Event.id).limit(limit)).all()
    return [Happening(*row) for row in rows]


@dataclass(frozen=True)
class Tick:
    """Where an active job is."""

    id: str
    owner_id: str
    shared: bool
    data: dict[str, Any] = field(default_factory=dict)


def active_progress(session: Session) -> list[Tick]:
    """Progress of all jobs that a worker has."""
    query = select(
        Job.id, Job.owner_id, Job.shared, Job.state, Job.update, Job.updates, Job.progress, Job.device_seconds
    ).where(Job.state.in_(ACTIVE))
    found = []
    for id_, owner_id, shared, state, update, updates, progress, device_seconds in session.execute(query).all():
        data = {
            "job_id": id_,
            "state": state,
            "progress": {**progress, "update": update, "updates": updates},
            "device_minutes": round(device_seconds / 60, 4),
        }
        found.append(Tick(id_, owner_id, bool(shared), data))
    return found
