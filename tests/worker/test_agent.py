"""A worker among others: woken by messages, sharing a queue, given up and back, refusing what does not fit."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from flash_grpo.errors import InputError
from flash_grpo_studio.app.jobs import workers
from flash_grpo_studio.app.jobs.dispatch import Dispatch
from flash_grpo_studio.app.settings import normal_database_url
from flash_grpo_studio.app.store.metrics import count_points
from flash_grpo_studio.app.store.tables import Job, Worker
from flash_grpo_studio.app.workspace import Workspace
from flash_grpo_studio.worker.devices import cpu_slots
from flash_grpo_studio.worker.listen import Listener
from tests.databases import PostgresServer
from tests.studio import Parts, open_parts
from tests.worker.rig import (
    QUICK,
    assert_nothing_left,
    attempts_of,
    leases,
    processes,
    scripted,
    wait,
    wait_for,
    working,
)

SLEEPY = replace(QUICK, poll=60.0, reconcile=60.0)
"""A worker that would not look at the queue by itself while a test runs."""


def test_a_message_wakes_the_worker(parts: Parts, broker_url: str) -> None:
    dispatch = Dispatch(broker_url)
    with working(parts, scripted(updates=2), pace=SLEEPY) as running:
        wait(lambda: running.agent.worker_id)
        listener = Listener(broker_url, running.agent.wake)
        listener.start()
        try:
            time.sleep(1.0)
            silent = parts.submit()
            time.sleep(0.5)
            assert parts.job(silent.id).state == "queued", "control: without a message it sleeps"
            parts.service.announce = dispatch.announce
            # Until the worker is subscribed, messages reach nobody; that is what the polling is for.
            wait(lambda: dispatch.announce() and parts.job(silent.id).state != "queued", 10)
            began = time.monotonic()
            job = parts.submit()
            wait_for(parts, job.id, "succeeded")
            assert time.monotonic() - began < 10
        finally:
            listener.stop()


def test_a_message_delivered_many_times_starts_a_job_once(parts: Parts, broker_url: str) -> None:
    dispatch = Dispatch(broker_url)
    with working(parts, scripted(updates=5)) as first, working(parts, scripted(updates=5)) as second:
        ears = [Listener(broker_url, running.agent.wake) for running in (first, second)]
        ears[0].start()
        time.sleep(1.0)
        job = parts.submit()
        for _ in range(20):
            assert dispatch.announce()
        wait_for(parts, job.id, "succeeded")
        ears[0].stop()
    assert len(attempts_of(parts, job.id)) == 1
    assert Counter(parts.states(job.id)) == {"queued": 1, "starting": 1, "running": 1, "succeeded": 1}


def test_a_broker_that_is_away_keeps_nobody_from_working(parts: Parts) -> None:
    with working(parts, scripted(updates=2)) as running:
        listener = Listener("redis://127.0.0.1:1/0", running.agent.wake)
        listener.start()
        try:
            wait_for(parts, parts.submit().id, "succeeded")
        finally:
            listener.stop()


def test_two_workers_share_a_queue_and_each_job_runs_once(parts_of_both: Parts) -> None:
    parts = parts_of_both
    jobs = [parts.submit() for _ in range(6)]
    one_, two_ = cpu_slots(2)
    with (
        working(parts, scripted(updates=3), devices=[one_]) as one,
        working(parts, scripted(updates=3), devices=[two_]) as two,
    ):
        for job in jobs:
            wait_for(parts, job.id, "succeeded", seconds=30)
        ids = {one.agent.worker_id, two.agent.worker_id}
    for job in jobs:
        assert len(attempts_of(parts, job.id)) == 1
        with parts.store.reading() as session:
            assert count_points(session, job.id) == 3
    assert {attempts_of(parts, job.id)[0].worker_id for job in jobs} == ids, "both took some"
    assert_nothing_left(parts)


def test_devices_of_one_machine_are_never_leased_twice(parts: Parts) -> None:
    jobs = [parts.submit() for _ in range(4)]
    seen = 0
    with working(parts, scripted(updates=4, seconds=0.1)), working(parts, scripted(updates=4, seconds=0.1)):

        def done() -> bool:
            nonlocal seen
            seen = max(seen, len(processes(parts)))
            return all(parts.job(job.id).state == "succeeded" for job in jobs)

        wait(done, 30)
    assert seen == 1, "both workers offer cpu:0 of this machine"


def test_a_worker_given_up_as_dead_ends_its_run_and_enters_itself_anew(parts: Parts) -> None:
    job = parts.submit()
    with working(parts, scripted(updates=200, seconds=0.05, save_every=1000)) as running:
        wait(lambda: parts.job(job.id).update >= 3)
        before = running.agent.worker_id
        workers.give_up(parts.store, before, "it gave no sign of life")
        wait(lambda: running.agent.worker_id != before)
        wait(lambda: len(attempts_of(parts, job.id)) == 2)
        wait(lambda: parts.job(job.id).state == "running")
        first, second = attempts_of(parts, job.id)
        assert first.outcome == "lost" and second.worker_id == running.agent.worker_id
        wait(lambda: attempts_of(parts, job.id)[1].from_update is not None)
        assert len(processes(parts, job.id)) == 1
        assert (attempts_of(parts, job.id)[1].from_update or 0) >= 3, "what the first one saved on its way out counts"
        parts.service.cancel(parts.ann, job.id)
        wait_for(parts, job.id, "cancelled")
    assert_nothing_left(parts)


def test_a_draining_worker_finishes_what_it_has_and_takes_nothing_new(parts: Parts) -> None:
    first = parts.submit()
    with working(parts, scripted(updates=10)) as running:
        wait_for(parts, first.id, "running")
        workers.drain(parts.store, running.agent.worker_id, on=True)
        second = parts.submit()
        wait_for(parts, first.id, "succeeded")
        time.sleep(0.5)
        assert parts.job(second.id).state == "queued"
        workers.drain(parts.store, running.agent.worker_id, on=False)
        wait_for(parts, second.id, "succeeded")


def test_a_worker_of_another_version_is_refused_while_the_others_live(parts: Parts) -> None:
    with working(parts, scripted()) as running:
        wait(lambda: running.agent.worker_id)
        match = "this is version other and the studio runs version test"
        with pytest.raises(InputError, match=match), working(parts, scripted(), version="other") as stranger:
            stranger.thread.join(10)
    with working(parts, scripted(), version="other") as alone:
        wait(lambda: alone.agent.worker_id, what="control: with nobody else there it is welcome")


def test_the_row_of_a_worker_that_died_without_a_word_refuses_nobody(parts: Parts) -> None:
    parts.worker(host="far")  # of version `test`; never beats
    with working(parts, scripted(), version="other") as running:
        wait(lambda: running.agent.worker_id)


def test_a_worker_with_another_workspace_is_refused(parts: Parts, tmp_path: Path) -> None:
    elsewhere = replace(parts, workspace=Workspace(tmp_path / "elsewhere"))
    with working(parts, scripted()) as running:
        wait(lambda: running.agent.worker_id)
        match = "all parts of a studio must share one folder"
        with pytest.raises(InputError, match=match), working(elsewhere, scripted()) as stranger:
            stranger.thread.join(10)


def test_a_database_locked_for_a_while_costs_no_run_and_no_event(parts: Parts) -> None:
    job = parts.submit()
    with working(parts, scripted(updates=40, seconds=0.05)):
        wait(lambda: parts.job(job.id).update >= 2)
        other = sqlite3.connect(parts.store.url.removeprefix("sqlite:///"), isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        held = parts.job(job.id).update
        time.sleep(2.5)
        assert parts.job(job.id).update == held, "control: nothing could be written meanwhile"
        other.execute("ROLLBACK")
        other.close()
        wait_for(parts, job.id, "succeeded")
    assert len(attempts_of(parts, job.id)) == 1
    with parts.store.reading() as session:
        assert count_points(session, job.id) == 40


def test_a_database_gone_for_a_while_costs_no_run_and_no_event(postgres_server: PostgresServer, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="flash-grpo-postgres-") as folder:
        server = PostgresServer(Path(folder), postgres_server.programs)
        parts = open_parts(normal_database_url(server.create()), tmp_path / "workspace")
        jobs = [parts.submit(), parts.submit()]
        with working(parts, scripted(updates=40, seconds=0.05), slots=2) as running:
            wait(lambda: all(parts.job(job.id).update >= 2 for job in jobs))
            started = {job.id: processes(parts, job.id) for job in jobs}
            server.stop()
            time.sleep(4.0)  # both runs end meanwhile
            assert not any(processes(parts, job.id) for job in jobs)
            server.start()
            for job in jobs:
                wait_for(parts, job.id, "succeeded")
            assert running.thread.is_alive()
        assert all(len(found) == 1 for found in started.values())
        for job in jobs:
            assert len(attempts_of(parts, job.id)) == 1
            with parts.store.reading() as session:
                assert count_points(session, job.id) == 40
        assert leases(parts) == []
        parts.store.close()
        server.stop()


def test_the_watch_does_not_blame_workers_for_a_database_that_was_away(parts: Parts) -> None:
    watch = workers.Watch(parts.store, silent_seconds=20)
    worker = parts.worker()
    assert watch.look(now=0.0) == []
    watch.look(now=60.0)  # nobody could have beaten in between
    with parts.store.reading() as session:
        assert session.get_one(Worker, worker).state == "active"
    for second in range(61, 90):
        watch.look(now=float(second))
    with parts.store.reading() as session:
        assert session.get_one(Worker, worker).state == "gone", "control: silence that was listened to counts"


def test_a_job_without_devices_runs_beside_the_others(parts: Parts) -> None:
    busy = parts.submit()
    with parts.store.writing() as session:
        light = Job(owner_id=parts.ann.user_id, kind="download", name="light", spec={"task": {}}, devices=0,
                    position=99.0, folder="jobs/light")  # fmt: skip
        session.add(light)
        session.flush()
        light_id = light.id
    with working(parts, scripted(updates=30, seconds=0.1)):
        wait_for(parts, busy.id, "running")
        wait_for(parts, light_id, "starting", "running")
        wait(lambda: os.path.isdir(parts.workspace.folder / "jobs/light/report"))
        assert len(leases(parts)) == 1
        parts.service.cancel(parts.ann, busy.id)
        parts.service.cancel(parts.ann, light_id)
        wait_for(parts, light_id, "cancelled")
        wait_for(parts, busy.id, "cancelled")
