"""Blind votes: which pairs a person has not judged yet, what he chose, and what all choices together say."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from sqlalchemy import CursorResult, delete, func, select, update
from sqlalchemy.orm import Session

from flash_grpo_studio.app.store.intervals import wilson
from flash_grpo_studio.app.store.metrics import insert_of
from flash_grpo_studio.app.store.pairs import Joined
from flash_grpo_studio.app.store.sides import Side
from flash_grpo_studio.app.store.tables import Ballot, User, new_id

Choice = Literal["left", "right", "tie", "bad", "skip"]
PRELIMINARY = 30
"""Decided votes below which a result is called preliminary."""


@dataclass(frozen=True)
class Contest:
    """Two sides, whichever of them is called before; `swapped` says that the second one is."""

    first: str
    second: str
    swapped: bool

    @classmethod
    def of(cls, before: Side, after: Side) -> Contest:
        """The contest of two sides."""
        first, second = sorted((str(before), str(after)))
        return cls(first, second, first != str(before))

    def rows(self) -> tuple[Any, ...]:
        """The conditions for its ballots."""
        return Ballot.first_side == self.first, Ballot.second_side == self.second


def voted(session: Session, user_id: str, contest: Contest) -> set[str]:
    """Keys of the pairs on which a person has voted."""
    mine = select(Ballot.key).where(Ballot.user_id == user_id, *contest.rows(), Ballot.choice.is_not(None))
    return set(session.scalars(mine))


def open_ballots(session: Session, user_id: str, contest: Contest) -> list[Ballot]:
    """Ballots a person was shown and has not answered, oldest first."""
    waiting = select(Ballot).where(Ballot.user_id == user_id, *contest.rows(), Ballot.choice.is_(None))
    return list(session.scalars(waiting.order_by(Ballot.created, Ballot.id)))


def show(session: Session, ballot_id: str, contest: Contest) -> None:
    """Note which side the person who is shown an open ballot again calls before."""
    session.execute(update(Ballot).where(Ballot.id == ballot_id).values(first_is_before=not contest.swapped))


def put_ballot(session: Session, user_id: str, contest: Contest, pair: Joined) -> str | None:
    """A new ballot on a pair, its sides left and right by chance; None if the person has one on it already."""
    first, second = (pair.after, pair.before) if contest.swapped else (pair.before, pair.after)
    row = {
        "id": new_id(),
        "user_id": user_id,
        "first_side": contest.first,
        "second_side": contest.second,
        "key": pair.key,
        "prompt": pair.before.prompt,
        "seed": pair.before.seed,
        "first_video_id": first.id,
        "second_video_id": second.id,
        "private": pair.private,
        "first_is_before": not contest.swapped,
        "first_on_left": secrets.choice((True, False)),
    }
    unlike = ["user_id", "first_side", "second_side", "key"]
    statement = insert_of(session)(Ballot).on_conflict_do_nothing(index_elements=unlike).returning(Ballot.id)
    made: str | None = session.scalar(statement, row)
    return made


def drop_open(session: Session, ballot_ids: Iterable[str]) -> None:
    """Forget ballots that can no longer be answered, so that their pairs may be drawn again."""
    session.execute(delete(Ballot).where(Ballot.id.in_(list(ballot_ids)), Ballot.choice.is_(None)))


def choose(session: Session, ballot_id: str, choice: Choice) -> bool:
    """Make an open ballot a vote; False if it is one already, or its videos are gone."""
    there = Ballot.first_video_id.is_not(None) & Ballot.second_video_id.is_not(None)
    return _change(session, ballot_id, Ballot.choice.is_(None) & there, choice=choice, chosen=time.time())


def undo(session: Session, ballot_id: str) -> bool:
    """Take a choice back; False if there is none, one was taken back already, or the sides are known."""
    may = Ballot.choice.is_not(None) & Ballot.undone.is_(False) & Ballot.revealed.is_(False)
    return _change(session, ballot_id, may, choice=None, chosen=None, undone=True)


def reveal(session: Session, ballot_id: str) -> bool:
    """Note that the sides are known from now on; False before a choice."""
    return _change(session, ballot_id, Ballot.choice.is_not(None), revealed=True)


def _change(session: Session, ballot_id: str, condition: Any, **values: Any) -> bool:
    statement = update(Ballot).where(Ballot.id == ballot_id, condition).values(**values)
    statement = statement.execution_options(synchronize_session=False)
    return cast("CursorResult[Any]", session.execute(statement)).rowcount == 1


@dataclass(frozen=True)
class Tally:
    """Choices counted; `left` are those for the left video."""

    first: int = 0
    second: int = 0
    ties: int = 0
    bad: int = 0
    skipped: int = 0
    left: int = 0

    @property
    def decided(self) -> int:
        """Votes for one of the two."""
        return self.first + self.second

    @property
    def tie_share(self) -> float | None:
        """Ties among all votes that judged."""
        judged = self.decided + self.ties + self.bad
        return self.ties / judged if judged else None


def tallies(session: Session, contest: Contest) -> dict[str, Tally]:
    """The votes of a contest, by who gave them."""
    columns = (Ballot.user_id, Ballot.choice, Ballot.first_on_left)
    query = select(*columns, func.count()).where(*contest.rows(), Ballot.choice.is_not(None)).group_by(*columns)
    counts: dict[str, dict[str, int]] = {}
    for user_id, choice, first_on_left, count in session.execute(query):
        own = counts.setdefault(user_id, {})
        for name in _counted(str(choice), first_on_left):
            own[name] = own.get(name, 0) + count
    return {user_id: Tally(**own) for user_id, own in counts.items()}


def _counted(choice: str, first_on_left: bool) -> tuple[str, ...]:
    if choice in ("left", "right"):
        winner = "first" if (choice == "left") == first_on_left else "second"
        return (winner, "left") if choice == "left" else (winner,)
    return ({"tie": "ties", "bad": "bad", "skip": "skipped"}[choice],)


def total(parts: Iterable[Tally]) -> Tally:
    """All together."""
    parts = list(parts)
    return Tally(**{name: sum(getattr(part, name) for part in parts) for name in Tally.__dataclass_fields__})


def spans_half(interval: tuple[float, float] | None) -> bool | None:
    """Whether an interval of a share leaves open which is more; None without an interval."""
    return None if interval is None else interval[0] <= 0.5 <= interval[1]


def result(tally: Tally, swapped: bool) -> dict[str, Any]:
    """A tally as it is told, with its intervals; `swapped` as in the contest."""
    after = tally.first if swapped else tally.second
    interval, left = wilson(after, tally.decided), wilson(tally.left, tally.decided)
    spans = spans_half(interval)
    return {
        "after_wins": after,
        "before_wins": tally.decided - after,
        "ties": tally.ties,
        "bad": tally.bad,
        "skipped": tally.skipped,
        "decided": tally.decided,
        "win_rate": after / tally.decided if tally.decided else None,
        "wilson95": interval,
        "tie_share": tally.tie_share,
        "left_rate": tally.left / tally.decided if tally.decided else None,
        "left_wilson95": left,
        "left_biased": spans_half(left) is False,
        "preliminary": tally.decided < PRELIMINARY,
        "distinguishable": None if spans is None else not spans,
    }


def votes(session: Session, contest: Contest) -> list[tuple[Ballot, str]]:
    """All votes of a contest with the names of those who gave them, in the order they were given."""
    query = select(Ballot, User.name).join(User, User.id == Ballot.user_id)
    given = query.where(*contest.rows(), Ballot.choice.is_not(None))
    return [(ballot, name) for ballot, name in session.execute(given.order_by(Ballot.chosen, Ballot.id))]


def on_the(first_on_left: bool, first_is_before: bool) -> dict[str, Literal["before", "after"]]:
    """Which side was left and which right."""
    if first_on_left == first_is_before:
        return {"left": "before", "right": "after"}
    return {"left": "after", "right": "before"}


def winner(choice: str | None, where: Mapping[str, Literal["before", "after"]]) -> Literal["before", "after"] | None:
    """Which side was chosen; None for a choice that is for neither."""
    return where.get(choice or "")
