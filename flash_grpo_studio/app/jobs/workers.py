"""Workers as the store knows them: who they are, that they live, and what becomes of jobs whose worker does not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from flash_grpo.errors import InputError
from flash_grpo_studio.app.jobs.attempts import lose
from flash_grpo_studio.app.jobs.change import NotFound
from flash_grpo_studio.app.jobs.leases import due
from flash_grpo_studio.app.jobs.states import ACTIVE
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.tables import DeviceLease, Job, Worker

BEAT_SECONDS = 2.0
SILENT_SECONDS = 20.0
"""A worker that gave no sign of life for this long is gone; measured by the clock of whoever watches."""
KEPT_SECONDS = 7 * 86400.0


def register(
    store: Store,
    host: str,
    process: int,
    process_started: float,
    version: str,
    devices: Sequence[dict[str, Any]],
    facts: dict[str, Any],
) -> str:
    """Enter a worker; returns its id. Old entries of gone workers are cleared away."""
    with store.writing() as session:
        old = (Worker.state == "gone") & (Worker.seen < time.time() - KEPT_SECONDS)
        session.execute(delete(Worker).where(old))
        worker = Worker(
            host=host,
            process=process,
            process_started=process_started,
            version=version,
            devices=list(devices),
            facts=facts,
        )
        session.add(worker)
        session.flush()
        return worker.id


def beat(store: Store, worker_id: str, facts: dict[str, Any] | None = None) -> str:
    """Give a sign of life; returns the worker's state (active, draining, or gone if it was given up meanwhile)."""
    with store.writing() as session:
        values: dict[str, Any] = {"beat": Worker.beat + 1, "seen": time.time()}
        if facts is not None:
            values["facts"] = facts
        session.execute(update(Worker).where(Worker.id == worker_id).values(values))
        state = session.scalar(select(Worker.state).where(Worker.id == worker_id))
        return state or "gone"


def retire(store: Store, worker_id: str) -> None:
    """A worker has stopped in good order, and has no jobs any more."""
    with store.writing() as session:
        session.execute(update(Worker).where(Worker.id == worker_id).values(state="gone", seen=time.time()))


def drain(store: Store, worker_id: str, on: bool) -> None:
    """Let a worker finish what it has and take nothing new, or end that. Raises NotFound."""
    with store.writing() as session:
        worker = session.get(Worker, worker_id)
        if worker is None or worker.state == "gone":
            raise NotFound(f"no worker {worker_id!r}")
        worker.state = "draining" if on else "active"


def give_up(store: Store, worker_id: str, why: str) -> list[str]:
    """Declare a worker gone, its jobs lost and its leases free; returns the ids of the jobs."""
    with store.writing() as session:
        session.execute(update(Worker).where(Worker.id == worker_id).values(state="gone"))
        jobs = session.scalars(select(Job).where(Job.worker_id == worker_id, Job.state.in_(ACTIVE))).all()
        for job in jobs:
            lose(session, job, why)
        session.execute(delete(DeviceLease).where(DeviceLease.worker_id == worker_id))
        return [job.id for job in jobs]


@dataclass
class Watch:
    """Looks for workers that have gone silent. Every app and worker keeps one; who is first acts, the others find it
    done. It trusts no clock but its own monotonic one, so neither a clock that jumps nor one that differs kills a job.
    Silence counts only while this watch could have heard something: after a gap, as when the database was away for
    everybody, it begins anew.
    """

    store: Store
    silent_seconds: float = SILENT_SECONDS
    _heard: dict[str, tuple[int, float]] = field(default_factory=dict)
    _looked: float | None = None

    def look(self, now: float | None = None) -> list[str]:
        """Give up the workers that stayed silent; returns the ids of the jobs that were lost by it."""
        now = time.monotonic() if now is None else now
        with self.store.reading() as session:
            alive = session.execute(select(Worker.id, Worker.host, Worker.beat).where(Worker.state != "gone")).all()
        deaf = self._looked is not None and now - self._looked > self.silent_seconds / 2
        self._looked = now
        self._heard = {id_: self._heard[id_] for id_, _, _ in alive if id_ in self._heard and not deaf}
        lost = []
        for id_, host, count in alive:
            known, since = self._heard.get(id_, (-1, now))
            if known != count:
                self._heard[id_] = (count, now)
            elif now - since > self.silent_seconds:
                lost += give_up(self.store, id_, f"the worker on {host} gave no sign of life")
        return lost


def waiting_reason(session: Session, job: Job) -> str:
    """Why a queued job does not run yet, as a sentence; empty for other jobs."""
    if job.state != "queued":
        return ""
    workers = session.scalars(select(Worker).where(Worker.state == "active")).all()
    return reason_to_wait(job, workers, queue_position(session, job), time.time())


def reason_to_wait(job: Job, workers: Sequence[Worker], place: int, now: float) -> str:
    """`waiting_reason` of a queued job at a `place` of the queue (from 1), for callers that know it and the workers."""
    if not workers:
        return "no worker is running; start one with: flash-grpo worker"
    largest = max(len(worker.devices) for worker in workers)
    if job.devices > largest:
        return f"it asks for {job.devices} devices on one machine, and the largest has {largest}"
    if not due(job, now):
        return f"it is tried again in {max(1, round((job.not_before or now) - now))} s"
    if ahead := place - 1:
        return f"{ahead} {'job is' if ahead == 1 else 'jobs are'} before it"
    return "it waits for free devices"


def queue_position(session: Session, job: Job) -> int:
    """Place in the queue, from 1."""
    earlier = (Job.priority > job.priority) | ((Job.priority == job.priority) & (Job.position < job.position))
    query = select(func.count()).select_from(Job).where(Job.state == "queued", earlier)
    return 1 + int(session.scalar(query) or 0)


def check_version(present: str, of_store: str) -> None:
    """InputError if a worker's version is not the one the store was made for."""
    if present != of_store:
        raise InputError(f"this is version {present} and the studio runs version {of_store}; update this one")
