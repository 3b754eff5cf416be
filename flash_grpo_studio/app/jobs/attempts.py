"""What becomes of an attempt, as the worker in charge tells it: started, ended, died, given back."""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from flash_grpo_studio.app.jobs.change import Fenced, move
from flash_grpo_studio.app.jobs.leases import MAX_BACKOFF_SECONDS, Claim, newest_checkpoint, release
from flash_grpo_studio.app.jobs.states import State
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.tables import Attempt, Job

FIRST_BACKOFF_SECONDS = 2.0


def started(store: Store, claim: Claim, process: int, process_started: float) -> None:
    """Note the process of an attempt; a job that was asked to pause or cancel meanwhile keeps that state."""
    with store.writing() as session:
        job = _held(session, claim)
        attempt = _attempt(session, claim)
        attempt.process, attempt.process_started = process, process_started
        if job.state == "starting":
            move(session, claim.job_id, "running", fence=claim.fence)


def wish_of(store: Store, claim: Claim) -> str:
    """The job's present state, by which a person's wish reaches the worker; Fenced if it is in other hands."""
    with store.reading() as session:
        return _held(session, claim).state


def ended(
    store: Store,
    claim: Claim,
    target: State,
    message: str,
    exit_code: int | None = None,
    result: dict[str, Any] | None = None,
) -> None:
    """The attempt is over, its processes are gone: free the devices and bring the job into `target`.

    target: succeeded, failed, paused, cancelled, or queued to be continued as soon as a worker is there.
    """
    with store.writing() as session:
        _end(session, claim, target, message, exit_code, result)


def died(store: Store, claim: Claim, message: str, exit_code: int | None = None) -> State:
    """The processes died before the run said how it ended. Returns the state the job has now.

    The job is lost, then queued to go on from its newest checkpoint after a pause that doubles, or failed when it died
    `max_retries` times without progress. What a person had asked for meanwhile, pause or cancel, is done by this.
    """
    with store.writing() as session:
        return lose(session, _held(session, claim), message, exit_code)


def lose(session: Session, job: Job, message: str, exit_code: int | None = None) -> State:
    """`died`, within a transaction, also for a job whose worker has vanished; its fence grows."""
    attempt = _newest(session, job)
    if attempt is not None and attempt.outcome is None:
        attempt.outcome, attempt.ended, attempt.exit_code, attempt.message = "lost", time.time(), exit_code, message
    release(session, job.id)
    outdated = job.fence + 1
    if job.state in ("cancelling", "pausing"):
        asked: State = "cancelled" if job.state == "cancelling" else "paused"
        end = time.time() if asked == "cancelled" else None
        move(session, job.id, asked, message, fence=job.fence, worker_id=None, ended=end)
        _raise_fence(session, job, outdated)
        return asked
    move(session, job.id, "lost", message, fence=job.fence, worker_id=None)
    saved = newest_checkpoint(session, job.id)
    # Only what the next start need not do again is progress: a run that dies at one place must not be begun for ever.
    moved_on = saved is not None and attempt is not None and saved > (attempt.from_update or 0)
    retries = 1 if moved_on else job.retries + 1
    if retries > job.max_retries:
        text = f"{message}; it died {retries} times without progress, so it is not started again: press Retry to try"
        move(session, job.id, "failed", text, ended=time.time())
        _raise_fence(session, job, outdated)
        return "failed"
    pause = min(FIRST_BACKOFF_SECONDS * 2 ** (retries - 1), MAX_BACKOFF_SECONDS)
    where = f"update {saved}" if saved else "the start"
    text = f"lost ({message}); resuming from {where}, try {retries} of {job.max_retries}"
    again = {"not_before": time.time() + pause, "retries": retries, "announced": False}
    move(session, job.id, "queued", text, **again)
    _raise_fence(session, job, outdated)
    return "queued"


def _raise_fence(session: Session, job: Job, fence: int) -> None:
    job = session.get_one(Job, job.id, populate_existing=True)
    job.fence = fence
    session.flush()


def _end(
    session: Session,
    claim: Claim,
    target: State,
    message: str,
    exit_code: int | None,
    result: dict[str, Any] | None,
) -> None:
    job = _held(session, claim)
    attempt = _attempt(session, claim)
    attempt.ended, attempt.exit_code, attempt.message = time.time(), exit_code, message
    attempt.outcome = "stopped" if target == "queued" else target
    release(session, claim.job_id)
    values: dict[str, Any] = {"worker_id": None}
    if result is not None:
        values["result"] = result
    if target in ("succeeded", "failed", "cancelled"):
        values["ended"] = time.time()
    if target == "queued":
        values |= {"announced": False, "not_before": None}
    move(session, claim.job_id, target, message, fence=claim.fence, **values)
    _raise_fence(session, job, claim.fence + 1)


def _held(session: Session, claim: Claim) -> Job:
    job = session.get(Job, claim.job_id)
    if job is None or job.fence != claim.fence:
        raise Fenced(f"the job {claim.job_id} is in other hands by now")
    return job


def _attempt(session: Session, claim: Claim) -> Attempt:
    return session.get_one(Attempt, (claim.job_id, claim.attempt))


def _newest(session: Session, job: Job) -> Attempt | None:
    query = select(Attempt).where(Attempt.job_id == job.id).order_by(Attempt.number.desc()).limit(1)
    return session.scalar(query)
