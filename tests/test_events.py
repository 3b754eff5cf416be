"""The event log: what is written, what survives a crash, how attempts fold."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from flash_grpo.events import (
    Checkpoint,
    Event,
    EventLog,
    Failed,
    Finished,
    Metrics,
    Progress,
    Resumed,
    RunStarted,
    Warning_,
    read_events,
)


def progress(update: int) -> Progress:
    return Progress(phase="rollout", update=update, updates=10, elapsed_seconds=1.5, cost=12.0, nfe=8)


def metrics(update: int, mean: float = 0.5) -> Metrics:
    return Metrics(
        update=update,
        rewards={"subject_size": {"mean": mean, "std": 0.1, "min": 0.0, "max": 1.0, "group_spread": 0.05}},
        advantage={"mean_abs": 0.8, "max_abs": 2.0},
        grad_norm=0.3,
        branch={0: {"weight": 1.2, "reward": 0.5, "groups": 2}},
        drift=0.0,
        clip_fraction=0.0,
        kl=None,
        dead_groups=0,
        groups=4,
        learning_rate=3e-4,
        seconds={"rollout": 1.0},
        cost={"rollout": 20.0},
        nfe=20,
        peak_memory_mb=512.0,
        loss=-0.01,
    )


def test_a_line_is_one_json_object_with_the_head_first(tmp_path: Path) -> None:
    with EventLog(tmp_path, attempt=3) as log:
        log.emit(RunStarted(config={"seed": 0}, versions={"torch": "2"}, preset="micro"))
        log.emit(metrics(1))
    lines = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [line["seq"] for line in lines] == [1, 2]
    assert list(lines[0])[:5] == ["v", "seq", "attempt", "time", "type"]
    assert lines[0]["v"] == 1
    assert lines[0]["attempt"] == 3
    assert lines[1]["type"] == "metrics"
    assert lines[1]["branch"]["0"]["weight"] == 1.2


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_numbers_that_are_not_finite_become_null(tmp_path: Path, bad: float) -> None:
    with EventLog(tmp_path) as log:
        log.emit(metrics(1, mean=bad))
    text = (tmp_path / "events.jsonl").read_text()
    assert json.loads(text, parse_constant=lambda name: pytest.fail(f"not JSON: {name}"))
    assert read_events(tmp_path)[0].data["rewards"]["subject_size"]["mean"] is None


def test_numpy_numbers_and_paths_are_written_plainly(tmp_path: Path) -> None:
    with EventLog(tmp_path) as log:
        log.emit(Checkpoint(update=np.int64(5), path=Path("checkpoints/000005"), best=np.bool_(True)))  # type: ignore[arg-type]
    assert read_events(tmp_path)[0].data == {"update": 5, "path": "checkpoints/000005", "best": True}


def test_a_value_that_is_no_json_is_refused_by_name(tmp_path: Path) -> None:
    with EventLog(tmp_path) as log, pytest.raises(TypeError, match="got object"):
        log.emit(RunStarted(config={"what": object()}, versions={}))


def test_numbering_continues_after_a_torn_line(tmp_path: Path) -> None:
    with EventLog(tmp_path) as log:
        log.emit(progress(1))
        log.emit(progress(2))
    path = tmp_path / "events.jsonl"
    path.write_bytes(path.read_bytes() + b'{"v":1,"seq":3,"attempt":1,"ti')
    assert [record.seq for record in read_events(path)] == [1, 2]
    with EventLog(tmp_path, attempt=2) as log:
        log.emit(progress(3))
    assert [(record.seq, record.attempt) for record in read_events(path)] == [(1, 1), (2, 1), (3, 2)]


def test_a_character_torn_in_half_does_not_stop_reading(tmp_path: Path) -> None:
    with EventLog(tmp_path) as log:
        log.emit(Warning_(message="größer", code="size"))
    path = tmp_path / "events.jsonl"
    cut = path.read_bytes()
    path.write_bytes(cut + cut[: cut.index("ö".encode()) + 1])
    assert [record.data["message"] for record in read_events(path)] == ["größer"]


def test_resuming_supersedes_later_events_of_earlier_attempts(tmp_path: Path) -> None:
    with EventLog(tmp_path, attempt=1) as log:
        for update in (1, 2, 3, 4):
            log.emit(metrics(update, mean=0.1))
        log.emit(Failed(message="The machine stopped."))
    with EventLog(tmp_path, attempt=2) as log:
        log.emit(Resumed(from_update=2))
        log.emit(metrics(3, mean=0.9))
        log.emit(Finished(status="done", message="Done."))
    folded = read_events(tmp_path)
    seen = [(r.update, r.data["rewards"]["subject_size"]["mean"]) for r in folded if r.type == "metrics"]
    assert seen == [(1, 0.1), (2, 0.1), (3, 0.9)]
    assert [r.type for r in folded if r.type in ("finished", "failed")] == ["finished"]
    assert len(read_events(tmp_path, fold=False)) == 8


def test_subscribers_see_what_was_written(tmp_path: Path) -> None:
    seen: list[tuple[Event, int]] = []
    with EventLog(tmp_path) as log:
        log.subscribe(lambda event: seen.append((event, len(read_events(tmp_path)))))
        log.emit(progress(1))
        log.emit(progress(2))
    assert seen == [(progress(1), 1), (progress(2), 2)]


def test_threads_never_interleave_lines(tmp_path: Path) -> None:
    with EventLog(tmp_path) as log:
        threads = [threading.Thread(target=lambda: [log.emit(metrics(u)) for u in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [record.seq for record in read_events(tmp_path)] == list(range(1, 201))


def test_no_log_reads_as_no_events(tmp_path: Path) -> None:
    assert read_events(tmp_path / "events.jsonl") == []


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.close()
    log.close()


def test_events_import_neither_torch_nor_numpy() -> None:
    code = "import sys, flash_grpo.events; sys.exit(any(m in sys.modules for m in ('torch', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
