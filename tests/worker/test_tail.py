"""A run's log comes into the store whole, once, folded, and fast."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from flash_grpo.events import EventLog, Finished, Progress, Resumed, RunStarted, Samples, Warning_
from flash_grpo_studio.app.jobs.change import Fenced
from flash_grpo_studio.app.jobs.leases import Claim
from flash_grpo_studio.app.store.curves import Curves
from flash_grpo_studio.app.store.metrics import count_points
from flash_grpo_studio.app.store.tables import Checkpoint, Event, Job, Video
from flash_grpo_studio.worker import tail as tails
from flash_grpo_studio.worker.tail import Tail, last_ending
from tests.studio import Parts
from tests.worker.scripted import emit_metrics


def begun(parts: Parts) -> tuple[Claim, Path, Tail]:
    job = parts.submit()
    claim = parts.claim(parts.worker(host=job.id))
    run = parts.workspace.run(job.id)
    run.mkdir(parents=True)
    return claim, run, Tail(parts.store, claim, parts.workspace, "run")


def count(parts: Parts, table: Any) -> int:
    with parts.store.reading() as session:
        return session.query(table).count()


def points(parts: Parts, job_id: str) -> int:
    with parts.store.reading() as session:
        return count_points(session, job_id)


def told(parts: Parts, job_id: str) -> list[str]:
    with parts.store.reading() as session:
        query = session.query(Event.type).filter(Event.job_id == job_id, Event.seq.is_not(None)).order_by(Event.seq)
        return [type_ for (type_,) in query]


def test_only_whole_lines_are_taken_and_each_once(parts_of_both: Parts) -> None:
    parts = parts_of_both
    claim, run, tail = begun(parts)
    assert not tail.take(), "control: there is no log yet"
    with EventLog(run) as log:
        log.emit(RunStarted({}, {}))
        emit_metrics(log, 1)
    whole = (run / "events.jsonl").read_bytes()
    (run / "events.jsonl").write_bytes(whole[:-20])
    tail.drain()
    assert told(parts, claim.job_id) == ["run_started"] and points(parts, claim.job_id) == 0
    (run / "events.jsonl").write_bytes(whole)
    tail.drain()
    tail.drain()
    Tail(
        parts.store, claim, parts.workspace, "run"
    ).take()  # one that begins where the claim was made, as after an adoption
    assert told(parts, claim.job_id) == ["run_started"] and points(parts, claim.job_id) == 1
    assert parts.job(claim.job_id).intake_offset == len(whole)


def test_a_stretch_is_cut_at_lines_whatever_its_size(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "CHUNK", 300)
    claim, run, tail = begun(parts)
    with EventLog(run) as log:
        for number in range(20):
            log.emit(Warning_("x" * (17 * number), "code", number))
    steps = 1
    while tail.take():
        steps += 1
    assert len(told(parts, claim.job_id)) == 20 and steps > 5


def test_a_resumed_attempt_replaces_what_it_does_again(parts: Parts) -> None:
    claim, run, tail = begun(parts)
    with EventLog(run, 1) as log:
        for update in (1, 2, 3):
            emit_metrics(log, update)
    tail.drain()
    assert points(parts, claim.job_id) == 3
    with EventLog(run, 2) as log:
        log.emit(Resumed(1))
        emit_metrics(log, 2)
    tail.drain()
    with parts.store.reading() as session:
        series, updates = Curves().read(session, claim.job_id, 100)
    assert updates == 2 and series["reward/brightness/mean"].update == [1, 2]


def test_a_log_that_is_replaced_by_another_one_starts_anew(parts: Parts) -> None:
    claim, run, tail = begun(parts)
    with EventLog(run) as log:
        log.emit(RunStarted({"first": True}, {}))
        emit_metrics(log, 1)
        emit_metrics(log, 2)
    tail.drain()
    shutil.rmtree(run)
    tail.drain()
    assert points(parts, claim.job_id) == 2, "control: a log that is only away takes nothing with it"
    with EventLog(run, 2) as log:
        log.emit(RunStarted({"first": False}, {}))
        emit_metrics(log, 1)
    tail.drain()
    with EventLog(run, 2) as log:
        log.emit(Finished("done", "x"))
    tail.drain()
    assert told(parts, claim.job_id) == ["run_started", "finished"] and points(parts, claim.job_id) == 1
    assert parts.job(claim.job_id).intake_offset == (run / "events.jsonl").stat().st_size


def test_an_outdated_tail_writes_nothing(parts: Parts) -> None:
    claim, run, tail = begun(parts)
    with parts.store.writing() as session:
        session.get_one(Job, claim.job_id).fence += 1
    with EventLog(run) as log:
        emit_metrics(log, 1)
    with pytest.raises(Fenced):
        tail.drain()
    assert points(parts, claim.job_id) == 0


def test_a_tail_finds_its_place_when_an_answer_was_lost(parts: Parts) -> None:
    claim, run, tail = begun(parts)
    with EventLog(run) as log:
        emit_metrics(log, 1)
    tail.drain()
    tail.offset = 0  # the commit went through, and nobody heard of it
    with EventLog(run) as log:
        emit_metrics(log, 2)
    tail.drain()
    assert points(parts, claim.job_id) == 2 and tail.offset == (run / "events.jsonl").stat().st_size


def test_videos_are_described_by_the_scores_beside_them(parts: Parts) -> None:
    claim, run, tail = begun(parts)
    folder = run / "videos" / "000004"
    folder.mkdir(parents=True)
    prompts = [{"id": "a", "text": "A"}, {"id": "b", "text": "B"}]
    scores = {"update": 4, "split": "heldout", "seed": 0, "prompts": prompts, "rewards": {"flicker": [0.25, 0.75]}}
    scores["noise"] = [1, 2**63 - 1]
    (folder / "scores-heldout.json").write_text(json.dumps(scores))
    (folder / "scores-validation.json").write_text("{torn")
    (folder / "b-0.mp4").write_bytes(b"12345")
    with EventLog(run) as log:
        log.emit(Samples(4, ["videos/000004/b-0.mp4", "videos/000004/stranger-0.mp4"]))
        log.emit(Samples(0, ["videos/000000/b-0.mp4"]))
    tail.drain()
    with parts.store.reading() as session:
        known, stranger, before = session.query(Video).order_by(Video.update.desc(), Video.path).all()
    assert (known.prompt, known.prompt_id, known.seed, known.scores) == ("B", "b", 0, {"flicker": 0.75})
    assert (known.noise, known.strength, stranger.noise) == (2**63 - 1, None, None)
    assert (known.bytes, known.side, known.path) == (5, "after", f"{claim.folder}/run/videos/000004/b-0.mp4")
    assert (stranger.prompt, stranger.scores, before.side) == (None, {}, "before")


def test_sentences_do_not_tell_where_the_server_keeps_its_files(parts: Parts) -> None:
    claim, run, tail = begun(parts)
    with EventLog(run) as log:
        log.emit(Warning_(f"look at {run}/log.txt", "code"))
    tail.drain()
    with parts.store.reading() as session:
        [event] = session.query(Event).filter(Event.type == "warning")
    assert event.data["message"] == f"look at {claim.folder}/run/log.txt"


def test_pruned_checkpoints_leave_the_store(parts: Parts) -> None:
    from flash_grpo.events import Checkpoint as Saved

    _, run, tail = begun(parts)
    with EventLog(run) as log:
        for update in (1, 2, 3):
            (run / "checkpoints" / f"{update:06d}").mkdir(parents=True)
            log.emit(Saved(update, f"checkpoints/{update:06d}"))
    tail.drain()
    assert count(parts, Checkpoint) == 3
    shutil.rmtree(run / "checkpoints" / "000001")
    (run / "checkpoints" / "000004").mkdir()
    with EventLog(run) as log:
        log.emit(Saved(4, "checkpoints/000004"))
    tail.drain()
    with parts.store.reading() as session:
        assert sorted(row.update for row in session.query(Checkpoint)) == [2, 3, 4]


def test_the_last_words_of_this_attempt_count_and_no_earlier_ones(tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    assert last_ending(file, 0) is None
    with EventLog(tmp_path, 1) as log:
        log.emit(Finished("paused", "first"))
    middle = file.stat().st_size
    assert last_ending(file, 0) is not None and last_ending(file, middle) is None
    with EventLog(tmp_path, 2) as log:
        log.emit(RunStarted({}, {}))
        assert last_ending(file, 0) is None, "a new beginning takes an old ending back"
        log.emit(Progress("rollout", 1, 2, 0.0))
        log.emit(Finished("done", "second"))
    found = last_ending(file, middle)
    assert found is not None and found.data["message"] == "second"


def test_five_thousand_events_a_second(parts_of_both: Parts) -> None:
    """A third of them metrics, as a fast run has them; the best of three, as the machine is shared."""
    parts = parts_of_both
    rates = []
    for _ in range(3):
        claim, run, tail = begun(parts)
        with EventLog(run) as log:
            emit_metrics(log, 0)
            template = json.loads((run / "events.jsonl").read_text())
        lines = []
        for number in range(6000):
            if number % 3 == 0:
                lines.append(json.dumps({**template, "seq": number + 2, "update": number}))
            else:
                head = {"v": 1, "seq": number + 2, "attempt": 1, "time": 1.0}
                type_ = "progress" if number % 3 == 1 else "warning"
                body = {"phase": "rollout", "update": number, "updates": 9000, "elapsed_seconds": 1.0, "message": "m"}
                lines.append(json.dumps({**head, "type": type_, **body, "code": "c"}))
        with (run / "events.jsonl").open("a") as file:
            file.write("\n".join(lines) + "\n")
        began = time.perf_counter()
        tail.drain()
        rates.append(6000 / (time.perf_counter() - began))
        assert points(parts, claim.job_id) == 2000 and len(told(parts, claim.job_id)) == 2000
    print(f"events per second: {sorted(round(rate) for rate in rates)}")
    assert max(rates) >= 5000
