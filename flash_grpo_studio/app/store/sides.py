"""Sides: a model's state whose videos are compared, the base model or a checkpoint of a run at an adapter strength."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from flash_grpo.errors import InputError
from flash_grpo_studio.app.store.tables import Checkpoint, Job, Video

_TEXT = re.compile(r"([0-9a-f]{1,32})@([0-9]{1,10})(?:\*([0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?))?", re.ASCII)
STRONGEST = 4.0


@dataclass(frozen=True, order=True)
class Side:
    """Update 0 is the base model of the run; strength scales the adapter, 1 is as it was trained."""

    job_id: str
    update: int
    strength: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Side:
        """From `JOB@UPDATE` or `JOB@UPDATE*STRENGTH`; InputError says what is wrong with it."""
        found = _TEXT.fullmatch(text)
        if found is None:
            raise InputError(f"expected a side such as 0123456789abcdef@40 or 0123456789abcdef@40*0.5, got {text!r}")
        job_id, update, strength = found[1], int(found[2]), float(found[3] or 1)
        if update >= 2**31:
            raise InputError(f"expected an update below {2**31}, got {update}")
        if strength > STRONGEST:
            raise InputError(f"expected a strength from 0 to {STRONGEST:g}, got {found[3]}")
        if update == 0 and found[3] is not None:
            raise InputError(f"update 0 is the base model, which has no strength; write {job_id}@0")
        return cls(job_id, update, strength)

    def __str__(self) -> str:
        scale = "" if self.strength == 1 else f"*{self.strength!r}".removesuffix(".0")
        return f"{self.job_id}@{self.update}{scale}"

    @property
    def label(self) -> str:
        """In words, without the run's name."""
        if self.update == 0:
            return "base model"
        return f"update {self.update}" + ("" if self.strength == 1 else f" at strength {self.strength:g}")

    def videos(self) -> ColumnElement[bool]:
        """Its rows among the videos of the run and of its previews."""
        made = Video.update == self.update
        return made if self.update == 0 else made & (func.coalesce(Video.strength, 1.0) == self.strength)


COMPARABLE = Video.prompt.is_not(None) & Video.seed.is_not(None)
"""Videos that can have a counterpart."""


def jobs_of(session: Session, job_id: str, seen: ColumnElement[bool]) -> list[str]:
    """The run and its previews that may be seen (`seen`): the jobs whose videos show its sides."""
    previews = select(Job.id).where(Job.parent_id == job_id, Job.kind == "preview", seen)
    return [job_id, *session.scalars(previews.order_by(Job.id))]


@dataclass(frozen=True)
class RunSides:
    """The sides of one run: how many videos each has, and which updates have a checkpoint on disk."""

    job_id: str
    job_name: str
    videos: Mapping[Side, int]
    checkpoints: frozenset[int]
    best: int | None

    @property
    def latest(self) -> int | None:
        """The newest update that has a checkpoint."""
        return max(self.checkpoints, default=None)

    def shown(self) -> list[Side]:
        """The base model, then every update and strength that has videos or a checkpoint."""
        base = Side(self.job_id, 0)
        trained = {side for side in self.videos if side != base} | {Side(self.job_id, u) for u in self.checkpoints if u}
        return [base, *sorted(trained, key=lambda side: (side.update, side.strength != 1, side.strength))]

    def aligned(self) -> Side | None:
        """The side to set against the base model: the best one, else the newest, that has videos."""
        trained = [side for side in self.videos if side.update and side.strength == 1]
        best = [side for side in trained if side.update == self.best]
        return next(iter(best), max(trained, default=None))


def sides_of(session: Session, names: Mapping[str, str], seen: ColumnElement[bool]) -> list[RunSides]:
    """The sides of runs, given as id -> name, with those of their previews that may be seen; in three queries."""
    previews = select(Job.id, Job.parent_id).where(Job.parent_id.in_(names), Job.kind == "preview", seen)
    run_of: dict[str, Any] = {job_id: job_id for job_id in names}
    run_of |= dict(session.execute(previews).all())
    strength = func.coalesce(Video.strength, 1.0)
    counted = select(Video.job_id, Video.update, strength, func.count()).where(
        Video.job_id.in_(run_of), Video.update.is_not(None), COMPARABLE
    )
    videos: dict[str, dict[Side, int]] = {job_id: {} for job_id in names}
    for job_id, update, scale, count in session.execute(counted.group_by(Video.job_id, Video.update, strength)):
        run = run_of[str(job_id)]
        side = Side(run, int(update or 0), float(scale) if update else 1.0)
        videos[run][side] = videos[run].get(side, 0) + count
    return with_checkpoints(session, names, videos)


def with_checkpoints(
    session: Session, names: Mapping[str, str], videos: Mapping[str, Mapping[Side, int]]
) -> list[RunSides]:
    """Runs whose videos are counted already, by the run's id."""
    saved: dict[str, set[int]] = {job_id: set() for job_id in names}
    best: dict[str, int] = {}
    wanted = select(Checkpoint.job_id, Checkpoint.update, Checkpoint.best).where(Checkpoint.job_id.in_(names))
    for job_id, update, chosen in session.execute(wanted):
        saved[job_id].add(update)
        if chosen:
            best[job_id] = update
    return [RunSides(id_, name, videos[id_], frozenset(saved[id_]), best.get(id_)) for id_, name in names.items()]


def runs_with_videos(session: Session, seen: ColumnElement[bool], limit: int) -> dict[str, str]:
    """The alignments that may be seen and have videos, newest first, as id -> name."""
    theirs = select(Video.id).where(Video.job_id == Job.id, COMPARABLE)
    query = select(Job.id, Job.name).where(Job.kind == "alignment", seen, theirs.exists())
    return dict(session.execute(query.order_by(Job.created.desc(), Job.id).limit(limit)).all())
