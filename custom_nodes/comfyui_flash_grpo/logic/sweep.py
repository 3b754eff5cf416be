"""Which checkpoints of a run a sweep takes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from .facts import Facts
from .problem import Problem, plain


def chosen(candidates: Iterable[tuple[str, Facts]], run: str, updates: str) -> list[tuple[str, Facts]]:
    """The named checkpoints of a run in the order of their updates; `updates` is all, or numbers with commas.

    Of several files of one update the first is taken.
    """
    known: dict[int, tuple[str, Facts]] = {}
    for name, facts in candidates:
        if facts.run == run and facts.update is not None:
            known.setdefault(facts.update, (name, facts))
    if not known:
        raise Problem(f"no checkpoint of run {plain(run, 80)!r} is in models/loras; press R and choose another run")
    wanted = sorted(known) if updates.strip().lower() in ("", "all") else _numbers(updates)
    missing = [update for update in wanted if update not in known]
    if missing:
        there = ", ".join(map(str, sorted(known)))
        raise Problem(f"run {plain(run, 80)!r} has no checkpoint of update {missing[0]}; there are {there}")
    return [known[update] for update in wanted]


def _numbers(text: str) -> list[int]:
    parts = [part for part in re.split(r"[\s,;]+", text) if part]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise Problem(f"expected `all` or updates such as 20, 40, got {plain(text, 60)!r}; correct it")
    return list(dict.fromkeys(int(part) for part in parts))
