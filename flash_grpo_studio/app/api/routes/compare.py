"""Comparing: the sides there are, and the videos of two of them, pair by pair."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from flash_grpo.errors import InputError, unknown_name
from flash_grpo_studio.app.api.base import Limit, subject
from flash_grpo_studio.app.api.errors import problems
from flash_grpo_studio.app.api.routes.media import VideoView, video_view
from flash_grpo_studio.app.api.who import Parts, Reader
from flash_grpo_studio.app.jobs.access import Actor, visible
from flash_grpo_studio.app.jobs.change import NotFound
from flash_grpo_studio.app.store.pairs import SORTS, Comparison, Joined, SideFacts, score
from flash_grpo_studio.app.store.sameness import Code, Difference
from flash_grpo_studio.app.store.sides import RunSides, Side, runs_with_videos, sides_of, with_checkpoints
from flash_grpo_studio.app.store.tables import Job, Video
from flash_grpo_studio.app.workspace import Workspace

router = subject("comparing")
Before = Annotated[
    str, Query(max_length=100, description="A side, as `GET /sides` names it.", examples=["0123456789abcdef@0"])
]
After = Annotated[str, Query(max_length=100, description="The other side.", examples=["0123456789abcdef@40"])]
Sorting = Annotated[
    str,
    Query(
        max_length=20,
        description="`-gain`: largest gain first; `gain`: largest loss first; `prompt`: by its text; `newest`.",
        examples=list(SORTS),
    ),
]

Search = Annotated[str, Query(max_length=200, description="Part of the prompt, in any case.")]


class SideView(BaseModel):
    """The base model of a run (update 0) or a checkpoint at an adapter strength."""

    side: str = Field(description="As `before` and `after` take it: `JOB@UPDATE` or `JOB@UPDATE*STRENGTH`.")
    job_id: str
    job_name: str
    update: int
    strength: float
    best: bool = Field(description="Whether it is the run's best checkpoint.")
    latest: bool = Field(description="Whether it is the run's newest checkpoint.")
    checkpoint: bool = Field(description="Whether new videos can be rendered: its checkpoint is on disk.")
    videos: int = Field(description="Videos that can have a counterpart.")
    label: str = Field(examples=["update 40 at strength 0.5"])


class SideList(BaseModel):
    """Sides to compare."""

    sides: list[SideView]


class DifferenceView(BaseModel):
    """Where two sides differ beside their weights; null is not known, or left to the model."""

    code: Code
    before: Any
    after: Any


class ScorePair(BaseModel):
    """A reward of both videos; the difference is null wherever it would mislead."""

    before: float | None
    after: float | None
    difference: float | None


class PairView(BaseModel):
    """Two videos of one prompt and seed."""

    key: str = Field(description="Names the pair in links; the same for later renderings of its prompt and seed.")
    prompt: str
    prompt_id: str | None
    seed: int
    fps: float | None
    frames: int | None
    before: VideoView | None
    after: VideoView | None
    missing: list[Literal["before", "after"]] = Field(description="Sides whose file is gone or cut off.")
    scores: dict[str, ScorePair]
    gain: float | None = Field(description="After minus before of the reward that the list is about.")
    differences: list[DifferenceView] = Field(description="Beyond those of the comparison.")


class PlacedPair(PairView):
    """A pair, and where it stands among the others."""

    place: int | None = Field(
        description="From 0, in the list that `GET /comparison` makes of the same wishes; null where it is not in it."
    )


class GainView(BaseModel):
    """A reward over all pairs that may be compared; gain, interval and win rate are null where none may."""

    name: str
    optimised: bool = Field(description="Whether a run was trained on it; else it was only held against the videos.")
    before: float | None
    after: float | None
    gain: float | None
    ci95: tuple[float, float] | None = Field(description="95 % interval of the gain (Student's t).")
    win_rate: float | None = Field(description="Share of pairs that gained; a tie counts half.")
    pairs: int


class ComparisonView(BaseModel):
    """Two sides: what each reward says, and a page of their pairs."""

    before: SideView
    after: SideView
    reward: str | None = Field(description="The reward that `gain` and the order are about.")
    rewards: list[GainView]
    total: int = Field(description="Pairs on all pages together, of those whose prompt holds `search`.")
    same: bool = Field(description="Whether the two runs render alike: `differences` is empty.")
    differences: list[DifferenceView]
    pairs: list[PairView]


@router.get("/sides", response_model=SideList, responses=problems(404), summary="Sides to compare")
def list_sides(
    studio: Parts,
    actor: Reader,
    job_id: Annotated[str | None, Query(max_length=200, description="All sides of this alignment.")] = None,
    limit: Limit = 200,
) -> SideList:
    """Of one alignment: the base model, and each update and strength that has videos or a checkpoint.

    Without `job_id`: of the newest alignments that have videos, the base model and the best checkpoint.
    """
    with studio.store.reading() as session:
        seen = visible(actor, Job)
        if job_id is not None:
            run = sides_of(session, {job_id: run_name(session, actor, job_id)}, seen)[0]
            return SideList(sides=[side_view(run, side) for side in run.shown()])
        runs = sides_of(session, runs_with_videos(session, seen, limit), seen)
    pairs = [(run, side) for run in runs for side in (Side(run.job_id, 0), run.aligned()) if side is not None]
    return SideList(sides=[side_view(run, side) for run, side in pairs])


def run_name(session: Session, actor: Actor, job_id: str) -> str:
    """The name of an alignment that the actor may see; NotFound, or InputError for another kind."""
    query = select(Job.name, Job.kind).where(Job.id == job_id, visible(actor, Job))
    row = session.execute(query).one_or_none()
    if row is None:
        raise NotFound(f"no job {job_id!r}")
    if row.kind != "alignment":
        raise InputError(f"expected a side of an alignment, got one of a job of kind {row.kind}")
    return str(row.name)


def side_view(run: RunSides, side: Side) -> SideView:
    """A side as clients see it."""
    aligned = side.update != 0
    return SideView(
        side=str(side),
        job_id=run.job_id,
        job_name=run.job_name,
        update=side.update,
        strength=side.strength,
        best=aligned and side.update == run.best,
        latest=aligned and side.update == run.latest,
        checkpoint=side.update in run.checkpoints if aligned else bool(run.checkpoints),
        videos=run.videos.get(side, 0),
        label=side.label,
    )


def two_sides(session: Session, actor: Actor, before: str, after: str) -> tuple[Side, Side, dict[str, str]]:
    """Two sides that the actor may look at, and the names of their runs."""
    sides = Side.parse(before), Side.parse(after)
    names = {side.job_id: run_name(session, actor, side.job_id) for side in sides}
    return *sides, names


@router.get("/comparison", response_model=ComparisonView, responses=problems(404), summary="Compare two sides")
def get_comparison(
    studio: Parts,
    actor: Reader,
    before: Before,
    after: After,
    reward: Annotated[
        str | None, Query(max_length=300, description="Sort by it; the first one trained on where missing.")
    ] = None,
    sort: Sorting = "-gain",
    search: Search = "",
    limit: Limit = 50,
    offset: Annotated[int, Query(ge=0, le=2**31 - 1, description="Pairs to pass over.")] = 0,
) -> ComparisonView:
    """Videos of both sides joined by prompt and seed, with the gain of each reward and its interval.

    Videos of the runs and of their previews count; of several of one prompt and seed the newest. Where the sides
    differ in more than their weights, no reward difference is given.
    """
    if sort not in SORTS:
        raise unknown_name("sort", sort, SORTS)
    with studio.store.reading() as session:
        one, other, names = two_sides(session, actor, before, after)
        found = studio.pairs.read(session, one, other, visible(actor, Job))
        if reward is not None and reward not in found.rewards:
            raise unknown_name("reward", reward, found.rewards)
        places = found.picked(sort, reward, search)
        chosen = found.chosen_reward(reward)
        page = [found.pairs[place] for place in places[offset : offset + limit]]
        shown = pair_views(session, studio.workspace, found, page, chosen)
        views = _side_views(session, names, (found.before, found.after))
    return ComparisonView(
        before=views[0],
        after=views[1],
        reward=chosen,
        rewards=[GainView(**vars(gain)) for gain in found.gains],
        total=len(places),
        same=not found.differences,
        differences=difference_views(found.differences),
        pairs=shown,
    )


def _side_views(session: Session, names: dict[str, str], facts: Sequence[SideFacts]) -> list[SideView]:
    counted = {id_: {one.side: one.videos for one in facts if one.side.job_id == id_} for id_ in names}
    runs = {run.job_id: run for run in with_checkpoints(session, names, counted)}
    return [side_view(runs[one.side.job_id], one.side) for one in facts]


@router.get("/comparison/pair", response_model=PlacedPair, responses=problems(404), summary="One pair")
def get_pair(
    studio: Parts,
    actor: Reader,
    before: Before,
    after: After,
    key: Annotated[str, Query(max_length=100, description="`key` of the pair.")],
    reward: Annotated[str | None, Query(max_length=300, description="Of which `gain` is told.")] = None,
    sort: Sorting = "-gain",
    search: Search = "",
) -> PlacedPair:
    """The pair of a link, and its place in the list."""
    if sort not in SORTS:
        raise unknown_name("sort", sort, SORTS)
    with studio.store.reading() as session:
        one, other, _ = two_sides(session, actor, before, after)
        found = studio.pairs.read(session, one, other, visible(actor, Job))
        place = found.place.get(key)
        if place is None:
            raise NotFound(f"no pair {key!r} of these two sides")
        if reward is not None and reward not in found.rewards:
            raise unknown_name("reward", reward, found.rewards)
        shown = pair_views(session, studio.workspace, found, [found.pairs[place]], found.chosen_reward(reward))[0]
    return PlacedPair(**dict(shown), place=found.stands(key, sort, reward, search))


def pair_views(
    session: Session, workspace: Workspace, found: Comparison, pairs: Sequence[Joined], reward: str | None
) -> list[PairView]:
    """Pairs as clients see them, with the rows of their videos as they are now."""
    ids = [clip.id for pair in pairs for clip in (pair.before, pair.after)]
    rows = {row.id: row for row in session.scalars(select(Video).where(Video.id.in_(ids)))}
    return [_pair_view(workspace, found, pair, rows, reward) for pair in pairs]


def _pair_view(
    workspace: Workspace, found: Comparison, pair: Joined, rows: dict[str, Video], reward: str | None
) -> PairView:
    comparable = not found.differences and not pair.differences
    videos = {"before": rows.get(pair.before.id), "after": rows.get(pair.after.id)}
    scores = scores_of(videos["before"], videos["after"], comparable)
    settings = found.settings[pair.before.job_id]
    return PairView(
        key=pair.key,
        prompt=pair.before.prompt,
        prompt_id=pair.before.prompt_id,
        seed=pair.before.seed,
        fps=settings["fps"],
        frames=settings["frames"],
        **{name: None if row is None else video_view(row) for name, row in videos.items()},
        missing=[name for name, row in videos.items() if row is None or not whole(workspace, row)],
        scores=scores,
        gain=scores[reward].difference if reward in scores else None,
        differences=difference_views(pair.differences),
    )


def scores_of(before: Video | None, after: Video | None, comparable: bool) -> dict[str, ScorePair]:
    """Rewards of two videos side by side."""
    old, new = (row.scores if row is not None else {} for row in (before, after))
    found = {}
    for name in sorted({*old, *new}):
        values = [score(side, name) for side in (old, new)]
        known = [None if math.isnan(value) else value for value in values]
        difference = values[1] - values[0] if comparable and None not in known else None
        found[name] = ScorePair(before=known[0], after=known[1], difference=difference)
    return found


def whole(workspace: Workspace, row: Video) -> bool:
    """Whether the file is there with all its bytes."""
    try:
        return workspace.inside(row.path).stat().st_size >= max(row.bytes, 1)
    except (OSError, InputError):
        return False


def difference_views(differences: Iterable[Difference]) -> list[DifferenceView]:
    """Differences as clients see them."""
    return [DifferenceView(**vars(difference)) for difference in differences]
