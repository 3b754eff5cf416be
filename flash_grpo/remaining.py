"""How long work still takes, as a range, from the pace it has had so far. Imports no torch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev

RECENT = 20
"""Measurements that count: a pace of an hour ago says little about the next."""
ALONE = 0.4
"""Half-width, as a share, where one measurement is all there is."""
LEAST = 0.05
"""Half-width, as a share, that steady measurements leave: the machine has good and bad hours. It grows as the root of
how much further than the known the unknown reaches, up to ALONE."""
WARMED_UP = 4
"""From this many on, the first is left out: caches and kernels are built in it."""


@dataclass(frozen=True)
class Range:
    """Seconds: eight of ten ends are expected between low and high."""

    low: float
    middle: float
    high: float

    def at_most(self, limit: float) -> Range:
        """The same where something ends it after `limit` seconds."""
        low, middle, high = (max(0.0, min(value, limit)) for value in (self.low, self.middle, self.high))
        return Range(low, middle, high)


@dataclass(frozen=True)
class Sum:
    """The expected total of some work and the half-width of its range."""

    total: float
    half: float

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.total + other.total, math.hypot(self.half, other.half))

    def range(self) -> Range:
        """Below as above by the same factor, so that no end comes before now."""
        if self.total <= 0:
            return Range(0.0, 0.0, 0.0)
        factor = 1 + self.half / self.total
        return Range(self.total / factor, self.total, self.total * factor)


def forecast(seconds: Sequence[float], more: float) -> Sum:
    """What `more` further units take, after units that took `seconds` each.

    The half-width holds the chance of the units to come and that of the mean they are told from, both larger where
    neighbours are alike (a machine that is slow now stays so for a while), and what the machine may become.
    """
    known = list(seconds[1:] if len(seconds) >= WARMED_UP else seconds)[-RECENT:]
    count = len(known)
    total = more * fmean(known)
    if count == 1:
        return Sum(total, total * ALONE)
    alike = _likeness(known)
    spread = stdev(known) * math.sqrt((1 + alike) / (1 - alike))
    chance = _student(count - 1) * spread * math.sqrt(more + more * more / count)
    return Sum(total, math.hypot(chance, total * min(ALONE, LEAST * math.sqrt(1 + more / len(seconds)))))


def _student(freedom: int) -> float:
    """The 90 % point of Student's t, within a tenth."""
    return 1.28 + 1.8 * math.pow(freedom, -1.3)


def _likeness(values: Sequence[float]) -> float:
    """Correlation of neighbours, freed of what few values take from it; a half where they are too few to tell."""
    if len(values) < 8:
        return 0.5
    mean = fmean(values)
    apart = [value - mean for value in values]
    square = sum(value * value for value in apart)
    if square <= 0:
        return 0.0
    seen = sum(one * other for one, other in pairwise(apart)) / square
    return min(0.9, max(0.0, seen + (1 + 3 * seen) / len(values)))


REPORT = Sum(4.0, 4.0)
"""Seconds of what ends a training: its chart and the sheet of its videos."""


class Pace:
    """Times a training: its updates with all that belongs to them, and the videos it evaluates between them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self.updates: list[float] = []
        self.evaluations: list[tuple[int, float]] = []

    def begin(self) -> None:
        """What comes now belongs to the next update."""
        self._since = self._clock()

    def updated(self) -> None:
        """An update is done."""
        now = self._clock()
        self.updates.append(now - self._since)
        self._since = now

    def now(self) -> float:
        """Seconds by this pace's clock."""
        return self._clock()

    def evaluated(self, videos: int, began: float) -> None:
        """Videos were evaluated and written, which belongs to no update."""
        seconds = self._clock() - began
        self.evaluations.append((videos, seconds))
        self._since += seconds

    def left(
        self, updates: int, videos: int, last_videos: int, video_share: float, limit: float = math.inf
    ) -> Range | None:
        """What further updates and evaluated videos take; None before the first update.

        video_share: the network evaluations of a video over those of an update, for where none was evaluated yet.
        limit: seconds after which the updates end early; the last videos, counted apart, are evaluated all the same.
        """
        if not self.updates:
            return None
        last = self._evaluation(last_videos, video_share) + REPORT
        whole = forecast(self.updates, updates) + self._evaluation(videos, video_share) + last
        return whole.range().at_most(max(0.0, limit) + last.total)

    def _evaluation(self, videos: int, video_share: float) -> Sum:
        known = self.evaluations or [(1, self.updates[-1] * video_share)]
        usual = fmean(count for count, _ in known)
        return forecast([seconds / count * usual for count, seconds in known], videos / usual)


def validations_left(updates: int, every: int, update: int, validated_at: int) -> int:
    """Validations a run still makes at `update`, whether or not the one due there is done; the last is at its end."""
    done = max(update - 1, validated_at)
    if done >= updates:
        return 0
    return 1 if every == 0 else -(-updates // every) - done // every
