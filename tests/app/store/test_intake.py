"""A run's log in the store: once, in order, folded as readers of the log fold it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from flash_grpo.events import parse_records, read_events
from flash_grpo_studio.app.jobs import attempts
from flash_grpo_studio.app.store.curves import Curves
from flash_grpo_studio.app.store.intake import VideoFacts, take_in
from flash_grpo_studio.app.store.tables import Attempt, Checkpoint, Event, Metric, Video
from tests.studio import Parts, metrics, records


def attempt_lines(
    number: int, first: int, start: int, end: int, resumed: bool, last: dict[str, object]
) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = [{"type": "run_started", "config": {}, "versions": {}, "preset": None}]
    if resumed:
        lines.append({"type": "resumed", "from_update": start})
    for update in range(start + 1, end + 1):
        lines.append({"type": "progress", "phase": "rollout", "update": update, "updates": 20, "elapsed_seconds": 1.0})
        lines.append(metrics(update, reward=number + update / 100))
        if update % 2 == 0:
            best = {"mean": update / 100, "ci95": [0, 1]}
            lines.append(
                {
                    "type": "evaluation",
                    "update": update,
                    "split": "validation",
                    "rewards": {"subject_size": best},
                    "videos": 4,
                }
            )
            lines.append({"type": "checkpoint", "update": update, "path": f"checkpoints/{update:06d}", "best": True})
    return [
        {"v": 1, "seq": first + place, "attempt": number, "time": 1.0, **line}
        for place, line in enumerate([*lines, last])
    ]


@pytest.fixture
def log() -> bytes:
    """Three attempts: one killed at update 7, one interrupted at 9 after resuming at 6, one done."""
    warning = {"type": "warning", "message": "lost", "code": "test", "update": 7}
    first = attempt_lines(1, 1, 0, 7, False, warning)
    ended = {"type": "finished", "status": "interrupted", "message": "stopped"}
    second = attempt_lines(2, 101, 6, 9, True, ended)
    done = {"type": "finished", "status": "done", "message": "done"}
    third = attempt_lines(3, 201, 8, 12, True, done)
    return b"".join(json.dumps(line).encode() + b"\n" for line in [*first, *second, *third])


def test_whatever_the_batches_the_store_holds_the_folded_log(parts: Parts, log: bytes, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(log)
    folded = read_events(tmp_path)
    choose = random.Random(0)
    for _ in range(4):
        job = parts.submit()
        found = parts.claim(parts.worker(host=job.id))
        attempts.started(parts.store, found, 1, 1.0)
        seen = 0
        for end in sorted([*choose.sample([i + 1 for i, b in enumerate(log) if b == 10], 5), len(log)]):
            batch = parse_records(log[seen:end])
            assert parts.take(found, batch, seen, end)
            assert not parts.take(found, batch, seen, end), "the same stretch counts once"
            seen = end
        with parts.store.reading() as session:
            series, count = Curves().read(session, job.id, 1000)
            told = [
                (r.seq, r.type)
                for r in session.query(Event).filter(Event.job_id == job.id, Event.seq.is_not(None)).order_by(Event.seq)
            ]
            saved = [
                row.update
                for row in session.query(Checkpoint).filter(Checkpoint.job_id == job.id).order_by(Checkpoint.update)
            ]
            ending = session.get_one(Attempt, (job.id, 1)).ending
        expected = [record for record in folded if record.type == "metrics"]
        assert series["reward/subject_size/mean"].update == [record.update for record in expected]
        assert series["reward/subject_size/mean"].value == [
            record.data["rewards"]["subject_size"]["mean"] for record in expected
        ]
        assert count == 12
        assert told == [(record.seq, record.type) for record in folded if record.type not in ("metrics", "progress")]
        assert saved == [2, 4, 6, 8, 10, 12]
        assert ending is not None and ending["status"] == "done"
        now = parts.job(job.id)
        assert (now.update, now.updates, now.progress["update"], now.intake_offset) == (12, 20, 12, len(log))


def test_without_folding_the_comparison_fails(parts: Parts, log: bytes, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(log)
    raw = [record.update for record in read_events(tmp_path, fold=False) if record.type == "metrics"]
    assert raw != [record.update for record in read_events(tmp_path) if record.type == "metrics"]


def test_a_stretch_out_of_order_or_of_an_outdated_worker_changes_nothing(parts: Parts) -> None:
    job = parts.submit()
    found = parts.claim(parts.worker())
    batch = records(metrics(1))
    assert not parts.take(found, batch, 5, 10)
    with parts.store.writing() as session:
        assert not take_in(session, job.id, found.fence - 1, batch, (0, 10), lambda record: [])
    with parts.store.reading() as session:
        assert session.query(Metric).count() == 0
    assert parts.take(found, batch, 0, 10)


def test_a_video_keeps_its_id_when_it_is_rendered_again(parts: Parts) -> None:
    job = parts.submit()
    found = parts.claim(parts.worker())
    batch = records({"type": "samples", "update": 2, "files": ["videos/000002/p-0.mp4"]})

    def offer(before: int, score: float) -> Video:
        facts = VideoFacts(
            f"jobs/{job.id}/run/videos/000002/p-0.mp4", 10, 2, "after", "p", "a ball", 0, {"size": score}
        )
        with parts.store.writing() as session:
            assert take_in(session, job.id, found.fence, batch, (before, before + 1), lambda record: [facts])
        with parts.store.reading() as session:
            return session.query(Video).one()

    first, second = offer(0, 0.25), offer(1, 0.5)
    assert first.id == second.id
    assert (second.scores, second.prompt, second.owner_id) == ({"size": 0.5}, "a ball", parts.ann.user_id)


def test_device_time_adds_up(parts: Parts) -> None:
    job = parts.submit()
    found = parts.claim(parts.worker())
    for turn in range(3):
        with parts.store.writing() as session:
            take_in(session, job.id, found.fence, [], (0, 0), lambda record: [], device_seconds=1.5)
        assert parts.job(job.id).device_seconds == pytest.approx(1.5 * (turn + 1))
