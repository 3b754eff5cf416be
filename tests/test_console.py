"""What a run looks like on the terminal and in a log file."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from flash_grpo.console import duration, span, watch_run
from flash_grpo.events import Checkpoint, Evaluation, Event, Metrics, Progress, RunStarted, Warning_


def metrics(update: int) -> Metrics:
    figures = {"mean": 0.25, "std": 0.1, "min": 0.0, "max": 1.0, "group_spread": 0.1}
    rewards = {"aesthetic": figures, "subject_size": figures}
    return Metrics(update, rewards, {}, 0.1, {}, 0.0, 0.0, None, 0, 1, 1e-4, {}, {}, 1, 1.0, 0.0)


def a_run(updates: int) -> list[Event]:
    scores = {name: {"mean": 0.3, "ci95": [0.2, 0.4]} for name in ("aesthetic", "subject_size")}
    events: list[Event] = [
        RunStarted({"rewards": {"aesthetic": 0.0, "subject_size": 1.0}}, {}),
        Progress("setup", 0, updates, 0.0),
        Progress("evaluate", 0, updates, 1.0),
        Evaluation(0, "validation", scores, 8),
    ]
    for update in range(1, updates + 1):
        events += [Progress("rollout", update - 1, updates, 2.0, 720.0, 0.0, 0, 640.0, 815.0), metrics(update)]
    return [*events, Warning_("the reward [stands] still", "flat"), Checkpoint(updates, "checkpoints/000001", True)]


def shown(terminal: bool, updates: int) -> str:
    file = io.StringIO()
    with watch_run(Console(file=file, force_terminal=terminal, width=120)) as show:
        for event in a_run(updates):
            show(event)
    return file.getvalue()


def test_a_log_gets_whole_lines_and_not_one_per_update() -> None:
    lines = shown(terminal=False, updates=200).splitlines()
    assert lines[:2] == ["setting up", "evaluating"]
    assert "validation after update 0: subject_size 0.300, aesthetic 0.300" in lines
    assert "update 1/200: subject_size 0.250, 11-14 min left" in lines
    assert any(line.startswith("update 200/200") for line in lines)
    assert sum(line.startswith("update ") for line in lines) < 10
    assert "warning: the reward [stands] still" in lines
    assert "saved checkpoints/000001" in lines
    assert not any("\x1b" in line for line in lines)


def test_a_terminal_gets_a_live_line_and_the_same_sentences() -> None:
    output = shown(terminal=True, updates=3)
    assert "rolling out" in output
    assert "update 3/3" in output
    assert "11-14 min left" in output
    assert "warning: the reward [stands] still" in output


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "unknown"), (41.6, "42 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")]
)
def test_durations_read_as_a_person_says_them(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0, 1, "0-5 s"),
        (12, 26, "10-25 s"),
        (640, 815, "11-14 min"),
        (700, 705, "12 min"),
        (2500, 3500, "40-60 min"),
        (5000, 8000, "1.5-2 h"),
        (50_000, 60_000, "14-17 h"),
        (250_000, 350_000, "3-4 d"),
    ],
)
def test_ranges_are_told_no_finer_than_they_are_known(low: float, high: float, text: str) -> None:
    assert span(low, high) == text
