"""After a death: jobs are adopted once, orphans end, leases are freed, and neighbours are left in peace."""

from __future__ import annotations

import os
import signal
import socket
import threading
from pathlib import Path

from sqlalchemy import update

from flash_grpo_studio.app.jobs import attempts, workers
from flash_grpo_studio.app.jobs.leases import Claim
from flash_grpo_studio.app.store.metrics import count_points
from flash_grpo_studio.app.store.tables import DeviceLease, Event, Job, Worker
from flash_grpo_studio.worker import launch
from flash_grpo_studio.worker.processes import birth
from flash_grpo_studio.worker.reconcile import Reconciler
from tests.studio import Parts
from tests.worker.rig import (
    assert_nothing_left,
    attempts_of,
    leases,
    processes,
    scripted,
    setting,
    wait,
    wait_for,
    worker_process,
    working,
)

HOST = socket.gethostname()


def enter(parts: Parts, process: int, born: float, host: str = HOST) -> str:
    """A worker row of some process of this machine."""
    slots = [{"name": f"cpu:{number}", "kind": "cpu"} for number in range(2)]
    return workers.register(parts.store, host, process, born, "test", slots, {})


def alive_worker(parts: Parts, host: str = HOST) -> str:
    return enter(parts, os.getpid(), birth(os.getpid()) or 0.0, host)


def reconciler(parts: Parts, orphan_seconds: float = 0.0, host: str = "") -> Reconciler:
    return Reconciler(parts.store, setting(parts, scripted(), host=host).ground, orphan_seconds, term_seconds=2.0)


def state_of(parts: Parts, worker_id: str) -> str:
    with parts.store.reading() as session:
        return session.get_one(Worker, worker_id).state


def test_a_killed_worker_leaves_its_run_alive_and_the_next_one_adopts_it(parts: Parts, tmp_path: Path) -> None:
    job = parts.submit()
    script = {"updates": 30, "seconds": 0.1, "save_every": 1000}
    with worker_process(parts, tmp_path / "log", script) as first:
        wait(lambda: parts.job(job.id).update >= 2)
        [run] = processes(parts, job.id)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    before = parts.job(job.id)
    assert before.state == "running" and processes(parts, job.id) == [run]
    with working(parts, scripted(updates=1)):
        wait(lambda: parts.job(job.id).fence > before.fence)
        wait(lambda: parts.job(job.id).update > before.update)
        assert processes(parts, job.id) == [run], "it is the same process"
        done = wait_for(parts, job.id, "succeeded")
    assert done.update == 30 and len(attempts_of(parts, job.id)) == 1 and len(parts.events(job.id, "adopted")) == 1
    with parts.store.reading() as session:
        assert count_points(session, job.id) == 30, "nothing was lost in between"
        seqs = [seq for (seq,) in session.query(Event.seq).filter(Event.job_id == job.id, Event.seq.is_not(None))]
        assert len(seqs) == len(set(seqs))
    assert state_of(parts, before.worker_id or "") == "gone"
    assert_nothing_left(parts)


def test_a_run_that_ended_while_no_worker_lived_is_concluded_from_its_events(parts: Parts, tmp_path: Path) -> None:
    job = parts.submit()
    with worker_process(parts, tmp_path / "log", {"updates": 8, "seconds": 0.1}) as first:
        wait(lambda: parts.job(job.id).update >= 2)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    wait(lambda: not processes(parts, job.id))
    with working(parts, scripted(updates=1)):
        done = wait_for(parts, job.id, "succeeded")
    assert done.result == {"status": "done", "updates": 8} and len(attempts_of(parts, job.id)) == 1


def test_a_run_that_ended_after_its_worker_was_given_up_is_not_started_again(parts: Parts, tmp_path: Path) -> None:
    """The worker stayed away so long that the web app gave it up: its job is queued, and its run complete."""
    job = parts.submit(overrides={"updates": 6})
    with worker_process(parts, tmp_path / "log", {"updates": 6, "seconds": 0.1}) as first:
        wait(lambda: parts.job(job.id).update >= 2)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    wait(lambda: not processes(parts, job.id))
    gone = parts.job(job.id).worker_id
    assert gone is not None
    assert workers.give_up(parts.store, gone, "the worker gave no sign of life") == [job.id]
    with working(parts, scripted(updates=1)):
        done = wait_for(parts, job.id, "succeeded")
    assert done.update == 6
    assert len(parts.events(job.id, "run_started")) == 1, "it was started a second time"


def test_a_worker_killed_on_its_way_out_turns_nobodys_job_into_a_paused_one(parts: Parts, tmp_path: Path) -> None:
    job = parts.submit()
    script = {"updates": 1000, "seconds": 0.5, "save_every": 1000}
    with worker_process(parts, tmp_path / "log", script) as first:
        wait(lambda: parts.job(job.id).update >= 1)
        first.terminate()
        wait(lambda: (parts.workspace.run(job.id) / "control" / "pause").exists())
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    wait(lambda: not processes(parts, job.id))
    assert parts.job(job.id).state == "running"
    with working(parts, scripted(updates=4)):
        wait_for(parts, job.id, "succeeded")
    assert [attempt.outcome for attempt in attempts_of(parts, job.id)] == ["stopped", "succeeded"]
    assert "paused" not in parts.states(job.id)


def test_a_run_that_died_with_its_worker_is_resumed(parts: Parts, tmp_path: Path) -> None:
    job = parts.submit()
    with worker_process(parts, tmp_path / "log", {"updates": 60, "seconds": 0.1, "save_every": 2}) as first:
        wait(lambda: parts.job(job.id).update >= 5)
        [run] = processes(parts, job.id)
        os.kill(first.pid, signal.SIGKILL)
        os.kill(run, signal.SIGKILL)
        first.wait()
    with working(parts, scripted(updates=8)):
        wait_for(parts, job.id, "succeeded")
    first_attempt, second = attempts_of(parts, job.id)
    assert first_attempt.outcome == "lost" and "while no worker watched" in first_attempt.message
    assert second.from_update is not None and second.from_update >= 4
    assert parts.job(job.id).retries == 1


def test_of_two_workers_adopting_one_run_exactly_one_wins(parts_of_both: Parts) -> None:
    parts = parts_of_both
    jobs = [parts.submit() for _ in range(8)]
    dead = workers.register(
        parts.store, HOST, 2**22 + 1, 1.0, "test", [{"name": f"cpu:{n}", "kind": "cpu"} for n in range(8)], {}
    )
    for _ in jobs:
        parts.claim(dead)
    rivals = [alive_worker(parts), alive_worker(parts)]
    barrier = threading.Barrier(len(rivals))
    won: dict[str, list[Claim]] = {}

    def adopt(worker_id: str) -> None:
        barrier.wait()
        won[worker_id] = reconciler(parts).look(worker_id, set())

    threads = [threading.Thread(target=adopt, args=(worker_id,)) for worker_id in rivals]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    claims = [claim for found in won.values() for claim in found]
    assert sorted(claim.job_id for claim in claims) == sorted(job.id for job in jobs)
    for job in jobs:
        now = parts.job(job.id)
        assert now.fence == 2 and now.state == "starting" and len(parts.events(job.id, "adopted")) == 1
    assert {lease.worker_id for lease in leases(parts)} <= set(rivals) and len(leases(parts)) == 8
    assert state_of(parts, dead) == "gone"


def test_a_living_worker_keeps_its_jobs(parts: Parts) -> None:
    """Control of the adoption."""
    job, living = parts.submit(), alive_worker(parts)
    claim = parts.claim(living)
    me = alive_worker(parts)
    assert reconciler(parts).look(me, set()) == []
    assert parts.job(job.id).fence == claim.fence and state_of(parts, living) == "active"
    assert len(leases(parts)) == 1


def test_a_claim_whose_answer_was_lost_is_taken_up_again(parts: Parts) -> None:
    job, me = parts.submit(), alive_worker(parts)
    claim = parts.claim(me)
    assert reconciler(parts).look(me, {job.id}) == [], "control: a job in hand is not adopted from oneself"
    [again] = reconciler(parts).look(me, set())
    assert again.job_id == job.id and again.fence == claim.fence + 1


def test_a_job_of_another_machine_whose_worker_is_gone_is_lost_and_queued(parts: Parts) -> None:
    job, far = parts.submit(), parts.worker(host="far")
    claim = parts.claim(far)
    attempts.started(parts.store, claim, 1, 1.0)
    me = alive_worker(parts)
    reconciler(parts).look(me, set())
    assert parts.job(job.id).state == "running", "control: its worker may well live"
    workers.retire(parts.store, far)
    reconciler(parts).look(me, set())
    assert parts.states(job.id)[-2:] == ["lost", "queued"] and leases(parts) == []


def test_leases_without_an_active_job_are_freed(parts: Parts) -> None:
    kept, other, me = parts.submit(), parts.submit(), alive_worker(parts)
    parts.claim(me)
    with parts.store.writing() as session:
        session.add(DeviceLease(host=HOST, device="cpu:7", job_id=other.id, fence=1, worker_id="somebody"))
    reconciler(parts).look(me, {kept.id})
    assert [lease.job_id for lease in leases(parts)] == [kept.id]


def test_orphans_are_ended_and_save_before(parts: Parts) -> None:
    over, kept, foreign, me = parts.submit(), parts.submit(), parts.submit(), alive_worker(parts)
    found = setting(parts, scripted(updates=1000, seconds=0.05, save_every=1000))
    started = {}
    for job in (over, kept, foreign):
        claim = Claim(job.id, 1, 1, "alignment", job.folder, job.spec, ("cpu:0",))
        started[job.id] = launch.start(found.ground, claim, found.commands)
    with parts.store.writing() as session:
        session.execute(update(Job).where(Job.id == over.id).values(state="cancelled"))
        session.execute(update(Job).where(Job.id == foreign.id).values(priority=-1))
    parts.claim(me)  # `kept`, here
    far = parts.worker(host="far")
    assert parts.claim(far).job_id == foreign.id
    wait(lambda: all((parts.workspace.run(job.id) / "events.jsonl").exists() for job in (over, kept, foreign)))
    look = reconciler(parts, orphan_seconds=60.0)
    look.end_orphans(me, set())
    assert len(processes(parts)) == 3, "not at once: somebody may be ending it"
    look.orphan_seconds = 0.0
    look.end_orphans(me, set())
    assert processes(parts) == [started[kept.id].pid], "over, and in the hands of another machine"
    assert (parts.workspace.run(over.id) / "saved").exists() and started[over.id].ended()
    os.kill(started[kept.id].pid, signal.SIGKILL)
    started[kept.id].ended()


def test_a_living_process_of_a_queued_job_is_adopted_instead_of_starting_a_second_one(parts: Parts) -> None:
    job = parts.submit()
    found = setting(parts, scripted(updates=30, seconds=0.1))
    earlier = Claim(job.id, 0, 1, "alignment", job.folder, job.spec, ("cpu:0",))
    process = launch.start(found.ground, earlier, found.commands)
    wait(lambda: (parts.workspace.run(job.id) / "events.jsonl").exists())
    with working(parts, scripted(updates=1)):
        done = wait_for(parts, job.id, "succeeded")
    assert done.result["updates"] == 30
    [attempt] = attempts_of(parts, job.id)
    assert attempt.process == process.pid
    assert_nothing_left(parts)
