"""Jobs as clients see them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from flash_grpo_studio.app.api.base import PageOf, Person
from flash_grpo_studio.app.api.errors import problems
from flash_grpo_studio.app.api.estimates import Estimate, estimate
from flash_grpo_studio.app.jobs.access import Actor
from flash_grpo_studio.app.jobs.spec import Kind
from flash_grpo_studio.app.jobs.states import ACTIVE, TRANSITIONS, State
from flash_grpo_studio.app.jobs.workers import reason_to_wait
from flash_grpo_studio.app.store.listing import queue_positions, user_names
from flash_grpo_studio.app.store.metrics import last_values
from flash_grpo_studio.app.store.rates import read_rate
from flash_grpo_studio.app.store.tables import Attempt, Job, Worker

Action = Literal[
    "cancel", "pause", "resume", "retry", "save", "sample", "reorder", "edit", "configure", "clone", "delete"
]


class ProgressView(BaseModel):
    """Where a job is; numbers are null until the job has told them."""

    phase: str | None = Field(None, examples=["rollout"])
    update: int = 0
    updates: int | None = None
    elapsed_seconds: float | None = None
    eta_seconds: float | None = Field(None, description="What was left when this was told.")
    cost: float | None = Field(None, description="Network evaluations, a backward at its measured share.")
    nfe: int | None = Field(None, description="Network evaluations forward alone.")
    time: float | None = Field(None, description="When this was told, Unix seconds.")


class JobView(BaseModel):
    """A job in lists. Times are Unix seconds; budget and device_minutes are minutes times devices."""

    id: str
    kind: Kind
    name: str
    state: State
    preset: str | None
    owner: Person
    mine: bool
    shared: bool
    devices: int
    machines: int
    priority: int
    budget: float | None
    device_minutes: float
    retries: int
    max_retries: int
    parent_id: str | None
    cloned_from: str | None
    created: float
    started: float | None
    ended: float | None
    changed: float
    message: str = Field(description="Why it is in this state, as a sentence; may be empty.")
    waiting_reason: str | None = Field(None, description="Of a queued job: why it does not run yet.")
    queue_position: int | None = Field(None, description="Of a queued job: its place, from 1.")
    progress: ProgressView
    estimate: Estimate
    actions: list[Action] = Field(description="What you may do with it now.")


class AttemptView(BaseModel):
    """One start of a job."""

    number: int
    host: str
    devices: list[str]
    from_update: int | None
    started: float
    ended: float | None
    outcome: str | None
    exit_code: int | None
    message: str


class JobDetail(JobView):
    """A job with all there is to tell."""

    attempts: list[AttemptView]
    last_values: dict[str, float] = Field(description="The newest value of each metric series.")
    result: dict[str, Any] = Field(description="What a finished job found.")


class JobPage(PageOf):
    """A page of jobs."""

    jobs: list[JobView]
    states: dict[str, int] = Field(description="All visible jobs by state, whatever was filtered.")


SUBMITTED: dict[int | str, dict[str, Any]] = {
    **problems(404, 409, 507),
    200: {"model": JobView, "description": "The idempotency key was used before: that job."},
}


def actions(actor: Actor, job: Job) -> list[Action]:
    """What the actor may do with a job in its present state."""
    if "write" not in actor.scopes or actor.role == "viewer":
        return []
    found: list[Action] = ["clone"]
    if not (actor.admin or job.owner_id == actor.user_id):
        return found
    state: State = job.state  # type: ignore[assignment]
    active, ways = state in ACTIVE, TRANSITIONS[state]
    checks: tuple[tuple[Action, bool], ...] = (
        ("cancel", ("cancelling" if active else "cancelled") in ways),
        ("pause", ("pausing" if active else "paused") in ways),
        ("resume", state in ("paused", "cancelled")),
        ("retry", state in ("failed", "lost")),
        ("save", state == "running" and job.kind == "alignment"),
        ("sample", state == "running" and job.kind == "alignment"),
        ("reorder", state == "queued"),
        ("edit", True),
        ("configure", job.kind == "alignment" and state not in (*ACTIVE, "succeeded")),
        ("delete", not active),
    )
    return found + [action for action, allowed in checks if allowed]


def views(session: Session, actor: Actor, jobs: Sequence[Job]) -> list[JobView]:
    """Jobs for a list; what they need from other tables is asked once for all."""
    names = user_names(session, [job.owner_id for job in jobs])
    queued = [job.id for job in jobs if job.state == "queued"]
    places = queue_positions(session, queued)
    workers = session.scalars(select(Worker).where(Worker.state == "active")).all() if queued else []
    now, rate = time.time(), read_rate(session)
    found = []
    for job in jobs:
        place = places.get(job.id)
        reason = reason_to_wait(job, workers, place, now) if place is not None else None
        left = estimate(job, rate, now)
        found.append(JobView(**_fields(actor, job, names), queue_position=place, waiting_reason=reason, estimate=left))
    return found


def view(session: Session, actor: Actor, job: Job) -> JobView:
    """One job, briefly."""
    return views(session, actor, [job])[0]


def detail(session: Session, actor: Actor, job: Job) -> JobDetail:
    """One job, whole."""
    attempts = session.scalars(select(Attempt).where(Attempt.job_id == job.id).order_by(Attempt.number)).all()
    shown = [AttemptView(**{name: getattr(attempt, name) for name in AttemptView.model_fields}) for attempt in attempts]
    brief = view(session, actor, job)
    return JobDetail(
        **brief.model_dump(), attempts=shown, last_values=last_values(session, job.id), result=job.result or {}
    )


_SAME = (
    "id",
    "kind",
    "name",
    "state",
    "preset",
    "shared",
    "devices",
    "machines",
    "priority",
    "budget",
    "retries",
    "max_retries",
    "parent_id",
    "cloned_from",
    "created",
    "started",
    "ended",
    "changed",
    "message",
)


def _fields(actor: Actor, job: Job, names: dict[str, str]) -> dict[str, Any]:
    progress = {key: value for key, value in (job.progress or {}).items() if key in ProgressView.model_fields}
    return {name: getattr(job, name) for name in _SAME} | {
        "owner": Person(id=job.owner_id, name=names.get(job.owner_id, "")),
        "mine": job.owner_id == actor.user_id,
        "device_minutes": round(job.device_seconds / 60, 4),
        "progress": ProgressView(**{**progress, "update": job.update, "updates": job.updates}),
        "actions": actions(actor, job),
    }
