"""Limits of what a judge may cost: questions per minute and money."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping

from flash_grpo.errors import InputError


class Pace:
    """At most `per_minute` starts a minute, evenly spaced; 0 is without limit. Safe for threads."""

    def __init__(self, per_minute: float) -> None:
        self._gap = 60 / per_minute if per_minute > 0 else 0.0
        self._next = 0.0
        self._lock = threading.Lock()

    def wait(self, stop: threading.Event) -> None:
        """Wait for one's turn, or until `stop` is set."""
        with self._lock:
            turn = max(self._next, time.monotonic())
            self._next = turn + self._gap
        stop.wait(max(0.0, turn - time.monotonic()))


class Budget:
    """Money spent on tokens, never above `limit` (0: without limit). Safe for threads.

    Prices are per million tokens, in whatever currency the limit is meant in. Before each question its largest
    conceivable price is set aside; afterwards what the endpoint says it used takes its place. Where it says nothing
    usable, what was set aside counts as spent.
    """

    def __init__(self, limit: float, price_in: float, price_out: float) -> None:
        self.limit, self._price_in, self._price_out = limit, price_in / 1e6, price_out / 1e6
        self.spent = 0.0
        self._set_aside = 0.0
        self._lock = threading.Lock()

    def set_aside(self, tokens_in: int, tokens_out: int) -> float:
        """The most one question can cost. Raises InputError if that would exceed the limit."""
        price = tokens_in * self._price_in + tokens_out * self._price_out
        with self._lock:
            if self.limit and self.spent + self._set_aside + price > self.limit:
                raise InputError(
                    f"reward 'vlm_judge' has spent {self.spent:.4g} of its budget of {self.limit:g} and the next "
                    "question may exceed it; raise its option `budget` or judge fewer videos"
                )
            self._set_aside += price
        return price

    def settle(self, price: float, usage: object, charged: bool) -> None:
        """Put what was used in the place of what was set aside; nothing if the question was not `charged`."""
        used = _used(usage)
        with self._lock:
            self._set_aside -= price
            if charged:
                self.spent += price if used is None else used[0] * self._price_in + used[1] * self._price_out


def _used(usage: object) -> tuple[int, int] | None:
    """Tokens in and out by the endpoint's word, if it is usable."""
    if not isinstance(usage, Mapping):
        return None
    taken, given = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if type(taken) is not int or type(given) is not int or not (0 <= taken < 10**9 and 0 <= given < 10**9):
        return None
    return taken, given
