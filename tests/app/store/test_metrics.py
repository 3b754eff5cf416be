"""Metric points and what charts get of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flash_grpo_studio.app.store.curves import Curves, downsample
from flash_grpo_studio.app.store.metrics import (
    Point,
    drop_points,
    flatten,
    last_values,
    put_points,
)
from tests.studio import Parts, metrics, records


def put(parts: Parts, job_id: str, *points: Point) -> None:
    with parts.store.writing() as session:
        put_points(session, job_id, points)


def test_an_event_becomes_series_by_path() -> None:
    data = {
        "update": 3,
        "rewards": {"subject_size": {"mean": 0.5, "group_spread": None}},
        "branch": {"1": {"weight": 2.0}},
        "seconds": {"rollout": 1.5},
        "kl": None,
        "loss": 0.25,
        "drift": 1e-6,
    }
    assert flatten(data) == {
        "reward/subject_size/mean": 0.5,
        "branch/1/weight": 2.0,
        "seconds/rollout": 1.5,
        "loss": 0.25,
        "drift": 1e-6,
    }


def test_series_that_join_later_and_values_that_are_missing(parts: Parts) -> None:
    job = parts.submit()
    put(parts, job.id, Point(1, 1, 0.0, {"a": 1.0}), Point(2, 1, 0.0, {"a": 2.0, "b": 20.0}))
    put(parts, job.id, Point(3, 1, 0.0, {"c": 30.0}))
    with parts.store.reading() as session:
        series, count = Curves().read(session, job.id, 100)
        assert last_values(session, job.id) == {"c": 30.0}
    assert count == 3
    assert {name: (found.update, found.value) for name, found in series.items()} == {
        "a": ([1, 2], [1.0, 2.0]),
        "b": ([2], [20.0]),
        "c": ([3], [30.0]),
    }


def test_a_point_measured_again_replaces_the_old_one_and_others_can_be_dropped(parts: Parts) -> None:
    job = parts.submit()
    put(parts, job.id, *(Point(update, 1, 0.0, {"a": float(update)}) for update in range(1, 6)))
    put(parts, job.id, Point(2, 2, 0.0, {"a": -2.0}))
    with parts.store.writing() as session:
        drop_points(session, job.id, 3)
        series, _ = Curves().read(session, job.id, 100)
    assert series["a"].value == [1.0, -2.0, 3.0]


def test_names_and_prefixes_choose_series(parts: Parts) -> None:
    job = parts.submit()
    put(parts, job.id, Point(1, 1, 0.0, {"reward/a/mean": 1.0, "reward/b/mean": 2.0, "loss": 3.0, "losses": 4.0}))
    with parts.store.reading() as session:
        assert set(Curves().read(session, job.id, 10, ["reward/", "loss"])[0]) == {
            "reward/a/mean",
            "reward/b/mean",
            "loss",
        }
        assert Curves().read(session, job.id, 10, ["nothing"])[0] == {}
        assert Curves().read(session, job.id, 10, after_update=1) == ({}, 0)


@pytest.mark.parametrize("count", [1, 7, 100, 101, 1000, 12345])
def test_no_spike_is_lost_by_downsampling(count: int) -> None:
    values = np.sin(np.arange(count) / 50.0)
    spike = count // 3
    values[spike] = 100.0
    updates = np.arange(count) + 1
    at, mean, low, high = downsample(updates, values[:, None], 100)
    assert len(at) == min(count, 100)
    assert at[-1] == count
    assert (np.diff(at) > 0).all()
    assert high.max() == 100.0
    assert (low <= mean + 1e-12).all() and (mean <= high + 1e-12).all()
    weights = np.diff(np.concatenate([[0], at]))
    assert float((mean[:, 0] * weights).sum()) == pytest.approx(float(values.sum()))


def test_gaps_do_not_become_zeros() -> None:
    table = np.full((1000, 2), math.nan)
    table[10, 0], table[11, 0] = 4.0, 6.0
    _, mean, low, high = downsample(np.arange(1000), table, 10)
    assert mean[0, 0] == 5.0 and low[0, 0] == 4.0 and high[0, 0] == 6.0
    assert np.isnan(mean[1:, 0]).all() and np.isnan(mean[:, 1]).all()


def test_what_is_kept_follows_the_run(parts: Parts) -> None:
    """A table kept in memory must show new updates, new series, and what a resumption measures anew."""
    job = parts.submit()
    curves = Curves()

    def shown(name: str = "a") -> list[float | None]:
        with parts.store.reading() as session:
            fresh = Curves().read(session, job.id, 100)[0]
            kept = curves.read(session, job.id, 100)[0]
        assert kept == fresh
        return kept[name].value if name in kept else []

    assert shown() == []
    put(parts, job.id, Point(1, 1, 0.0, {"a": 1.0}), Point(2, 1, 0.0, {"a": 2.0}), Point(3, 1, 0.0, {"a": 3.0}))
    assert shown() == [1.0, 2.0, 3.0]
    put(parts, job.id, Point(4, 1, 0.0, {"a": 4.0, "b": 40.0}))
    assert (shown(), shown("b")) == ([1.0, 2.0, 3.0, 4.0], [40.0])
    found = parts.claim(parts.worker())
    again = records({"type": "resumed", "from_update": 1}, metrics(2, reward=0.25), metrics(3), metrics(4), metrics(5))
    assert parts.take(found, again, 0, 1)
    assert shown() == [1.0]
    assert shown("loss") == [2.0, 3.0, 4.0, 5.0]
    with parts.store.writing() as session:
        drop_points(session, job.id, 2)
    assert shown("loss") == [2.0]


def test_memory_kept_for_curves_is_limited(parts: Parts) -> None:
    curves = Curves(most_bytes=8 * 10)
    for _ in range(3):
        job = parts.submit()
        put(parts, job.id, *(Point(update, 1, 0.0, {"a": float(update)}) for update in range(1, 7)))
        with parts.store.reading() as session:
            assert curves.read(session, job.id, 100)[0]["a"].value == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert sum(kept.table.nbytes for kept in curves._kept.values()) <= 80
