"""Pairs: the videos of two sides joined by prompt and seed, and their gains, kept until a video changes."""

from __future__ import annotations

import hashlib
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from flash_grpo.config import RunConfig
from flash_grpo_studio.app.store.intervals import mean_interval
from flash_grpo_studio.app.store.sameness import (
    Difference,
    Settings,
    differing,
    measured_otherwise,
    of_preview,
    optimised,
    settings_of,
)
from flash_grpo_studio.app.store.sides import COMPARABLE, Side, jobs_of
from flash_grpo_studio.app.store.tables import Job, Video

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]
Sort = Literal["-gain", "gain", "prompt", "newest"]
SORTS: tuple[Sort, ...] = ("-gain", "gain", "prompt", "newest")
MOST_PAIRS = 200_000
"""Kept in memory over all comparisons, at about 1 KB each."""


class Clip(NamedTuple):
    """A video as joining needs it."""

    id: str
    job_id: str
    prompt: str
    prompt_id: str | None
    seed: int
    noise: int | None
    scores: Mapping[str, Any]
    created: float


@dataclass(frozen=True)
class Joined:
    """Two videos of one prompt and seed; `differences` are those beyond the ones of the two runs."""

    key: str
    before: Clip
    after: Clip
    differences: tuple[Difference, ...]
    private: bool


@dataclass(frozen=True)
class Gain:
    """What a reward says over all pairs; gain, ci95 and win_rate (a tie counts half) where they may be compared."""

    name: str
    optimised: bool
    before: float | None
    after: float | None
    pairs: int
    gain: float | None = None
    ci95: tuple[float, float] | None = None
    win_rate: float | None = None


@dataclass(frozen=True)
class SideFacts:
    """A side as a comparison tells of it."""

    side: Side
    settings: Settings
    videos: int


@dataclass(frozen=True)
class Comparison:
    """All pairs of two sides. `differences` are those of the two runs, and hold for every pair."""

    before: SideFacts
    after: SideFacts
    differences: tuple[Difference, ...]
    pairs: Sequence[Joined]
    optimised: frozenset[str] = frozenset()
    settings: Mapping[str, Settings] = field(default_factory=dict)
    _orders: dict[tuple[str, str | None], Integers] = field(default_factory=dict, repr=False)

    @cached_property
    def place(self) -> dict[str, int]:
        """Where a pair stands, by its key."""
        return {pair.key: index for index, pair in enumerate(self.pairs)}

    @cached_property
    def rewards(self) -> list[str]:
        """Names of all rewards that any video has, those trained on first."""
        names = {name for pair in self.pairs for clip in (pair.before, pair.after) for name in clip.scores}
        return sorted(names, key=lambda name: (name not in self.optimised, name))

    @cached_property
    def gains(self) -> list[Gain]:
        """One per reward."""
        return [self._gain(name) for name in self.rewards]

    def scores(self, reward: str) -> tuple[Floats, Floats]:
        """Of every pair before and after [N]; NaN where a video has none."""
        before = np.array([score(pair.before.scores, reward) for pair in self.pairs], np.float64)
        return before, np.array([score(pair.after.scores, reward) for pair in self.pairs], np.float64)

    def differences_of_scores(self, reward: str) -> Floats:
        """After minus before [N]; NaN for pairs that differ in more than the side, or lack a score."""
        before, after = self.scores(reward)
        found = after - before
        if self.differences:
            found[:] = np.nan
        found[[bool(pair.differences) for pair in self.pairs]] = np.nan
        return found

    def _gain(self, reward: str) -> Gain:
        before, after = self.scores(reward)
        difference = self.differences_of_scores(reward)
        usable = ~np.isnan(difference)
        shown = usable if usable.any() else ~np.isnan(before) & ~np.isnan(after)
        means = [float(values[shown].mean()) if shown.any() else None for values in (before, after)]
        found = Gain(reward, reward in self.optimised, means[0], means[1], int(shown.sum()))
        if not usable.any():
            return found
        values = difference[usable]
        wins = float((values > 0).mean() + 0.5 * (values == 0).mean())
        return replace(found, gain=float(values.mean()), ci95=mean_interval(values), win_rate=wins)

    def chosen_reward(self, reward: str | None) -> str | None:
        """The reward to sort by: the one named, else the first trained on, else the first there is."""
        return reward if reward is not None else next(iter(self.rewards), None)

    def picked(self, sort: Sort, reward: str | None, search: str = "") -> Integers:
        """Places of the pairs whose prompt holds `search`, in order; pairs without a gain come last."""
        order = self._order(sort, self.chosen_reward(reward) if "gain" in sort else None)
        if not search:
            return order
        wanted = search.casefold()
        held = np.fromiter((wanted in text for text in self._folded), np.bool_, len(self.pairs))
        return order[held[order]]

    def stands(self, key: str, sort: Sort, reward: str | None, search: str = "") -> int | None:
        """Where a pair stands in the list that `picked` makes; None if it is not in it."""
        (found,) = np.nonzero(self.picked(sort, reward, search) == self.place[key])
        return int(found[0]) if len(found) else None

    @cached_property
    def _folded(self) -> list[str]:
        return [pair.before.prompt.casefold() for pair in self.pairs]

    def _order(self, sort: Sort, reward: str | None) -> Integers:
        known = self._orders.get((sort, reward))
        if known is not None:
            return known
        everything = np.arange(len(self.pairs))
        if sort == "newest":
            newest = np.array([-max(pair.before.created, pair.after.created) for pair in self.pairs])
            order = np.argsort(newest, kind="stable") if self.pairs else everything
        elif sort == "prompt" or reward is None:
            order = everything
        else:
            gain = self.differences_of_scores(reward)
            order = np.argsort(gain if sort == "gain" else -gain, kind="stable")
        self._orders[sort, reward] = order
        return order


def score(scores: Mapping[str, Any], reward: str) -> float:
    """A reward of a video; NaN where it has none that counts."""
    value = scores.get(reward)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else math.nan


def key_of(prompt: str, seed: int) -> str:
    """By which a pair is linked to: the same for every rendering of a prompt and seed."""
    return f"{hashlib.sha256(prompt.encode('utf-8', 'replace')).hexdigest()[:16]}-{seed}"


class Pairs:
    """Joins the videos of two sides, and keeps what was lately looked at until one of its rows changes."""

    def __init__(self, most: int = MOST_PAIRS) -> None:
        self.most = most
        self._kept: OrderedDict[Any, tuple[Any, Comparison]] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, session: Session, before: Side, after: Side, seen: ColumnElement[bool]) -> Comparison:
        """The comparison of two sides of runs that are there; of previews those that may be seen (`seen`) count."""
        jobs = [jobs_of(session, side.job_id, seen) for side in (before, after)]
        state = [_state(session, ids, side) for ids, side in zip(jobs, (before, after), strict=True)]
        name = (before, after, *map(tuple, jobs))
        with self._lock:
            kept = self._kept.get(name)
            if kept is not None and kept[0] == state:
                self._kept.move_to_end(name)
                return kept[1]
        made = compare(session, before, after, *jobs)
        self._keep(name, state, made)
        return made

    def _keep(self, name: Any, state: Any, made: Comparison) -> None:
        with self._lock:
            self._kept[name] = state, made
            self._kept.move_to_end(name)
            count = sum(len(comparison.pairs) for _, comparison in self._kept.values())
            while count > self.most and len(self._kept) > 1:
                _, (_, oldest) = self._kept.popitem(last=False)
                count -= len(oldest.pairs)


def _state(session: Session, jobs: Sequence[str], side: Side) -> tuple[Any, ...]:
    """What is another as soon as any video of the side is added, changed or removed, or one of the jobs is edited."""
    query = select(func.count(), func.sum(Video.revision)).where(Video.job_id.in_(jobs), Video.update == side.update)
    count, revisions = session.execute(query).one()
    return count, int(revisions or 0), session.scalar(select(func.max(Job.changed)).where(Job.id.in_(jobs)))


def compare(
    session: Session, before: Side, after: Side, before_jobs: Sequence[str], after_jobs: Sequence[str]
) -> Comparison:
    """Join the videos of two sides, each of a run and its previews."""
    configs = _config(session, before.job_id), _config(session, after.job_id)
    ours, theirs = map(settings_of, configs)
    old, new = _clips(session, before, before_jobs), _clips(session, after, after_jobs)
    settings: dict[str, Settings] = {before.job_id: ours, after.job_id: theirs}
    made_by = {clip.job_id for side in (old, new) for clip in side.values()}
    previews = _previews(session, made_by - settings.keys())
    settings |= {id_: of_preview(settings[run], result) for id_, run, _, result in previews}
    private = {id_ for id_, _, shared, _ in previews if not shared}
    common = (*differing(ours, theirs), *measured_otherwise(*configs))
    beyond = _beyond(settings, {difference.code for difference in common})
    pairs = [_joined(clip, new[names], beyond, private) for names, clip in old.items() if names in new]
    pairs.sort(key=lambda pair: (pair.before.prompt.casefold(), pair.before.prompt, pair.before.seed))
    facts = SideFacts(before, ours, len(old)), SideFacts(after, theirs, len(new))
    return Comparison(facts[0], facts[1], common, pairs, frozenset(optimised(configs)), settings)


Beyond = Callable[[str, str], tuple[Difference, ...]]


def _joined(before: Clip, after: Clip, beyond: Beyond, private: set[str]) -> Joined:
    differences = (*beyond(before.job_id, after.job_id), *_noise(before, after))
    hidden = not private.isdisjoint((before.job_id, after.job_id))
    return Joined(key_of(before.prompt, before.seed), before, after, differences, hidden)


def _config(session: Session, job_id: str) -> RunConfig:
    return RunConfig(**session.execute(select(Job.spec["config"]).where(Job.id == job_id)).scalar_one())


def _clips(session: Session, side: Side, jobs: Sequence[str]) -> dict[tuple[str, int], Clip]:
    """The side's videos by prompt and seed; of several the one rendered last."""
    columns = (Video.id, Video.job_id, Video.prompt, Video.prompt_id, Video.seed, Video.noise, Video.scores)
    query = select(*columns, Video.created).where(Video.job_id.in_(jobs), side.videos(), COMPARABLE)
    rows = session.execute(query.order_by(Video.created, Video.id))
    return {(clip.prompt, clip.seed): clip for clip in (Clip(*row) for row in rows)}


def _previews(session: Session, job_ids: Iterable[str]) -> list[tuple[str, str, bool, Mapping[str, Any]]]:
    """Of previews their run, whether they are shared, and their result."""
    query = select(Job.id, Job.parent_id, Job.shared, Job.result).where(Job.id.in_(job_ids))
    return [(id_, str(parent), bool(shared), result or {}) for id_, parent, shared, result in session.execute(query)]


def _beyond(settings: Mapping[str, Settings], told: set[str]) -> Beyond:
    """Differences between two videos' jobs that are not told already; each pair of jobs is looked at once."""
    known: dict[tuple[str, str], tuple[Difference, ...]] = {}

    def between(before: str, after: str) -> tuple[Difference, ...]:
        if (before, after) not in known:
            found = differing(settings[before], settings[after])
            known[before, after] = tuple(difference for difference in found if difference.code not in told)
        return known[before, after]

    return between


def _noise(before: Clip, after: Clip) -> tuple[Difference, ...]:
    """Whether two videos may have started from other noise. Where it was not written down, one job gave one noise to
    a prompt and seed on both its sides; of two jobs nobody knows.
    """
    known = before.noise is not None and after.noise is not None
    same = before.noise == after.noise if known else before.job_id == after.job_id
    if same:
        return ()
    return (Difference("noise", *(None if clip.noise is None else str(clip.noise) for clip in (before, after))),)
