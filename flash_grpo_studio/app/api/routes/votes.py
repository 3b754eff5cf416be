"""What blind votes say: wins with intervals, whether a side of the screen was preferred, and all votes as a table."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime
from typing import Any

from fastapi import Response
from pydantic import BaseModel, Field

from flash_grpo_studio.app.api.base import subject
from flash_grpo_studio.app.api.errors import problems
from flash_grpo_studio.app.api.routes.compare import After, Before, two_sides
from flash_grpo_studio.app.api.who import Parts, Reader
from flash_grpo_studio.app.jobs.access import Actor
from flash_grpo_studio.app.store import ballots
from flash_grpo_studio.app.store.ballots import Contest
from flash_grpo_studio.app.store.tables import Ballot

router = subject("voting")
COLUMNS = ("time", "voter", "prompt", "seed", "before", "after", "left", "choice", "winner")


class Counts(BaseModel):
    """Votes counted. Shares and intervals are of decided votes, null where there is none."""

    after_wins: int
    before_wins: int
    ties: int
    bad: int
    skipped: int
    decided: int
    win_rate: float | None = Field(description="Share of decided votes for `after`.")
    wilson95: tuple[float, float] | None = Field(description="Its 95 % interval (Wilson).")
    tie_share: float | None = Field(description="Ties among all votes but the skipped ones.")
    left_rate: float | None = Field(description="Share of decided votes for the left video.")
    left_wilson95: tuple[float, float] | None
    left_biased: bool = Field(description="Whether left was chosen more or less often than chance explains.")
    preliminary: bool = Field(description="Fewer than 30 decided votes.")
    distinguishable: bool | None = Field(description="Whether the interval leaves out 50 %; null without votes.")


class Results(Counts):
    """All votes on two sides, and one's own."""

    voters: int
    personal: bool = Field(description="All votes are of one person.")
    mine: Counts


@router.get("/votes/results", response_model=Results, responses=problems(404), summary="What the votes say")
def get_results(studio: Parts, actor: Reader, before: Before, after: After) -> Results:
    """Wins, ties and intervals of all votes on two sides, whichever of them the voters called before."""
    with studio.store.reading() as session:
        one, other, _ = two_sides(session, actor, before, after)
        contest = Contest.of(one, other)
        found = ballots.tallies(session, contest)
    mine = ballots.result(found.get(actor.user_id, ballots.Tally()), contest.swapped)
    everything = ballots.result(ballots.total(found.values()), contest.swapped)
    return Results(**everything, voters=len(found), personal=len(found) == 1, mine=Counts(**mine))


@router.get(
    "/votes.csv",
    response_class=Response,
    responses={**problems(404), 200: {"description": "The votes.", "content": {"text/csv": {"schema": {}}}}},
    summary="The votes as a table",
)
def get_votes_csv(studio: Parts, actor: Reader, before: Before, after: After) -> Response:
    """Every vote on two sides, one a row. The prompts of others' own previews are left out."""
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(COLUMNS)
    with studio.store.reading() as session:
        one, other, _ = two_sides(session, actor, before, after)
        contest = Contest.of(one, other)
        for ballot, name in ballots.votes(session, contest):
            table.writerow([_harmless(value) for value in _row(actor, contest, ballot, name)])
    headers = {"Content-Disposition": 'attachment; filename="votes.csv"', "Cache-Control": "private, no-store"}
    return Response("\ufeff" + text.getvalue(), media_type="text/csv; charset=utf-8", headers=headers)


def _row(actor: Actor, contest: Contest, ballot: Ballot, name: str) -> list[Any]:
    """A vote; before and after are as called by who asks, not by who voted."""
    sides = (contest.second, contest.first) if contest.swapped else (contest.first, contest.second)
    where = ballots.on_the(ballot.first_on_left, not contest.swapped)
    hidden = ballot.private and not (actor.admin or ballot.user_id == actor.user_id)
    when = datetime.fromtimestamp(ballot.chosen or ballot.created, UTC).isoformat(timespec="seconds")
    facts = [when, name, "" if hidden else ballot.prompt, ballot.seed, *sides]
    return [*facts, where["left"], ballot.choice, ballots.winner(ballot.choice, where) or ""]


def _harmless(value: Any) -> Any:
    """A cell that no spreadsheet takes for a formula."""
    text = str(value)
    return f"'{text}" if text.lstrip()[:1] in ("=", "+", "-", "@") or text[:1] in ("\t", "\r", "\n") else value
