"""Ranges of what is left: narrow where the pace is steady, wide where it is not or little is known, mostly right."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from flash_grpo.remaining import ALONE, REPORT, Pace, Range, forecast, validations_left

Course = Callable[[random.Random, int], list[float]]


def wide(seconds: list[float], more: int) -> float:
    """Width of the range over its middle."""
    found = forecast(seconds, more).range()
    assert 0 <= found.low <= found.middle <= found.high
    return (found.high - found.low) / found.middle


def noisy(spread: float) -> Course:
    """Updates of independent times with this standard deviation over their mean."""
    sigma = math.sqrt(math.log(1 + spread * spread))
    return lambda rng, count: [10 * math.exp(rng.gauss(-sigma * sigma / 2, sigma)) for _ in range(count)]


def branching(rng: random.Random, count: int) -> list[float]:
    """Updates whose time depends on the branch steps drawn."""
    return [10 * rng.choice((0.7, 0.85, 1.0, 1.15, 1.3)) * factor / 10 for factor in noisy(0.05)(rng, count)]


def lingering(rng: random.Random, count: int) -> list[float]:
    """A machine whose good and bad times last for several updates."""
    found, state = [], rng.gauss(0, 1)
    for _ in range(count):
        found.append(10 * math.exp(0.1 * state))
        state = 0.8 * state + 0.6 * rng.gauss(0, 1)
    return found


def changing(rng: random.Random, count: int) -> list[float]:
    """A machine that others sometimes share for a while."""
    found, share = [], 1.0
    for seconds in noisy(0.05)(rng, count):
        if rng.random() < 0.02:
            share = rng.choice((1.0, 1.0, 1.5))
        found.append(seconds * share)
    return found


def covered(course: Course, forecasting: Callable[[list[float], int], Range], runs: int = 60) -> float:
    """In how many of the looks at simulated runs, from the first update to the last, the truth is within the range."""
    rng, hits, looks = random.Random(7), 0, 0
    for count in (20, 80, 300):
        for _ in range(runs):
            whole = course(rng, count)
            for share in (0.03, 0.1, 0.25, 0.5, 0.75, 0.95):
                known = max(1, int(count * share))
                found = forecasting(whole[:known], count - known)
                hits += found.low <= sum(whole[known:]) <= found.high
                looks += 1
    return hits / looks


@pytest.mark.parametrize(
    ("course", "least"),
    [(noisy(0.02), 0.95), (noisy(0.1), 0.9), (noisy(0.3), 0.8), (branching, 0.85), (lingering, 0.85), (changing, 0.75)],
    ids=["steady", "noisy", "very noisy", "branching", "lingering", "changing"],
)
def test_the_truth_lies_within_the_range(course: Course, least: float) -> None:
    share = covered(course, lambda known, more: forecast(known, more).range())
    print(f"coverage {share:.2f}")
    assert share >= least


def test_a_point_and_a_fixed_narrow_range_would_be_wrong() -> None:
    """Else the test above could pass with ranges that nothing would miss, or with none."""

    def fixed(known: list[float], more: int) -> Range:
        middle = more * sum(known) / len(known)
        return Range(middle * 0.99, middle, middle * 1.01)

    assert covered(noisy(0.3), fixed) < 0.4
    assert covered(changing, fixed) < 0.4


def test_steady_is_narrow_noisy_is_wide_and_little_known_is_wider() -> None:
    steady = [10.0] * 40
    assert wide(steady, 40) < 0.16
    assert wide(steady, 40) < wide(steady[:4], 76) < wide(steady[:1], 79)
    assert wide(steady[:1], 79) == pytest.approx(1 + ALONE - 1 / (1 + ALONE))
    restless = noisy(0.5)(random.Random(1), 40)
    assert wide(restless, 40) > 1.5 * wide(steady, 40)


def test_only_the_recent_pace_counts_and_the_first_update_does_not() -> None:
    assert forecast([99.0] * 50 + [10.0] * 20, 5).total == 50
    assert forecast([60.0, 10.0, 10.0, 10.0], 5).total == 50
    assert forecast([10.0, 12.0], 0).range() == Range(0.0, 0.0, 0.0)


class Watch:
    """A clock that the test moves on."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def evaluate(watch: Watch, pace: Pace) -> None:
    """Four videos, two seconds each."""
    began = pace.now()
    watch.now += 8
    pace.evaluated(4, began)


def test_a_pace_tells_updates_from_evaluations() -> None:
    watch = Watch()
    pace = Pace(watch)
    evaluate(watch, pace)
    assert pace.left(3, 8, 12, 1.0) is None, "nothing is known before the first update"
    watch.now += 5  # what happens before the updates is no part of them
    pace.begin()
    for _ in range(5):
        watch.now += 10
        pace.updated()
    evaluate(watch, pace)
    watch.now += 10
    pace.updated()
    assert pace.updates == [10.0] * 6
    left = pace.left(3, 8, 12, 1.0)
    assert left is not None and left.middle == pytest.approx(3 * 10 + 20 * 2 + REPORT.total)


def test_what_was_not_evaluated_yet_is_told_from_the_updates() -> None:
    watch = Watch()
    pace = Pace(watch)
    for _ in range(4):
        watch.now += 10
        pace.updated()
    left = pace.left(2, 0, 6, 0.5)
    assert left is not None and left.middle == pytest.approx(2 * 10 + 6 * 5 + REPORT.total)


def test_a_limit_ends_the_updates_and_leaves_the_last_evaluation() -> None:
    watch = Watch()
    pace = Pace(watch)
    evaluate(watch, pace)
    pace.begin()
    watch.now += 10
    pace.updated()
    left = pace.left(1000, 400, 4, 1.0, limit=60.0)
    assert left is not None and left.low == left.high == 60 + 8 + REPORT.total
    over = pace.left(1000, 400, 4, 1.0, limit=-5.0)
    assert over is not None and over.high == 8 + REPORT.total


@pytest.mark.parametrize(
    ("updates", "every", "update", "validated_at", "left"),
    [
        (10, 4, 0, 0, 3),
        (10, 4, 3, 0, 3),
        (10, 4, 4, 0, 3),  # the one due now is not done
        (10, 4, 4, 4, 2),
        (10, 4, 9, 8, 1),
        (10, 4, 10, 8, 1),
        (10, 4, 10, 10, 0),
        (8, 4, 8, 4, 1),
        (8, 4, 8, 8, 0),
        (10, 0, 5, 0, 1),
        (10, 0, 10, 10, 0),
    ],
)
def test_validations_that_are_left(updates: int, every: int, update: int, validated_at: int, left: int) -> None:
    assert validations_left(updates, every, update, validated_at) == left
