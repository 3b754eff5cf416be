"""What the player is told of two videos: their files, sameness in words, and rewards where they may be compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .problem import plain


def reward_rows(
    before: Mapping[str, float] | None, after: Mapping[str, float] | None, optimised: Sequence[str]
) -> list[dict[str, Any]]:
    """Rewards that both sides have, optimised ones first."""
    shared = [name for name in before or {} if name in (after or {})]
    rows = []
    for name in sorted(shared, key=lambda name: (name not in optimised, name)):
        first, second = float((before or {})[name]), float((after or {})[name])
        if math.isfinite(first) and math.isfinite(second):
            rows.append({"name": plain(name, 60), "before": first, "after": second, "optimised": name in optimised})
    return rows


def sameness(settings: Mapping[str, Any] | None) -> str:
    """What both videos have in common, in words; empty if nobody knows."""
    if not settings:
        return ""
    return (
        f"same prompt, seed {settings['seed']}, {settings['steps']} steps, cfg {settings['cfg']:g}, "
        f"{settings['sampler']} / {settings['scheduler']}"
    )


def caption(rows: Sequence[Mapping[str, Any]], same: str, notices: Sequence[str]) -> str:
    """The comparison as lines of plain text."""
    lines = [same or "what the two videos were made with is not known", *notices]
    for row in rows:
        role = "optimised" if row["optimised"] else "watched"
        change = row["after"] - row["before"]
        lines.append(f"{row['name']} ({role}): {row['before']:.3f} → {row['after']:.3f} ({change:+.3f})")
    return "\n".join(lines)
