"""From a run's events to rows: idempotent, fenced, and folding what a later attempt supersedes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from sqlalchemy import CursorResult, and_, delete, or_, select, update
from sqlalchemy.orm import Session

from flash_grpo.events import Record
from flash_grpo_studio.app.store.metrics import Point, drop_points, flatten, insert_of, put_points
from flash_grpo_studio.app.store.tables import Attempt, Checkpoint, Event, Job, Video, new_id, new_revision

ENDINGS = ("finished", "failed")
_COUNTED = ("progress", "metrics")
"""Kept as progress of the job and as metric points, not as events."""


@dataclass(frozen=True)
class VideoFacts:
    """A video a run wrote; `path` is relative to the workspace."""

    path: str
    bytes: int
    update: int | None = None
    side: str | None = None
    prompt_id: str | None = None
    prompt: str | None = None
    seed: int | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    strength: float | None = None
    noise: int | None = None


DescribeVideos = Callable[[Record], Sequence[VideoFacts]]


def take_in(
    session: Session,
    job_id: str,
    fence: int,
    records: Sequence[Record],
    offsets: tuple[int, int],
    describe_videos: DescribeVideos,
    device_seconds: float = 0.0,
) -> bool:
    """Write a stretch of a run's log into the store, in the caller's transaction.

    offsets: bytes before and after the stretch; it is taken in only by the worker in charge (`fence`) and only if the
    store is at its beginning, so a stretch counts once whoever offers it again. Returns whether it was taken in.
    """
    before, after = offsets
    statement = update(Job).where(Job.id == job_id, Job.fence == fence, Job.intake_offset == before)
    values = {"intake_offset": after, "device_seconds": Job.device_seconds + device_seconds}
    result = cast("CursorResult[Any]", session.execute(statement.values(values)))
    if result.rowcount != 1:
        return False
    job = session.get_one(Job, job_id, populate_existing=True)
    for stretch in _stretches(records):
        if stretch[0].type == "resumed":
            _fold(session, job, stretch[0])
        _take_stretch(session, job, stretch, describe_videos)
    return True


def _stretches(records: Sequence[Record]) -> list[list[Record]]:
    """Parts that may be written in bulk: each `resumed` begins a new one, as it removes what lies before."""
    found: list[list[Record]] = []
    for record in records:
        if not found or record.type == "resumed":
            found.append([])
        found[-1].append(record)
    return found


def _take_stretch(session: Session, job: Job, records: Sequence[Record], describe_videos: DescribeVideos) -> None:
    points = [
        Point(record.data["update"], record.attempt, record.time, flatten(record.data))
        for record in records
        if record.type == "metrics"
    ]
    put_points(session, job.id, points)
    if points:
        job.update = max(job.update, points[-1].update)
    _take_progress(job, records)
    events = [_event(job.id, record) for record in records if record.type not in _COUNTED]
    if events:
        insert = insert_of(session)(Event).on_conflict_do_nothing(index_elements=["job_id", "seq"])
        session.execute(insert, events)
    for record in records:
        if record.type == "samples":
            put_videos(session, job, describe_videos(record))
        elif record.type == "checkpoint":
            _put_checkpoint(session, job, record)
        elif record.type in ENDINGS:
            _note_ending(session, job, record)


def _event(job_id: str, record: Record) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "seq": record.seq,
        "attempt": record.attempt,
        "time": record.time,
        "type": record.type[:32],
        "update": record.update,
        "data": dict(record.data),
    }


def _take_progress(job: Job, records: Sequence[Record]) -> None:
    last = next((record for record in reversed(records) if record.type == "progress"), None)
    if last is None:
        return
    job.progress = {**last.data, "time": last.time}
    job.update = max(job.update, int(last.data.get("update") or 0)) if job.kind != "alignment" else job.update
    if last.data.get("updates"):
        job.updates = int(last.data["updates"])


def _fold(session: Session, job: Job, record: Record) -> None:
    """Remove what a resumed run does anew, as `flash_grpo.events.read_events` does for readers of the log."""
    last = int(record.data["from_update"])
    drop_points(session, job.id, last)
    old = (Event.job_id == job.id) & (Event.seq.is_not(None)) & (Event.attempt < record.attempt)
    report = and_(Event.type == "evaluation", Event.update > 0, Event.data["split"].as_string() == "heldout")
    superseded = or_(Event.update > last, Event.type.in_(ENDINGS), report)
    session.execute(delete(Event).where(old, superseded))
    session.execute(delete(Checkpoint).where(Checkpoint.job_id == job.id, Checkpoint.update > last))
    job.update = last
    attempt = _newest_attempt(session, job)
    if attempt is not None:
        attempt.from_update, attempt.ending = last, None


def put_videos(session: Session, job: Job, videos: Sequence[VideoFacts]) -> None:
    """Add or renew rows of videos; a video keeps its id for as long as its path."""
    if not videos:
        return
    rows = [
        {
            "id": new_id(),
            "owner_id": job.owner_id,
            "job_id": job.id,
            "path": video.path,
            "bytes": video.bytes,
            "update": video.update,
            "side": video.side,
            "prompt_id": video.prompt_id,
            "prompt": video.prompt,
            "seed": video.seed,
            "strength": video.strength,
            "noise": video.noise,
            "revision": new_revision(),
            "scores": dict(video.scores),
        }
        for video in videos
    ]
    insert = insert_of(session)(Video)
    renewed = {name: insert.excluded[name] for name in rows[0] if name not in ("id", "owner_id", "job_id", "path")}
    session.execute(insert.on_conflict_do_update(index_elements=["job_id", "path"], set_=renewed), rows)


def _put_checkpoint(session: Session, job: Job, record: Record) -> None:
    best = bool(record.data.get("best"))
    if best:
        session.execute(update(Checkpoint).where(Checkpoint.job_id == job.id).values(best=False))
    row = {
        "id": new_id(),
        "job_id": job.id,
        "update": record.data["update"],
        "path": f"{job.folder}/run/{record.data['path']}",
        "best": best,
        "created": record.time,
    }
    insert = insert_of(session)(Checkpoint)
    renewed = {name: insert.excluded[name] for name in ("path", "best", "created")}
    session.execute(insert.on_conflict_do_update(index_elements=["job_id", "update"], set_=renewed), [row])


def _note_ending(session: Session, job: Job, record: Record) -> None:
    attempt = _newest_attempt(session, job)
    if attempt is not None:
        attempt.ending = {"type": record.type, **record.data}


def _newest_attempt(session: Session, job: Job) -> Attempt | None:
    query = select(Attempt).where(Attempt.job_id == job.id).order_by(Attempt.number.desc()).limit(1)
    return session.scalar(query)
