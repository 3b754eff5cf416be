"""Claims: one job to one worker, devices leased once, order kept, adoption won by one."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy import event, select

from flash_grpo_studio.app.jobs import attempts, workers
from flash_grpo_studio.app.jobs.change import Fenced
from flash_grpo_studio.app.jobs.leases import LOOKED_AT, MAX_BACKOFF_SECONDS, Claim, adopt, claim
from flash_grpo_studio.app.store.tables import Attempt, DeviceLease, Job
from tests.studio import Parts


def leases(parts: Parts) -> list[tuple[str, str, str]]:
    with parts.store.reading() as session:
        return sorted((row.host, row.device, row.job_id) for row in session.scalars(select(DeviceLease)))


def together(count: int, work: object) -> list[object]:
    """Run `work(number)` in threads that start at one moment."""
    results: list[object] = []
    gate = threading.Barrier(count)

    def one(number: int) -> None:
        gate.wait()
        results.append(work(number))  # type: ignore[operator]

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


def test_of_many_workers_one_gets_the_job(parts: Parts) -> None:
    job = parts.submit()
    ids = [parts.worker(host=f"machine{number}") for number in range(6)]
    found = [result for result in together(6, lambda number: claim(parts.store, ids[number])) if result]
    assert len(found) == 1
    assert parts.states(job.id) == ["queued", "starting"]
    with parts.store.reading() as session:
        assert session.query(Attempt).count() == 1
    assert len(leases(parts)) == 1


def test_two_workers_of_one_machine_never_lease_one_device_twice(parts: Parts) -> None:
    for _ in range(8):
        parts.submit()
    ids = [parts.worker(devices=2) for _ in range(4)]  # four workers that all think the two devices are theirs
    together(4, lambda number: [claim(parts.store, ids[number]) for _ in range(4)])
    held = leases(parts)
    assert [device for _, device, _ in held] == ["cpu:0", "cpu:1"]
    assert len({job for _, _, job in held}) == 2
    with parts.store.reading() as session:
        assert session.query(Job).filter(Job.state == "starting").count() == 2


def test_priority_then_position_decide_and_a_large_job_is_not_starved(parts: Parts) -> None:
    first, large, small, urgent = (
        parts.submit(name="first"),
        parts.submit(name="large", devices=2),
        parts.submit(name="small"),
        parts.submit(name="urgent", priority=5),
    )
    worker = parts.worker(devices=2)
    assert parts.claim(worker).job_id == urgent.id
    one = parts.claim(worker)
    assert one.job_id == first.id
    attempts.started(parts.store, one, 1, 1.0)
    attempts.ended(parts.store, one, "succeeded", "done")
    assert claim(parts.store, worker) is None  # one device is free, and kept for the large job
    with parts.store.reading() as session:
        fetched = session.get_one(Job, small.id)
        assert "1 job is before it" in workers.waiting_reason(session, fetched)
    assert parts.job(large.id).state == "queued"


def test_a_job_that_no_device_of_the_machine_can_serve_does_not_block_it(parts: Parts) -> None:
    parts.submit(devices=4)
    small = parts.submit()
    assert parts.claim(parts.worker(devices=2)).job_id == small.id


def test_jobs_without_devices_run_beside_the_others_but_not_all_at_once(parts: Parts) -> None:
    for number in range(4):
        parts.submit(kind="download", repo=f"owner/model{number}")
    parts.submit()
    worker = parts.worker()
    kinds = [found.kind for found in iter(lambda: claim(parts.store, worker), None)]
    assert kinds == ["download", "download", "alignment"]


def test_many_small_jobs_at_the_front_keep_no_device_idle(parts: Parts) -> None:
    first = parts.submit(kind="download", repo="owner/model")
    values = {column.name: getattr(first, column.key) for column in Job.__table__.columns if column.name != "id"}
    with parts.store.writing() as session:
        for number in range(LOOKED_AT + 5):
            session.add(Job(**{**values, "id": f"{number:016x}"}))
    job, worker = parts.submit(), parts.worker()
    kinds = [found.kind for found in iter(lambda: claim(parts.store, worker), None)]
    assert kinds == ["download", "download", "alignment"] and parts.job(job.id).state == "starting"


def test_a_claim_reads_no_spec_but_its_own(parts: Parts) -> None:
    jobs = [parts.submit(prompts=["a red circle"] * 3) for _ in range(3)]
    worker, read = parts.worker(), []
    listener = lambda target, context: read.append(target.id) if "spec" in target.__dict__ else None  # noqa: E731
    event.listen(Job, "load", listener)
    try:
        found = parts.claim(worker)
        assert claim(parts.store, worker) is None
    finally:
        event.remove(Job, "load", listener)
    assert found.job_id == jobs[0].id and found.spec["files"] and read == []


def test_a_draining_worker_takes_nothing_new(parts: Parts) -> None:
    parts.submit()
    worker = parts.worker()
    workers.drain(parts.store, worker, True)
    assert claim(parts.store, worker) is None
    workers.drain(parts.store, worker, False)
    assert claim(parts.store, worker) is not None


def test_a_retry_waits_for_its_pause_but_not_for_a_clock_that_was_set_back(parts: Parts) -> None:
    job = parts.submit()
    worker = parts.worker()

    def wait_until(moment: float) -> Claim | None:
        with parts.store.writing() as session:
            session.get_one(Job, job.id).not_before = moment
        return claim(parts.store, worker)

    assert wait_until(time.time() + 60) is None
    assert wait_until(time.time() + MAX_BACKOFF_SECONDS + 86400) is not None


def test_of_two_workers_adopting_a_run_one_wins_and_the_former_owner_is_fenced(parts: Parts) -> None:
    parts.submit()
    old = parts.claim(parts.worker())
    attempts.started(parts.store, old, 42, 7.0)
    ids = [parts.worker() for _ in range(4)]
    found = [
        result
        for result in together(4, lambda number: adopt(parts.store, old.job_id, old.fence, ids[number]))
        if result
    ]
    assert len(found) == 1
    new = found[0]
    assert isinstance(new, Claim)
    assert (new.process, new.process_started, new.attempt, new.devices) == (42, 7.0, old.attempt, old.devices)
    assert len(leases(parts)) == 1
    with pytest.raises(Fenced):
        attempts.ended(parts.store, old, "succeeded", "done")
    with pytest.raises(Fenced):
        attempts.wish_of(parts.store, old)
    assert not parts.take(old, [], 0, 10)
    assert parts.job(old.job_id).state == "running"
    attempts.ended(parts.store, new, "succeeded", "done")
    assert leases(parts) == []
