"""Blind ballots: two videos of one prompt and seed, shown so that nothing tells which side is which.

Voting needs a login that can see both runs, and nothing more: a vote changes nothing that belongs to others, so viewers
vote too.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import Query, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from flash_grpo.errors import InputError
from flash_grpo_studio.app.api.base import BallotId, Strict, subject
from flash_grpo_studio.app.api.boxes import Neutral, NotNeutral
from flash_grpo_studio.app.api.errors import Refused, problems
from flash_grpo_studio.app.api.neutral import MEDIA, PADDING, address, check_signature, send
from flash_grpo_studio.app.api.routes.compare import ScorePair, scores_of, two_sides
from flash_grpo_studio.app.api.routes.media import VideoView, video_view
from flash_grpo_studio.app.api.studio import Studio
from flash_grpo_studio.app.api.who import Parts, Reader
from flash_grpo_studio.app.jobs.access import ID, Actor, Forbidden, fetch, visible
from flash_grpo_studio.app.jobs.change import NotFound
from flash_grpo_studio.app.store import ballots
from flash_grpo_studio.app.store.ballots import Choice, Contest
from flash_grpo_studio.app.store.pairs import Comparison, Joined
from flash_grpo_studio.app.store.sides import Side
from flash_grpo_studio.app.store.tables import Ballot, Job, Video

router = subject("voting")
TRIES = 50
"""Pairs looked at to find one that can be shown; beyond them something is wrong with all."""
NO_PAIRS = "there is no pair of these two sides left to vote on"
SHAPE = {"width", "height", "frames", "fps"}
Until = Annotated[int, Query(ge=0, le=2**53, description="As in the address that the ballot came with.")]
Signed = Annotated[str, Query(alias="sig", max_length=200, description="As in the address that the ballot came with.")]


class BallotAsk(Strict):
    """The two sides to judge between."""

    before: str = Field(max_length=100, examples=["0123456789abcdef@0"])
    after: str = Field(max_length=100, examples=["0123456789abcdef@40"])


class BallotView(BaseModel):
    """A pair to judge, without a sign of which video is which side."""

    id: str
    prompt: str
    left: str = Field(description="Address of the left video, for this person and some hours.")
    right: str
    fps: float
    frames: int
    left_to_vote: int = Field(description="Pairs of these sides that this person has not voted on, this one included.")
    voted: int = Field(description="Pairs of these sides that this person has voted on.")
    not_comparable: int = Field(description="Pairs passed over just now: a file is missing, or shapes differ.")


class ChoiceAsk(Strict):
    """The judgement: one of the two, no difference, both bad, or none."""

    choice: Choice


class ChoiceView(BaseModel):
    """A ballot after a choice was given or taken back."""

    id: str
    choice: Choice | None
    may_undo: bool = Field(description="Whether the choice can be taken back: once, and before the sides are revealed.")


class Revealed(BaseModel):
    """Which side was where. A video that was removed since is null."""

    left: Literal["before", "after"]
    right: Literal["before", "after"]
    choice: Choice
    winner: Literal["before", "after"] | None
    key: str
    prompt: str
    seed: int
    before: VideoView | None
    after: VideoView | None
    scores: dict[str, ScorePair]


def _voter(actor: Actor) -> Actor:
    """A viewer may vote, but not a token that only reads."""
    if "write" not in actor.scopes and actor.role != "viewer":
        raise Forbidden("this token may only read; use one with the scope write")
    return actor


@router.post(
    "/ballots", status_code=201, response_model=BallotView, responses=problems(404, 409, 507), summary="Draw a ballot"
)
def draw_ballot(studio: Parts, actor: Reader, asked: BallotAsk) -> BallotView:
    """A pair of two sides that this person has not voted on, by chance; one that still waits for an answer is shown
    again. 404 with the code `no_pairs_left` when all are voted on, 409 with `pair_not_comparable` when what is left
    cannot be shown.
    """
    _voter(actor)
    with studio.store.reading() as session:
        before, after, _ = two_sides(session, actor, asked.before, asked.after)
        if before == after:
            raise InputError("expected two different sides to vote between, got one twice")
        found = studio.pairs.read(session, before, after, visible(actor, Job))
        contest = Contest.of(before, after)
        done = ballots.voted(session, actor.user_id, contest)
        waiting = ballots.open_ballots(session, actor.user_id, contest)
    done &= found.place.keys()
    drawn = _shown_again(studio, actor, contest, waiting) or _drawn(studio, actor, contest, found, done)
    if drawn is None:  # another request of this person drew the only pair at this moment
        with studio.store.reading() as session:
            waiting = ballots.open_ballots(session, actor.user_id, contest)
        drawn = _shown_again(studio, actor, contest, waiting)
    if drawn is None:
        raise Refused(404, "no_pairs_left", NO_PAIRS)
    ballot_id, prompt, shown, passed = drawn
    links = [address(studio.media_secret, ballot_id, half, actor.user_id) for half in ("left", "right")]
    return BallotView(
        id=ballot_id,
        prompt=prompt,
        left=links[0],
        right=links[1],
        fps=float(shown.fps),
        frames=shown.frames,
        left_to_vote=len(found.pairs) - len(done),
        voted=len(done),
        not_comparable=passed,
    )


Drawn = tuple[str, str, Neutral, int]
"""A ballot's id, its prompt, what its videos are, and how many pairs were passed over."""


def _shown_again(studio: Studio, actor: Actor, contest: Contest, waiting: Sequence[Ballot]) -> Drawn | None:
    """The oldest ballot without an answer; those whose videos went away are forgotten."""
    for ballot in waiting:
        try:
            shown, _ = studio.neutrals.both(studio.workspace, *_paths(studio, actor, ballot))
        except (NotNeutral, NotFound):
            with studio.store.writing() as session:
                ballots.drop_open(session, [ballot.id])
            continue
        if ballot.first_is_before == contest.swapped:
            with studio.store.writing() as session:
                ballots.show(session, ballot.id, contest)
        return ballot.id, ballot.prompt, shown, 0
    return None


def _drawn(studio: Studio, actor: Actor, contest: Contest, found: Comparison, done: set[str]) -> Drawn | None:
    """A new ballot on a pair that can be shown; None if others were drawn on all of them meanwhile."""
    left = [pair for pair in found.pairs if pair.key not in done]
    if not left:
        raise Refused(404, "no_pairs_left", NO_PAIRS)
    tried = secrets.SystemRandom().sample(left, min(TRIES, len(left)))
    passed, reason = 0, ""
    for pair in tried:
        try:
            shown = _showable(studio, found, pair)
        except NotNeutral as error:
            passed, reason = passed + 1, str(error)
            continue
        with studio.store.writing() as session:
            ballot_id = ballots.put_ballot(session, actor.user_id, contest, pair)
        if ballot_id is not None:
            return ballot_id, pair.before.prompt, shown, passed
    if passed < len(tried):
        return None
    said = f"none of {passed} pairs can be shown blindly; of the last one, {reason}"
    raise Refused(409, "pair_not_comparable", said, "render both sides anew with the same settings")


def _showable(studio: Studio, found: Comparison, pair: Joined) -> Neutral:
    unlike = sorted({d.code for d in (*found.differences, *pair.differences)} & SHAPE)
    if unlike:
        raise NotNeutral(f"the two videos differ in {', '.join(unlike)}")
    with studio.store.reading() as session:
        rows = [session.get(Video, clip.id) for clip in (pair.before, pair.after)]
    if rows[0] is None or rows[1] is None:
        raise NotNeutral("the video's file is not there")
    return studio.neutrals.both(studio.workspace, rows[0].path, rows[1].path)[0]


def _paths(studio: Studio, actor: Actor, ballot: Ballot) -> tuple[str, str]:
    """Where the left and the right video lie; NotFound if one is gone, or may no longer be seen."""
    ids = (ballot.first_video_id, ballot.second_video_id)
    if ids[0] is None or ids[1] is None:
        raise NotFound("the videos of this ballot are no longer there")
    with studio.store.reading() as session:
        first, second = (fetch(session, actor, Video, str(id_)).path for id_ in ids)
    return (first, second) if ballot.first_on_left else (second, first)


def _own(session: Session, actor: Actor, ballot_id: str) -> Ballot:
    """One's own ballot; anybody else's, an administrator's look included, is as good as none."""
    ballot = session.get(Ballot, ballot_id) if ID.fullmatch(ballot_id) else None
    if ballot is None or ballot.user_id != actor.user_id:
        raise NotFound(f"no ballot {ballot_id!r}")
    return ballot


@router.get("/ballots/{ballot_id}/left", response_class=Response, responses=MEDIA, summary="The left video")
def get_left_video(
    studio: Parts, actor: Reader, request: Request, ballot_id: BallotId, until: Until = 0, signed: Signed = ""
) -> Response:
    """The left video of a ballot, by the address that the ballot came with; `Range` is served."""
    return _half(studio, actor, request, ballot_id, "left", until, signed)


@router.get("/ballots/{ballot_id}/right", response_class=Response, responses=MEDIA, summary="The right video")
def get_right_video(
    studio: Parts, actor: Reader, request: Request, ballot_id: BallotId, until: Until = 0, signed: Signed = ""
) -> Response:
    """The right video of a ballot, by the address that the ballot came with; `Range` is served."""
    return _half(studio, actor, request, ballot_id, "right", until, signed)


def _half(
    studio: Studio,
    actor: Actor,
    request: Request,
    ballot_id: str,
    half: Literal["left", "right"],
    until: int,
    signed: str,
) -> Response:
    with studio.store.reading() as session:
        ballot = _own(session, actor, ballot_id)
    check_signature(studio.media_secret, ballot_id, half, actor.user_id, until, signed)
    paths = _paths(studio, actor, ballot)
    try:
        both = studio.neutrals.both(studio.workspace, *paths)
    except NotNeutral as error:
        raise NotFound(f"the videos of this ballot can no longer be shown: {error}") from error
    place = 0 if half == "left" else 1
    length = max(shown.size for shown in both) + PADDING
    return send(request, studio.workspace.inside(paths[place]), both[place], length)


@router.put(
    "/ballots/{ballot_id}/choice", response_model=ChoiceView, responses=problems(404, 409, 410, 507), summary="Vote"
)
def choose(studio: Parts, actor: Reader, ballot_id: BallotId, asked: ChoiceAsk) -> ChoiceView:
    """Judge a ballot, once; 410 if its videos were removed meanwhile."""
    _voter(actor)
    with studio.store.writing() as session:
        _own(session, actor, ballot_id)
        chosen = ballots.choose(session, ballot_id, asked.choice)
        session.expire_all()
        ballot = _own(session, actor, ballot_id)
        if not chosen and ballot.choice is not None:
            raise Refused(409, "voted_already", "this ballot has a choice already", "take it back first, or go on")
        if not chosen:
            raise Refused(410, "pair_gone", "the videos of this ballot are no longer there", "draw the next one")
        return _choice_view(ballot)


def _choice_view(ballot: Ballot) -> ChoiceView:
    may_undo = ballot.choice is not None and not ballot.undone and not ballot.revealed
    return ChoiceView(id=ballot.id, choice=ballot.choice, may_undo=may_undo)


@router.delete(
    "/ballots/{ballot_id}/choice", response_model=ChoiceView, responses=problems(404, 409, 507), summary="Undo a vote"
)
def undo_choice(studio: Parts, actor: Reader, ballot_id: BallotId) -> ChoiceView:
    """Take a choice back, once and before the sides are revealed; the ballot then waits for another choice."""
    _voter(actor)
    with studio.store.writing() as session:
        ballot = _own(session, actor, ballot_id)
        if not ballots.undo(session, ballot_id):
            reasons = {
                ballot.choice is None: "it has none",
                ballot.undone: "that was done once already",
                ballot.revealed: "its sides are known by now",
            }
            reason = reasons.get(True, "another request was faster")
            raise Refused(409, "not_undoable", f"the choice of this ballot cannot be taken back: {reason}")
        session.expire_all()
        return _choice_view(_own(session, actor, ballot_id))


@router.post(
    "/ballots/{ballot_id}/reveal", response_model=Revealed, responses=problems(404, 409, 507), summary="Reveal a ballot"
)
def reveal_ballot(studio: Parts, actor: Reader, ballot_id: BallotId) -> Revealed:
    """Which side was left and which right, with their scores; from then on the choice stays."""
    _voter(actor)
    with studio.store.writing() as session:
        ballot = _own(session, actor, ballot_id)
        if not ballots.reveal(session, ballot_id):
            raise Refused(409, "not_voted", "the sides of a ballot are told after the choice; choose first")
        return _revealed(studio, session, actor, ballot)


def _revealed(studio: Studio, session: Session, actor: Actor, ballot: Ballot) -> Revealed:
    sides = (ballot.first_side, ballot.second_side)
    ids = (ballot.first_video_id, ballot.second_video_id)
    if not ballot.first_is_before:
        sides, ids = sides[::-1], ids[::-1]
    before, after, _ = two_sides(session, actor, *sides)
    rows = [session.get(Video, id_) if id_ is not None else None for id_ in ids]
    where = ballots.on_the(ballot.first_on_left, ballot.first_is_before)
    return Revealed(
        left=where["left"],
        right=where["right"],
        choice=ballot.choice,
        winner=ballots.winner(ballot.choice, where),
        key=ballot.key,
        prompt=ballot.prompt,
        seed=ballot.seed,
        before=video_view(rows[0]) if rows[0] else None,
        after=video_view(rows[1]) if rows[1] else None,
        scores=scores_of(rows[0], rows[1], _comparable(studio, session, actor, (before, after), ballot, ids)),
    )


def _comparable(
    studio: Studio, session: Session, actor: Actor, sides: tuple[Side, Side], ballot: Ballot, ids: Sequence[str | None]
) -> bool:
    """Whether the ballot's videos differ in nothing but their sides, so that scores can be set against each other."""
    found = studio.pairs.read(session, *sides, visible(actor, Job))
    place = found.place.get(ballot.key)
    if place is None or found.differences:
        return False
    pair = found.pairs[place]
    return not pair.differences and [pair.before.id, pair.after.id] == list(ids)
