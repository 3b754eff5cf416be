"""How a job changes its state: one compare-and-set with its audit entry, and the errors of what cannot be."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, cast

from sqlalchemy import CursorResult, select, update
from sqlalchemy.orm import Session

from flash_grpo_studio.app.jobs.states import State, sources
from flash_grpo_studio.app.store.tables import Event, Job


class NotFound(Exception):
    """No such thing, or not this user's; the message tells nothing more."""


class IllegalTransition(Exception):
    """The job is in a state from which this is not possible."""

    def __init__(self, state: str, wish: str, advice: str = "") -> None:
        super().__init__(f"the job is {state}, so it cannot {wish}{'; ' + advice if advice else ''}")
        self.state = state


class Fenced(Exception):
    """Another worker is in charge of the job by now, or nobody: who sees this must leave the job alone."""


def move(
    session: Session,
    job_id: str,
    target: State,
    message: str = "",
    *,
    wish: str = "",
    origins: Iterable[State] | None = None,
    fence: int | None = None,
    user_id: str | None = None,
    **columns: Any,
) -> Job:
    """Bring a job into `target` and write the audit event; returns the job as it is now.

    origins: narrower than the legal ones. fence: refuse unless it is the job's present one. Other columns are set in
    the same statement. Raises NotFound, IllegalTransition (naming `wish`) or Fenced; then nothing has changed.
    """
    allowed = sources(target) if origins is None else tuple(set(origins) & set(sources(target)))
    before = session.scalar(select(Job.state).where(Job.id == job_id).with_for_update())
    now = time.time()
    statement = update(Job).where(Job.id == job_id, Job.state.in_(allowed))
    if fence is not None:
        statement = statement.where(Job.fence == fence)
    values = {"state": target, "message": message, "changed": now, **columns}
    result = cast("CursorResult[Any]", session.execute(statement.values(**values)))
    job = session.get(Job, job_id, populate_existing=True)
    if job is None:
        raise Fenced(f"the job {job_id} was deleted") if fence is not None else NotFound(f"no job {job_id!r}")
    if result.rowcount == 0:
        if fence is not None and job.fence != fence:
            raise Fenced(f"the job {job_id} is in other hands (fence {job.fence}, not {fence})")
        raise IllegalTransition(job.state, wish or f"become {target}")
    data = {"from": before, "to": target, "message": message}
    session.add(Event(job_id=job_id, type="state", user_id=user_id, data=data, update=job.update, attempt=job.fence))
    return job


def tell(session: Session, job_id: str | None, type_: str, user_id: str | None = None, **data: Any) -> None:
    """Write an event of the studio itself."""
    session.add(Event(job_id=job_id, type=type_, user_id=user_id, data=data))
