"""How a worker comes by a job: devices leased and the job claimed in one transaction, or neither."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import CursorResult, delete, func, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, defer

from flash_grpo_studio.app.jobs.change import Fenced, move, tell
from flash_grpo_studio.app.jobs.states import ACTIVE
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.tables import Attempt, Checkpoint, DeviceLease, Job, Worker

MAX_BACKOFF_SECONDS = 600.0
LIGHT_JOBS = 2
"""Jobs without a device (downloads, exports, normalisation) that a worker runs beside the others."""
LOOKED_AT = 200


@dataclass(frozen=True)
class Claim:
    """A worker's right to run a job: every write for it names `fence`, and an outdated one writes nothing."""

    job_id: str
    fence: int
    attempt: int
    kind: str
    folder: str
    spec: dict[str, Any]
    devices: tuple[str, ...]
    intake_offset: int = 0
    process: int | None = None
    process_started: float | None = None


def claim(store: Store, worker_id: str) -> Claim | None:
    """Take the first job of the queue that this worker may start now; None if there is none.

    Strictly in order of priority and position among the jobs the worker can serve: where the first needs more devices
    than are free, it waits for them and nothing behind it that needs devices overtakes it.
    """
    try:
        with store.writing() as session:
            return _claim(session, worker_id)
    except IntegrityError:
        return None  # another worker of this machine leased the same device a moment ago


def _claim(session: Session, worker_id: str) -> Claim | None:
    worker = session.get(Worker, worker_id)
    if worker is None or worker.state != "active":
        return None
    names = [str(device["name"]) for device in worker.devices]
    taken = set(session.scalars(select(DeviceLease.device).where(DeviceLease.host == worker.host)))
    free = [name for name in names if name not in taken]
    light = session.scalar(
        select(func.count()).select_from(Job).where(Job.worker_id == worker_id, Job.devices == 0, Job.state.in_(ACTIVE))
    )
    spare = int(light or 0) < LIGHT_JOBS
    for job in _queue(session, len(names) if free else 0, spare):
        if job.devices > len(free):
            free = []  # the devices that are free are kept for this one
            continue
        if (chosen := _take(session, worker, job, free[: job.devices])) is not None:
            return chosen
    return None


def due(job: Job, now: float) -> bool:
    """Whether a retry's pause is over; a clock that was set back never makes it longer than the longest pause."""
    return job.not_before is None or now >= job.not_before or job.not_before - now > MAX_BACKOFF_SECONDS


def _queue(session: Session, devices: int, light: bool) -> Iterator[Job]:
    """Queued jobs that are due and that `devices` devices can serve, in order; `light`: also those that need none.

    Their specs, which may be large, stay in the database: this is asked every few seconds, with the write lock held.
    """
    now = time.time()
    ready = or_(Job.not_before.is_(None), Job.not_before <= now, Job.not_before > now + MAX_BACKOFF_SECONDS)
    query = (
        select(Job)
        .where(Job.state == "queued", Job.devices.between(0 if light else 1, devices), ready)
        .options(defer(Job.spec), defer(Job.result))
        .order_by(Job.priority.desc(), Job.position)
        .limit(LOOKED_AT)
    )
    yield from session.scalars(query).all()


def _take(session: Session, worker: Worker, job: Job, devices: Sequence[str]) -> Claim | None:
    locked = session.scalar(
        select(Job).where(Job.id == job.id, Job.state == "queued").with_for_update(skip_locked=True)
    )
    if locked is None:
        return None
    fence = job.fence + 1
    number = 1 + int(session.scalar(select(func.max(Attempt.number)).where(Attempt.job_id == job.id)) or 0)
    for device in devices:
        session.add(DeviceLease(host=worker.host, device=device, job_id=job.id, fence=fence, worker_id=worker.id))
    attempt = Attempt(job_id=job.id, number=number, worker_id=worker.id, host=worker.host, devices=list(devices))
    attempt.from_update = newest_checkpoint(session, job.id)  # until the run itself says where it goes on
    session.add(attempt)
    where = f"{worker.host} ({', '.join(devices) or 'no device'})"
    started = job.started or time.time()
    job = move(
        session,
        job.id,
        "starting",
        f"starting on {where}",
        origins=("queued",),
        fence=job.fence,
        worker_id=worker.id,
        started=started,
    )
    session.execute(update(Job).where(Job.id == job.id).values(fence=fence))
    session.flush()
    return Claim(job.id, fence, number, job.kind, job.folder, job.spec, tuple(devices), intake_offset=job.intake_offset)


def adopt(store: Store, job_id: str, fence: int, worker_id: str) -> Claim | None:
    """Take over a job that another worker left, with its leases and its running process; None if somebody was faster.

    The fence grows, so that of two workers adopting one run one fails, and the former owner writes nothing more.
    """
    with store.writing() as session:
        worker = session.get_one(Worker, worker_id)
        statement = update(Job).where(Job.id == job_id, Job.fence == fence, Job.state.in_(ACTIVE))
        result = cast("CursorResult[Any]", session.execute(statement.values(fence=fence + 1, worker_id=worker_id)))
        if result.rowcount != 1:
            return None
        leases = update(DeviceLease).where(DeviceLease.job_id == job_id)
        session.execute(leases.values(fence=fence + 1, worker_id=worker_id))
        attempt = session.scalar(
            select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.number.desc()).limit(1)
        )
        if attempt is None:
            raise Fenced(f"the job {job_id} is active without an attempt")
        attempt.worker_id = worker_id
        job = session.get_one(Job, job_id, populate_existing=True)
        tell(session, job_id, "adopted", worker=worker_id, host=worker.host)
        return Claim(
            job_id,
            fence + 1,
            attempt.number,
            job.kind,
            job.folder,
            job.spec,
            tuple(attempt.devices),
            job.intake_offset,
            attempt.process,
            attempt.process_started,
        )


def newest_checkpoint(session: Session, job_id: str) -> int | None:
    """The update from which another start would go on; None where it begins anew."""
    found: int | None = session.scalar(select(func.max(Checkpoint.update)).where(Checkpoint.job_id == job_id))
    return found


def release(session: Session, job_id: str) -> None:
    """Free the devices of a job."""
    session.execute(delete(DeviceLease).where(DeviceLease.job_id == job_id))
