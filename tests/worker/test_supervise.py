"""A job from claim to end, with scripted runs: how each way of ending is told, and that nothing is left."""

from __future__ import annotations

import shutil
import signal
import time
from dataclasses import replace

import pytest
from sqlalchemy import delete

from flash_grpo_studio.app.jobs.leases import Claim
from flash_grpo_studio.app.store.metrics import count_points
from flash_grpo_studio.app.store.tables import Job
from flash_grpo_studio.worker.launch import Ground
from tests.studio import Parts
from tests.worker.rig import (
    SHORT,
    assert_nothing_left,
    attempts_of,
    leases,
    processes,
    scripted,
    wait,
    wait_for,
    working,
)


def test_a_job_runs_to_its_end_and_its_events_are_in_the_store(parts_of_both: Parts) -> None:
    parts = parts_of_both
    job = parts.submit()
    with working(parts, scripted(updates=4)):
        done = wait_for(parts, job.id, "succeeded")
    assert parts.states(job.id) == ["queued", "starting", "running", "succeeded"]
    assert done.result == {"status": "done", "updates": 4} and done.update == 4
    assert done.device_seconds > 0 and done.worker_id is None
    with parts.store.reading() as session:
        assert count_points(session, job.id) == 4
    [attempt] = attempts_of(parts, job.id)
    assert attempt.outcome == "succeeded" and attempt.exit_code == 0
    assert attempt.ending == {"type": "finished", "status": "done", "message": "Trained 4 updates."}
    assert_nothing_left(parts)


def test_pause_saves_and_frees_the_device_and_resume_goes_on(parts: Parts) -> None:
    job = parts.submit()
    with working(parts, scripted(updates=40, seconds=0.1, save_every=1000)):
        wait(lambda: parts.job(job.id).update >= 2)
        parts.service.pause(parts.ann, job.id)
        paused = wait_for(parts, job.id, "paused")
        assert "ann asked to pause" in paused.message and f"update {paused.update}" in paused.message
        assert_nothing_left(parts)
        parts.service.resume(parts.ann, job.id)
        wait(lambda: parts.job(job.id).update > paused.update)
        first, second = attempts_of(parts, job.id)
        assert (first.outcome, first.exit_code) == ("paused", 75)
        assert second.from_update == paused.update, "a pause loses no update"
        parts.service.cancel(parts.ann, job.id)
        wait_for(parts, job.id, "cancelled")
    assert_nothing_left(parts)


def test_a_pause_that_the_starting_run_clears_away_is_asked_again(parts: Parts) -> None:
    job = parts.submit()
    run = parts.workspace.run(job.id)
    with working(parts, scripted(updates=100, seconds=0.1)):
        wait(lambda: parts.job(job.id).update >= 1)
        parts.service.pause(parts.ann, job.id)
        wait_for(parts, job.id, "paused")
        # Asked before the resumed run has cleared what it finds in its control folder, as it does at the start.
        parts.service.resume(parts.ann, job.id)
        wait_for(parts, job.id, "starting", "running")
        parts.service.pause(parts.ann, job.id)
        wait_for(parts, job.id, "paused")
    assert [attempt.outcome for attempt in attempts_of(parts, job.id)] == ["paused", "paused"]
    assert not (run / "signals").exists(), "it was asked, not signalled"


def test_a_run_that_hears_nothing_is_killed_by_degrees(parts: Parts) -> None:
    job = parts.submit()
    with working(parts, scripted(updates=10_000, deaf=True, ignore_term=True, children=["session", "bare"])):
        wait(lambda: parts.job(job.id).update >= 2)
        parts.service.cancel(parts.ann, job.id)
        cancelled = wait_for(parts, job.id, "cancelled")
    assert "ann asked to cancel" in cancelled.message
    signals = (parts.workspace.run(job.id) / "signals").read_text().split()
    assert signals == [str(int(signal.SIGTERM))], "SIGTERM comes once: a second one would end a saving run"
    [attempt] = attempts_of(parts, job.id)
    assert attempt.exit_code == -signal.SIGKILL
    assert_nothing_left(parts)


def test_children_that_outlive_a_run_are_ended_with_it(parts: Parts) -> None:
    job = parts.submit()
    with working(parts, scripted(updates=3, seconds=0.2, children=["session", "bare"])):
        wait(lambda: len(processes(parts, job.id)) == 2)  # the leader and the tagged child
        wait_for(parts, job.id, "succeeded")
        assert_nothing_left(parts)


@pytest.mark.parametrize(
    ("script", "state", "words"),
    [
        ({"exit_at": 2, "exit_code": 2, "say": "flash-grpo: the model is missing; download it"}, "failed", "missing"),
        ({"exit_at": 2, "fail": "the weights have diverged; lower learning_rate"}, "failed", "diverged"),
        ({"exit_at": 2, "say": "OSError: [Errno 28] No space left on device"}, "failed", "the disk is full"),
        ({"exit_at": 2, "say": "RuntimeError: CUDA out of memory. Tried to"}, "failed", "device ran out of memory"),
    ],
)  # fmt: skip
def test_a_run_that_cannot_go_on_fails_with_words(
    parts: Parts, script: dict[str, object], state: str, words: str
) -> None:
    job = parts.submit()
    with working(parts, scripted(updates=5, **script)):
        found = wait_for(parts, job.id, state)
    assert words in found.message
    assert len(attempts_of(parts, job.id)) == 1, "it is not tried again"
    assert_nothing_left(parts)


def test_a_run_that_dies_is_resumed_after_a_pause_and_loses_only_what_was_not_saved(parts: Parts) -> None:
    job = parts.submit()
    with working(parts, scripted(updates=6, die_at=4, save_every=2, once=True)):
        done = wait_for(parts, job.id, "succeeded")
    assert parts.states(job.id)[:5] == ["queued", "starting", "running", "lost", "queued"]
    first, second = attempts_of(parts, job.id)
    assert first.outcome == "lost" and first.exit_code == -signal.SIGKILL and "killed from outside" in first.message
    assert second.from_update == 2 and done.update == 6
    with parts.store.reading() as session:
        assert count_points(session, job.id) == 6, "every update is there once"


def test_a_run_that_dies_again_and_again_without_progress_fails(parts: Parts) -> None:
    job = parts.submit(max_retries=1)
    with working(parts, scripted(updates=6, die_at=1, signal=int(signal.SIGSEGV))):
        failed = wait_for(parts, job.id, "failed")
    assert "crashed (SIGSEGV)" in failed.message and "without progress" in failed.message
    assert [attempt.outcome for attempt in attempts_of(parts, job.id)] == ["lost", "lost"]


def test_a_run_that_hangs_is_killed_and_tried_again(parts: Parts) -> None:
    job = parts.submit()
    patience = replace(SHORT, hang=1.0, hang_factor=2.0)
    with working(parts, scripted(updates=4, silent_at=3, once=True), patience):
        wait_for(parts, job.id, "succeeded")
    assert "hung" in attempts_of(parts, job.id)[0].message


@pytest.mark.parametrize(("factor", "attempts"), [(10.0, 1), (0.0, 2)])
def test_a_silence_within_ten_times_the_longest_so_far_is_patience(parts: Parts, factor: float, attempts: int) -> None:
    """Control: without that factor the same silence counts as a hang."""
    job = parts.submit()
    patience = replace(SHORT, hang=0.8, hang_factor=factor)
    with working(parts, scripted(updates=4, seconds=0.25, slow_at=3, slow=1.5, once=True), patience):
        wait_for(parts, job.id, "succeeded")
    assert len(attempts_of(parts, job.id)) == attempts


def test_a_spent_budget_pauses_the_job_with_a_sentence(parts: Parts) -> None:
    job = parts.submit(budget=0.01)  # 0.6 s of one device
    with working(parts, scripted(updates=1000, seconds=0.05)):
        paused = wait_for(parts, job.id, "paused")
    assert "budget of 0.01 device-minutes is spent" in paused.message
    assert paused.device_seconds >= 0.6
    assert_nothing_left(parts)


def test_a_worker_that_stops_lets_its_run_save_and_gives_the_job_back(parts: Parts) -> None:
    job = parts.submit()
    with working(parts, scripted(updates=1000, seconds=0.1, save_every=1000)) as running:
        wait(lambda: parts.job(job.id).update >= 2)
        running.stop()
    back = parts.job(job.id)
    assert back.state == "queued" and "shut down" in back.message and back.retries == 0
    [attempt] = attempts_of(parts, job.id)
    assert attempt.outcome == "stopped"
    assert_nothing_left(parts)
    with working(parts, scripted(updates=back.update + 2)):
        wait_for(parts, job.id, "succeeded")
    assert attempts_of(parts, job.id)[1].from_update == back.update


def test_a_run_that_does_not_save_in_time_is_killed_when_its_worker_stops(parts: Parts) -> None:
    job = parts.submit()
    with working(parts, scripted(updates=1000, deaf=True, ignore_term=True)) as running:
        wait(lambda: parts.job(job.id).update >= 2)
        running.stop()
    assert parts.job(job.id).state == "queued"
    assert_nothing_left(parts)


def test_a_folder_removed_while_the_run_goes_on_ends_the_job_with_a_sentence(parts: Parts) -> None:
    job = parts.submit()
    with working(parts, scripted(updates=1000)):
        wait(lambda: parts.job(job.id).update >= 2)
        shutil.rmtree(parts.workspace.job(job.id), ignore_errors=True)  # the run writes into it meanwhile
        failed = wait_for(parts, job.id, "failed")
    assert "folder was removed while it ran" in failed.message
    assert_nothing_left(parts)


def test_a_folder_removed_while_the_job_was_paused_ends_it_too(parts: Parts) -> None:
    job = parts.submit()
    with working(parts, scripted(updates=1000, seconds=0.1)):
        wait(lambda: parts.job(job.id).update >= 2)
        parts.service.pause(parts.ann, job.id)
        wait_for(parts, job.id, "paused")
        parts.service.resume(parts.ann, job.id)
        shutil.rmtree(parts.workspace.job(job.id))
        failed = wait_for(parts, job.id, "failed")
    assert "removed" in failed.message
    assert_nothing_left(parts)


def test_a_job_deleted_while_it_runs_takes_its_processes_with_it(parts: Parts) -> None:
    job, other = parts.submit(), parts.submit()
    with working(parts, scripted(updates=1000), slots=2):
        wait(lambda: parts.job(job.id).update >= 2 and parts.job(other.id).update >= 2)
        with parts.store.writing() as session:
            session.execute(delete(Job).where(Job.id == job.id))
        wait(lambda: not processes(parts, job.id))
        assert processes(parts, other.id), "control: the other job goes on"
        assert [lease.job_id for lease in leases(parts)] == [other.id]


def test_a_request_by_hand_pauses_the_job(parts: Parts) -> None:
    job = parts.submit()
    with working(parts, scripted(updates=1000)):
        wait(lambda: parts.job(job.id).update >= 2)
        (parts.workspace.run(job.id) / "control" / "pause").touch()
        paused = wait_for(parts, job.id, "paused")
    assert "not through the studio" in paused.message


def test_a_clock_that_jumps_decides_nothing(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    job = parts.submit()
    real, shift = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + shift[0])
    with working(parts, scripted(updates=30, seconds=0.05, die_at=15, once=True)):
        wait(lambda: parts.job(job.id).update >= 3)
        shift[0] = 86400.0
        wait(lambda: parts.job(job.id).update >= 8)
        assert parts.job(job.id).device_seconds < 60
        # Set back while the job waits for its retry, which would otherwise come a day later.
        wait(lambda: parts.job(job.id).state == "queued")
        assert (parts.job(job.id).not_before or 0) > real() + 80000
        shift[0] = 0.0
        done = wait_for(parts, job.id, "succeeded")
    assert len(attempts_of(parts, job.id)) == 2 and done.device_seconds < 60


def test_a_fault_of_the_worker_itself_is_counted_and_told(parts: Parts) -> None:
    job, other = parts.submit(max_retries=1), parts.submit()
    good = scripted(updates=2)

    def faulty(ground: Ground, claim: Claim) -> list[str]:
        if claim.job_id == job.id:
            raise RuntimeError("a bug")
        return good(ground, claim)

    with working(parts, faulty):
        failed = wait_for(parts, job.id, "failed")
        wait_for(parts, other.id, "succeeded")
    assert "its worker failed at it (RuntimeError: a bug)" in failed.message
    assert_nothing_left(parts)
