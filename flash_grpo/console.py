"""A run on the terminal: a live progress line, or plain lines where nobody watches."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from flash_grpo.events import (
    Checkpoint,
    Evaluation,
    Event,
    Metrics,
    Progress,
    RunStarted,
    Subscriber,
    Warning_,
)

if TYPE_CHECKING:
    from rich.console import Console

PHASES = {
    "setup": "setting up",
    "rollout": "rolling out",
    "reward": "scoring",
    "replay": "learning",
    "evaluate": "evaluating",
    "save": "saving",
}
PLAIN_INTERVAL = 5.0
"""Seconds between two plain progress lines, so that a log of an hour stays readable."""

_UNITS = (
    (90, "s", 1, 5.0),
    (1200, "min", 60, 1.0),
    (5400, "min", 60, 5.0),
    (36000, "h", 3600, 0.5),
    (172800, "h", 3600, 1.0),
    (math.inf, "d", 86400, 0.5),
)
"""Of ranges of time: seconds below which a unit is used, its name, its seconds, and the step it is told in."""


def duration(seconds: float | None) -> str:
    """Seconds as a person says them: 42 s, 3 min 05 s, 2 h 10 min."""
    if seconds is None:
        return "unknown"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def span(low: float, high: float) -> str:
    """A range of seconds, no finer than it is known: 10-25 s, 12-15 min, 1.5-2 h, 3-4 d."""
    unit, seconds, step = next((unit, seconds, step) for limit, unit, seconds, step in _UNITS if high < limit)
    first, last = (round(value / seconds / step) * step for value in (low, high))
    last = max(last, step)
    return f"{first:g}-{last:g} {unit}" if first < last else f"{last:g} {unit}"


def time_left(event: Progress) -> str:
    """What is left of a run or task in words; empty while it is not known."""
    if event.eta_low_seconds is None or event.eta_high_seconds is None:
        return ""
    return f"{span(event.eta_low_seconds, event.eta_high_seconds)} left"


class _Narrator:
    """Turns events into sentences; both displays use it."""

    def __init__(self) -> None:
        self.weights: dict[str, float] = {}

    def sentence(self, event: Event) -> str | None:
        """What is worth a line of its own."""
        if isinstance(event, RunStarted):
            self.weights = dict(event.config.get("rewards", {}))
        elif isinstance(event, Evaluation):
            figures = ", ".join(f"{name} {self._mean(event, name)}" for name in self._ordered(event))
            mark = ", the best so far" if event.best and event.split == "validation" else ""
            return f"{event.split} after update {event.update}: {figures}{mark}"
        elif isinstance(event, Warning_):
            return f"warning: {event.message}"
        elif isinstance(event, Checkpoint) and event.best:
            return f"saved {event.path}"
        return None

    def _ordered(self, event: Evaluation | Metrics) -> list[str]:
        return sorted(event.rewards, key=lambda name: (not self.weights.get(name), name))

    @staticmethod
    def _mean(event: Evaluation | Metrics, name: str) -> str:
        return f"{event.rewards[name]['mean']:.3f}"

    def reward(self, event: Metrics) -> str:
        """The optimised rewards of an update."""
        names = [name for name in self._ordered(event) if self.weights.get(name)]
        return "  ".join(f"{name} {self._mean(event, name)}" for name in names)


@contextmanager
def watch_run(console: Console) -> Iterator[Subscriber]:
    """Yield a subscriber that shows a run's progress on `console`: live on a terminal, else as plain lines."""
    if console.is_terminal:
        with _live(console) as subscriber:
            yield subscriber
    else:
        yield _PlainLines(console.file)


@contextmanager
def _live(console: Console) -> Iterator[Subscriber]:
    from rich.progress import BarColumn, SpinnerColumn, TextColumn
    from rich.progress import Progress as Bar

    narrator = _Narrator()
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<11}"),
        BarColumn(bar_width=28),
        TextColumn("update {task.completed:.0f}/{task.total:.0f}"),
        TextColumn("[cyan]{task.fields[reward]}"),
        TextColumn("{task.fields[left]}", style="dim"),
    )
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(PHASES["setup"], total=1, reward="", left="")

        def show(event: Event) -> None:
            line = narrator.sentence(event)
            if line:
                bar.console.print(line, markup=False, highlight=False)
            if isinstance(event, Progress):
                description, left = PHASES.get(event.phase, event.phase), time_left(event)
                bar.update(task, description=description, completed=event.update, total=event.updates, left=left)
            elif isinstance(event, Metrics):
                bar.update(task, completed=event.update, reward=narrator.reward(event))

        yield show


class _PlainLines:
    """Plain lines for logs and pipes: evaluations and warnings always, updates every few seconds."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._narrator = _Narrator()
        self._phase = ""
        self._left = ""
        self._updates = 0
        self._printed = 0.0

    def __call__(self, event: Event) -> None:
        line = self._narrator.sentence(event)
        if line:
            self._print(line)
        if isinstance(event, Progress):
            self._left, self._updates = time_left(event), event.updates
            if event.phase != self._phase and event.phase in ("setup", "evaluate"):
                self._print(PHASES[event.phase])
            self._phase = event.phase
        elif isinstance(event, Metrics) and (
            time.monotonic() - self._printed >= PLAIN_INTERVAL or event.update in (1, self._updates)
        ):
            self._printed = time.monotonic()
            left = f", {self._left}" if self._left else ""
            self._print(f"update {event.update}/{self._updates}: {self._narrator.reward(event)}{left}")

    def _print(self, line: str) -> None:
        print(line, file=self._file, flush=True)
