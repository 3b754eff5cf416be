"""Watching a job: curves, events, log, checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, Field
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from flash_grpo_studio.app.api.base import Cursor, JobId, Limit, PageOf, subject
from flash_grpo_studio.app.api.errors import problems
from flash_grpo_studio.app.api.who import Parts, Reader
from flash_grpo_studio.app.jobs.access import fetch, visible
from flash_grpo_studio.app.jobs.change import NotFound
from flash_grpo_studio.app.redaction import redact
from flash_grpo_studio.app.store.listing import paged
from flash_grpo_studio.app.store.tables import Attempt, Checkpoint, Event, Job, Metric

router = subject("watching")
LARGEST = 2**31 - 1


class SeriesView(BaseModel):
    """One curve: at `update`, the mean of the updates it stands for, and their lowest and highest."""

    update: list[int]
    value: list[float | None]
    low: list[float | None]
    high: list[float | None]


class EvaluationView(BaseModel):
    """Rewards on fixed prompts and seeds."""

    update: int
    split: str = Field(examples=["validation"])
    time: float
    rewards: dict[str, Any] = Field(description="Per reward its mean, `ci95` and more.")
    videos: int | None
    best: bool


class MetricsView(BaseModel):
    """Curves of a job."""

    series: dict[str, SeriesView]
    names: list[str] = Field(description="The series that were found, in order.")
    updates: int = Field(description="Updates the curves stand for.")
    last: int | None = Field(description="The newest update; pass it as `after` to get only what is new.")
    evaluations: list[EvaluationView]
    last_evaluation: int = Field(description="Pass it as `after_evaluation` to get only evaluations that are new.")


class EventView(BaseModel):
    """Something that happened to or in a job."""

    id: int
    job_id: str | None
    seq: int | None = Field(description="Number in the run's own log; null for what the studio tells.")
    attempt: int | None
    time: float
    type: str
    update: int | None
    user_id: str | None
    data: dict[str, Any]


class EventPage(PageOf):
    """A page of events."""

    events: list[EventView]


class LogView(BaseModel):
    """The end of a log."""

    text: str
    source: str = Field(examples=["run/log.txt"])
    bytes: int = Field(description="Size of the whole file.")
    truncated: bool = Field(description="Whether the beginning was left out.")
    sources: list[str] = Field(description="The logs there are.")


class CheckpointView(BaseModel):
    """A checkpoint on disk."""

    id: str
    update: int
    best: bool
    created: float


class CheckpointList(BaseModel):
    """Checkpoints, newest first."""

    checkpoints: list[CheckpointView]


class RunCheckpoint(CheckpointView):
    """A checkpoint and the alignment it is of."""

    job_id: str
    job_name: str
    job_state: str


class CheckpointPage(PageOf):
    """A page of checkpoints."""

    checkpoints: list[RunCheckpoint]


@router.get("/jobs/{job_id}/metrics", response_model=MetricsView, responses=problems(404), summary="Curves")
def get_metrics(
    studio: Parts,
    actor: Reader,
    job_id: JobId,
    points: Annotated[int, Query(ge=2, le=5000, description="Most points of each curve.")] = 500,
    series: Annotated[
        str | None, Query(max_length=4000, description="Names, or beginnings that end in `/`, joined by commas.")
    ] = None,
    after: Annotated[int, Query(ge=-1, le=LARGEST, description="Only later updates.")] = -1,
    after_evaluation: Annotated[
        int, Query(ge=0, le=2**62, description="`last_evaluation` of an earlier answer: only later evaluations.")
    ] = 0,
) -> MetricsView:
    """A job's curves with at most `points` points; of spikes between them `low` and `high` still tell."""
    names = [name for name in series.split(",") if name] if series is not None else None
    with studio.store.reading() as session:
        job = fetch(session, actor, Job, job_id)
        found, updates = studio.curves.read(session, job.id, points, names, after)
        last = session.scalar(select(func.max(Metric.update)).where(Metric.job_id == job.id))
        evaluations, newest = _evaluations(session, job.id, after_evaluation)
    shown = {name: SeriesView.model_construct(**vars(curve)) for name, curve in sorted(found.items())}
    return MetricsView(
        series=shown,
        names=list(shown),
        updates=updates,
        last=last,
        evaluations=evaluations,
        last_evaluation=newest,
    )


def _evaluations(session: Session, job_id: str, after: int) -> tuple[list[EvaluationView], int]:
    """Evaluations told after the event of that number, and the number of the newest."""
    query = select(Event).where(Event.job_id == job_id, Event.type == "evaluation", Event.id > after)
    events = session.scalars(query.order_by(Event.id).limit(10_000)).all()
    found = [
        EvaluationView(
            update=event.update or 0,
            split=str(event.data.get("split", "")),
            time=event.time,
            rewards=event.data.get("rewards") or {},
            videos=event.data.get("videos"),
            best=bool(event.data.get("best")),
        )
        for event in events
    ]
    return found, events[-1].id if events else after


def event_view(event: Event) -> EventView:
    """An event as clients see it."""
    return EventView(**{name: getattr(event, name) for name in EventView.model_fields})


@router.get("/jobs/{job_id}/events", response_model=EventPage, responses=problems(404), summary="Events")
def list_events(
    studio: Parts,
    actor: Reader,
    job_id: JobId,
    type: Annotated[list[str] | None, Query(max_length=50, description="Only these types; may be repeated.")] = None,
    order: Literal["newest", "oldest"] = "newest",
    limit: Limit = 100,
    cursor: Cursor = None,
) -> EventPage:
    """State changes, what the run told, and what people did, page by page."""
    with studio.store.reading() as session:
        job = fetch(session, actor, Job, job_id)
        query = select(Event).where(Event.job_id == job.id)
        if type:
            query = query.where(Event.type.in_(type))
        page = paged(session, query, [(Event.id, order == "newest")], limit, cursor)
        return EventPage(events=[event_view(event) for event in page.rows], total=page.total, next=page.next)


@router.get("/jobs/{job_id}/log", response_model=LogView, responses=problems(404), summary="The end of a log")
def get_log(
    studio: Parts,
    actor: Reader,
    job_id: JobId,
    source: Annotated[
        str | None, Query(max_length=100, description="One of `sources`; the newest attempt's output where missing.")
    ] = None,
    tail: Annotated[int, Query(ge=1, le=2**20, description="Most bytes, from the end.")] = 65536,
) -> LogView:
    """What a job's processes wrote. Passwords and tokens are blotted out."""
    with studio.store.reading() as session:
        job = fetch(session, actor, Job, job_id)
        numbers = session.scalars(select(Attempt.number).where(Attempt.job_id == job.id)).all()
    folder = studio.workspace.job(job.id)
    sources = _log_sources(folder, sorted(numbers))
    chosen = source if source is not None else (sources[-1] if sources else "")
    if source is not None and source not in sources:
        raise NotFound(f"no log {source!r} of this job")
    text, size = _tail(folder / chosen, tail) if chosen else ("", 0)
    return LogView(text=text, source=chosen, bytes=size, truncated=size > tail, sources=sources)


def _log_sources(folder: Path, attempts: Sequence[int]) -> list[str]:
    names = ["run/log.txt", *(f"attempts/{number}/output.txt" for number in attempts)]
    return [name for name in names if (folder / name).is_file()]


def _tail(path: Path, most: int) -> tuple[str, int]:
    """The last bytes of a file as text that begins with a whole line, secrets removed."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - most))
        content = file.read(most)
    if size > most:
        content = content.partition(b"\n")[2] or content
    return redact(content.decode("utf-8", "replace").replace("\0", "\ufffd")), size


@router.get("/jobs/{job_id}/checkpoints", response_model=CheckpointList, responses=problems(404), summary="Checkpoints")
def list_checkpoints(studio: Parts, actor: Reader, job_id: JobId) -> CheckpointList:
    """An alignment's checkpoints, newest first."""
    with studio.store.reading() as session:
        job = fetch(session, actor, Job, job_id)
        query = select(Checkpoint).where(Checkpoint.job_id == job.id).order_by(Checkpoint.update.desc())
        rows = session.scalars(query).all()
    shown = [CheckpointView(id=row.id, update=row.update, best=row.best, created=row.created) for row in rows]
    return CheckpointList(checkpoints=shown)


@router.get("/checkpoints", response_model=CheckpointPage, summary="Checkpoints of all alignments")
def list_all_checkpoints(
    studio: Parts,
    actor: Reader,
    best: Annotated[bool, Query(description="Only the best one of each alignment.")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> CheckpointPage:
    """Checkpoints of the alignments one may see, newest first."""
    query = select(Checkpoint).join(Job, Job.id == Checkpoint.job_id).where(visible(actor, Job))
    if best:
        query = query.where(Checkpoint.best)
    with studio.store.reading() as session:
        page = paged(session, query, [(Checkpoint.created, True), (Checkpoint.id, False)], limit, cursor)
        wanted = select(Job.id, Job.name, Job.state).where(Job.id.in_([row.job_id for row in page.rows]))
        jobs = {id_: (name, state) for id_, name, state in session.execute(wanted)}
    shown = [
        RunCheckpoint(
            **{name: getattr(row, name) for name in ("id", "update", "best", "created", "job_id")},
            job_name=jobs[row.job_id][0],
            job_state=jobs[row.job_id][1],
        )
        for row in page.rows
    ]
    return CheckpointPage(checkpoints=shown, total=page.total, next=page.next)
