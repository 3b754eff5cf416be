"""The states of a job and the legal ways between them."""

from __future__ import annotations

from typing import Literal

State = Literal[
    "queued", "starting", "running", "pausing", "paused", "cancelling", "cancelled", "succeeded", "failed", "lost"
]
STATES: tuple[State, ...] = (
    "queued",
    "starting",
    "running",
    "pausing",
    "paused",
    "cancelling",
    "cancelled",
    "succeeded",
    "failed",
    "lost",
)

TRANSITIONS: dict[State, tuple[State, ...]] = {
    "queued": ("starting", "paused", "cancelled", "failed"),
    # A run that ended while nobody looked has succeeded without being started again.
    "starting": ("running", "pausing", "paused", "cancelling", "queued", "succeeded", "failed", "lost"),
    "running": ("pausing", "cancelling", "paused", "queued", "succeeded", "failed", "lost"),
    # A run that ends by itself before it reads the request has still ended.
    "pausing": ("paused", "cancelling", "succeeded", "failed", "lost"),
    "cancelling": ("cancelled", "succeeded", "failed"),
    "lost": ("queued", "running", "pausing", "cancelled", "failed"),
    "paused": ("queued", "cancelled"),
    "cancelled": ("queued",),
    "failed": ("queued",),
    "succeeded": (),
}

ACTIVE: tuple[State, ...] = ("starting", "running", "pausing", "cancelling")
"""A worker is in charge, and devices are leased."""
ENDED: tuple[State, ...] = ("succeeded", "failed", "cancelled")
"""Nothing more happens unless a person asks for it."""


def sources(target: State) -> tuple[State, ...]:
    """The states from which `target` may be reached."""
    return tuple(state for state, targets in TRANSITIONS.items() if target in targets)
