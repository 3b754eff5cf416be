"""How attempts end, and what is tried again how often."""

from __future__ import annotations

import pytest

from flash_grpo_studio.app.jobs import attempts, workers
from flash_grpo_studio.app.jobs.change import Fenced
from flash_grpo_studio.app.jobs.leases import Claim
from flash_grpo_studio.app.store.tables import Attempt, DeviceLease, Job
from tests.studio import Parts, metrics, records


def start(parts: Parts, worker: str) -> Claim:
    """Claim the next job although its pause may not be over, and start it."""
    with parts.store.writing() as session:
        for job in session.query(Job):
            job.not_before = None
    found = parts.claim(worker)
    attempts.started(parts.store, found, 1, 1.0)
    return found


def test_a_job_that_keeps_dying_without_progress_fails_after_its_retries(parts: Parts) -> None:
    job, worker = parts.submit(max_retries=2), parts.worker()
    states = [attempts.died(parts.store, start(parts, worker), "killed by signal 9", -9) for _ in range(3)]
    assert states == ["queued", "queued", "failed"]
    assert "died 3 times without progress" in parts.job(job.id).message
    assert parts.states(job.id)[-2:] == ["lost", "failed"]
    assert parts.service.retry(parts.ann, job.id).retries == 0
    with parts.store.reading() as session:
        assert [row.outcome for row in session.query(Attempt).order_by(Attempt.number)] == ["lost"] * 3
        assert session.query(DeviceLease).count() == 0


def test_progress_between_deaths_gives_the_retries_back(parts: Parts) -> None:
    job, worker = parts.submit(max_retries=1), parts.worker()
    for number in range(1, 6):
        found = start(parts, worker)
        resumed = {"type": "resumed", "from_update": number - 1}
        saved = {"type": "checkpoint", "update": number, "path": f"checkpoints/{number:06}"}
        lines = records(resumed, metrics(number), saved, attempt=number, first=10 * number)
        assert parts.take(found, lines, number - 1, number)
        assert attempts.died(parts.store, found, "killed") == "queued"
    assert parts.job(job.id).retries == 1
    assert "resuming from update 5" in parts.job(job.id).message


def test_updates_that_must_be_done_again_are_no_progress(parts: Parts) -> None:
    job, worker = parts.submit(max_retries=2), parts.worker()
    saved = {"type": "checkpoint", "update": 2, "path": "checkpoints/000002"}
    found = start(parts, worker)
    assert parts.take(found, records(metrics(1), metrics(2), saved, metrics(3)), 0, 1)
    assert attempts.died(parts.store, found, "killed") == "queued", "its checkpoint is progress"
    assert "resuming from update 2, try 1 of 2" in parts.job(job.id).message
    assert attempts.died(parts.store, start(parts, worker), "killed at once") == "queued"
    found = start(parts, worker)
    assert parts.take(found, records({"type": "resumed", "from_update": 2}, metrics(3), attempt=3, first=20), 1, 2)
    assert attempts.died(parts.store, found, "killed at the same place") == "failed"


@pytest.mark.parametrize(("wish", "after"), [("cancel", "cancelled"), ("pause", "paused")])
def test_what_a_person_asked_for_is_done_by_a_death(parts: Parts, wish: str, after: str) -> None:
    job = parts.submit()
    found = start(parts, parts.worker())
    getattr(parts.service, wish)(parts.ann, job.id)
    assert attempts.died(parts.store, found, "killed") == after
    assert parts.job(job.id).state == after


def test_a_wish_during_the_start_is_kept(parts: Parts) -> None:
    job = parts.submit()
    found = parts.claim(parts.worker())
    parts.service.cancel(parts.ann, job.id)
    attempts.started(parts.store, found, 5, 5.0)
    assert attempts.wish_of(parts.store, found) == "cancelling"
    with parts.store.reading() as session:
        assert session.get_one(Attempt, (job.id, 1)).process == 5


def test_a_job_given_back_by_a_stopping_worker_costs_no_retry(parts: Parts) -> None:
    job, worker = parts.submit(), parts.worker()
    attempts.ended(parts.store, start(parts, worker), "queued", "the worker was stopped")
    assert (parts.job(job.id).retries, parts.job(job.id).worker_id) == (0, None)
    assert parts.claim(worker).attempt == 2


def test_nothing_is_written_for_a_job_that_was_deleted(parts: Parts) -> None:
    job = parts.submit()
    found = start(parts, parts.worker())
    with parts.store.writing() as session:
        session.delete(session.get_one(Job, job.id))
    for write in (
        lambda: attempts.ended(parts.store, found, "succeeded", ""),
        lambda: attempts.died(parts.store, found, ""),
        lambda: attempts.started(parts.store, found, 1, 1.0),
    ):
        with pytest.raises(Fenced):
            write()
    assert not parts.take(found, [], 0, 1)
    with parts.store.reading() as session:
        assert session.query(DeviceLease).count() == 0


def test_a_silent_worker_is_given_up_by_the_watchers_own_clock(parts: Parts) -> None:
    job = parts.submit()
    silent, lively = parts.worker(host="far"), parts.worker(host="near")
    found = parts.claim(silent)
    attempts.started(parts.store, found, 1, 1.0)
    watch = workers.Watch(parts.store, silent_seconds=20)
    assert watch.look(now=100.0) == []
    for second in range(1, 21):
        workers.beat(parts.store, lively)
        assert watch.look(now=100.0 + second) == []
    workers.beat(parts.store, lively)
    assert watch.look(now=121.0) == [job.id]
    assert parts.states(job.id)[-2:] == ["lost", "queued"]
    assert "no sign of life" in parts.job(job.id).message
    assert workers.beat(parts.store, silent) == "gone"
    assert workers.beat(parts.store, lively) == "active"
    with pytest.raises(Fenced):
        attempts.ended(parts.store, found, "succeeded", "I was only asleep")
    assert watch.look(now=200.0) == [], "the same death is told once"


def test_a_job_says_why_it_waits(parts: Parts) -> None:
    job, large = parts.submit(), parts.submit(devices=4)

    def reason(of: str) -> str:
        with parts.store.reading() as session:
            return workers.waiting_reason(session, session.get_one(Job, of))

    assert "no worker is running" in reason(job.id)
    worker = parts.worker()
    assert "4 devices on one machine, and the largest has 1" in reason(large.id)
    assert reason(job.id) == "it waits for free devices"
    found = parts.claim(worker)
    assert reason(job.id) == ""
    attempts.started(parts.store, found, 1, 1.0)
    attempts.died(parts.store, found, "killed")
    assert "tried again in" in reason(job.id)
