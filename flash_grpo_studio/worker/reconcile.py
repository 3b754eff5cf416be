"""Putting store and machine back in step: runs whose worker died are adopted, orphans ended, forgotten leases freed."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from flash_grpo_studio.app.jobs.attempts import lose
from flash_grpo_studio.app.jobs.leases import Claim, adopt
from flash_grpo_studio.app.jobs.states import ACTIVE
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.tables import Attempt, DeviceLease, Job, Worker
from flash_grpo_studio.worker.launch import Ground
from flash_grpo_studio.worker.processes import Found, alive, end_politely, tagged

log = logging.getLogger(__name__)
ORPHAN_SECONDS = 20.0
"""A process without a job is left this long to whoever may be ending it, or about to adopt it."""


@dataclass(frozen=True)
class _Left:
    job_id: str
    fence: int
    host: str | None


@dataclass
class Reconciler:
    """One worker's look around on its own machine. Runs in the thread that claims, so the two never cross."""

    store: Store
    ground: Ground
    orphan_seconds: float = ORPHAN_SECONDS
    term_seconds: float = 8.0
    _orphans: dict[tuple[int, float], float] = field(default_factory=dict)

    def look(self, worker_id: str, supervised: Collection[str]) -> list[Claim]:
        """Adopt jobs without a worker and free forgotten leases; returns the claims, to be supervised by the caller.

        supervised: jobs this worker has in hand.
        """
        adopted = self._adopt_left(worker_id, supervised)
        self._free_leases()
        return adopted

    def end_orphans(self, worker_id: str, supervised: Collection[str], at_start: bool = False) -> None:
        """End processes of this studio's runs whose job is over, deleted, or active on another machine.

        Comes after the worker has claimed what it can, as a claim adopts a living process of a job that was queued
        again. at_start: unless another worker lives here, there is nobody who could be ending an orphan already.
        """
        alone = at_start and not self._neighbours(worker_id)
        self._end_orphans(supervised, 0.0 if alone else self.orphan_seconds)

    # jobs without a worker ---------------------------------------------------------------------------------------

    def _adopt_left(self, worker_id: str, supervised: Collection[str]) -> list[Claim]:
        with self.store.reading() as session:
            dead = self._dead_workers(session, worker_id)
            left = _left(session, worker_id, dead, supervised)
        adopted = []
        for job in left:
            if job.host == self.ground.host:
                claim = adopt(self.store, job.job_id, job.fence, worker_id)
                if claim is not None:
                    adopted.append(claim)
                    log.info("job %s: adopted from a worker that is gone", job.job_id)
            else:
                self._lose(job)
        for id_ in dead:
            self._bury(id_)
        return adopted

    def _dead_workers(self, session: Session, worker_id: str) -> list[str]:
        """Workers of this machine that the store believes alive and whose process is not."""
        query = select(Worker).where(Worker.host == self.ground.host, Worker.state != "gone", Worker.id != worker_id)
        return [worker.id for worker in session.scalars(query) if not alive(worker.process, worker.process_started)]

    def _bury(self, worker_id: str) -> None:
        """Note that a worker is gone; its jobs have other owners by now, and whoever was faster keeps them."""
        with self.store.writing() as session:
            remaining = select(Job.id).where(Job.worker_id == worker_id, Job.state.in_(ACTIVE)).limit(1)
            if session.scalar(remaining) is None:
                session.execute(update(Worker).where(Worker.id == worker_id).values(state="gone"))

    def _lose(self, left: _Left) -> None:
        """A job of another machine whose worker has retired or was given up, and that was forgotten in between."""
        with self.store.writing() as session:
            job = session.get(Job, left.job_id)
            if job is not None and job.fence == left.fence and job.state in ACTIVE:
                lose(session, job, "its worker is gone")
                log.info("job %s: lost, as its worker on %s is gone", job.id, left.host)

    # leases and processes without a job --------------------------------------------------------------------------

    def _free_leases(self) -> None:
        forgotten = DeviceLease.job_id.not_in(select(Job.id).where(Job.state.in_(ACTIVE)))
        with self.store.reading() as session:
            found = session.execute(select(DeviceLease.device, DeviceLease.job_id).where(forgotten)).all()
        if not found:
            return
        with self.store.writing() as session:
            session.execute(delete(DeviceLease).where(forgotten))
        for device, job_id in found:
            log.info("freed %s, which job %s no longer uses", device, job_id)

    def _neighbours(self, worker_id: str) -> bool:
        """Whether another worker lives on this machine, who may have orphans in hand."""
        with self.store.reading() as session:
            query = select(Worker).where(Worker.host == self.ground.host, Worker.state != "gone")
            others = [worker for worker in session.scalars(query) if worker.id != worker_id]
        return any(alive(worker.process, worker.process_started) for worker in others)

    def _end_orphans(self, supervised: Collection[str], patience: float) -> None:
        # Processes first, then the store: what was started after the look cannot seem to be without a job.
        present = [one for one in tagged(self.ground.studio) if one.job_id not in supervised]
        present = self._without_job(present) if present else []
        now = time.monotonic()
        self._orphans = {(one.pid, one.born): self._orphans.get((one.pid, one.born), now) for one in present}
        due = {one.job_id for one in present if now - self._orphans[(one.pid, one.born)] >= patience}
        for job_id in sorted(filter(None, due)):
            log.warning("ending the processes of job %s, which nobody has in hand", job_id)
            end_politely(lambda job=job_id: tagged(self.ground.studio, job), self.term_seconds)  # type: ignore[misc]

    def _without_job(self, present: list[Found]) -> list[Found]:
        newest = select(Attempt.host).where(Attempt.job_id == Job.id).order_by(Attempt.number.desc()).limit(1)
        query = select(Job.id).where(
            Job.id.in_({one.job_id for one in present}),
            Job.state.in_(ACTIVE),
            newest.scalar_subquery() == self.ground.host,
        )
        with self.store.reading() as session:
            cared_for = set(session.scalars(query))
        return [one for one in present if one.job_id not in cared_for]


def _left(session: Session, worker_id: str, dead: Collection[str], supervised: Collection[str]) -> list[_Left]:
    """Active jobs in nobody's hands: their worker is dead or unknown, or this one without knowing it."""
    living = set(session.scalars(select(Worker.id).where(Worker.state != "gone"))) - set(dead)
    found = []
    for job in session.scalars(select(Job).where(Job.state.in_(ACTIVE))):
        if job.id in supervised or (job.worker_id in living and job.worker_id != worker_id):
            continue
        query = select(Attempt.host).where(Attempt.job_id == job.id).order_by(Attempt.number.desc()).limit(1)
        found.append(_Left(job.id, job.fence, session.scalar(query)))
    return found
