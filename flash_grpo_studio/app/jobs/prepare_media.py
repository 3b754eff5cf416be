"""Jobs that show and send what is there: compositions and contact sheets of videos, exports on their way to a hub."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from flash_grpo.errors import InputError
from flash_grpo_studio.app import hub_tokens
from flash_grpo_studio.app.jobs.access import Actor, fetch, visible
from flash_grpo_studio.app.jobs.change import IllegalTransition
from flash_grpo_studio.app.jobs.prepared import Prepared
from flash_grpo_studio.app.jobs.spec import CompositionAsk, ContactSheetAsk, PushAsk
from flash_grpo_studio.app.store.pairs import Joined, compare, score
from flash_grpo_studio.app.store.sides import Side, jobs_of
from flash_grpo_studio.app.store.tables import Job, Video
from flash_grpo_studio.app.workspace import Workspace

SHOWN_REWARDS = 4


def composition(session: Session, actor: Actor, ask: CompositionAsk, asked: Any) -> Prepared:
    """Two videos that the actor may look at."""
    left, right = (fetch(session, actor, Video, id_) for id_ in (ask.left, ask.right))
    caption = ask.caption if ask.caption is not None else left.prompt or ""
    task = {
        "pairs": [{"left": left.path, "right": right.path, "caption": caption}],
        **{key: asked[key] for key in ("labels", "layout", "format", "fps", "width")},
    }
    return Prepared(f"compose {caption or 'two videos'}"[:200], {"ask": asked, "task": task}, devices=0)


def contact_sheet(session: Session, actor: Actor, ask: ContactSheetAsk, asked: Any) -> Prepared:
    """Pairs of two sides, in the order they are named."""
    sides = Side.parse(ask.before), Side.parse(ask.after)
    for side in sides:
        if (run := fetch(session, actor, Job, side.job_id)).kind != "alignment":
            raise InputError(f"expected a side of an alignment, got one of a job of kind {run.kind}")
    seen = visible(actor, Job)
    found = compare(session, *sides, *(jobs_of(session, side.job_id, seen) for side in sides))
    if unknown := [key for key in ask.keys if key not in found.place]:
        raise InputError(f"the two sides have no pair {unknown[0]!r} (any more); load the comparison again")
    pairs = [found.pairs[found.place[key]] for key in dict.fromkeys(ask.keys)]
    paths = _paths(session, pairs)
    rewards = found.rewards[:SHOWN_REWARDS]
    lines = [
        {
            "left": paths[pair.before.id],
            "right": paths[pair.after.id],
            "caption": pair.before.prompt,
            "scores": _scores(pair, rewards),
        }
        for pair in pairs
    ]
    task = {"pairs": lines, "labels": ask.labels or [side.label for side in sides]}
    plural = "pair" if len(lines) == 1 else "pairs"
    return Prepared(f"contact sheet of {len(lines)} {plural}", {"ask": asked, "task": task}, devices=0)


def _paths(session: Session, pairs: Sequence[Joined]) -> dict[str, str]:
    ids = {clip.id for pair in pairs for clip in (pair.before, pair.after)}
    return dict(session.execute(select(Video.id, Video.path).where(Video.id.in_(ids))).all())


def _scores(pair: Joined, rewards: Sequence[str]) -> dict[str, list[float]]:
    """Of those rewards that both videos have."""
    both = {reward: [score(clip.scores, reward) for clip in (pair.before, pair.after)] for reward in rewards}
    return {reward: values for reward, values in both.items() if all(value == value for value in values)}


def push(session: Session, workspace: Workspace, actor: Actor, ask: PushAsk, asked: Any) -> Prepared:
    """An export that is done, and a user who has a token."""
    export = fetch(session, actor, Job, ask.job_id)
    if export.kind != "export":
        raise InputError(f"expected the id of an export, got one of kind {export.kind}")
    if export.state != "succeeded":
        raise IllegalTransition(export.state, "be sent", "wait until it has succeeded")
    if not hub_tokens.has(workspace, actor.user_id):
        raise InputError("you have no hub token yet; set one in Settings, or by PUT /api/v1/me/hub-token")
    folder = workspace.relative(workspace.job(export.id) / "export")
    task = {"export": folder, "repo": ask.repo, "private": ask.private, "user": actor.user_id}
    return Prepared(f"send to {ask.repo}", {"ask": asked, "task": task}, None, export.id, devices=0)
