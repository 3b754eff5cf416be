"""What an adapter's metadata says of where it comes from and what it was trained for."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .problem import plain

PREFIX = "flash_grpo."
READABLE_VERSION = 1


@dataclass(frozen=True)
class Facts:
    """The checked metadata of an adapter; empty where the file says nothing.

    `gains` maps a reward to its held-out means before and after; `weights` says how much each was optimised.
    `judged_at` are the settings those means were measured with.
    """

    file: str
    run: str = ""
    update: int | None = None
    base: str = ""
    licence: str = ""
    expert: str = ""
    version: int | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    reward_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    gains: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    sketch: Mapping[str, tuple[tuple[int, ...], tuple[float, ...]]] = field(default_factory=dict)
    judged_at: Mapping[str, Any] = field(default_factory=dict)

    @property
    def optimised(self) -> list[str]:
        """Rewards the run was trained for."""
        return [name for name, weight in self.weights.items() if weight]


def read_facts(file: str, metadata: Mapping[str, str]) -> Facts:
    """The facts of an adapter's file; whatever is malformed counts as not said."""
    said = {key.removeprefix(PREFIX): value for key, value in metadata.items() if key.startswith(PREFIX)}
    return Facts(
        file=plain(file),
        run=plain(said.get("run", "")),
        update=_integer(said.get("update")),
        base=plain(said.get("base_model", "")),
        licence=plain(said.get("base_licence", "")),
        expert=plain(said.get("expert", ""), 40),
        version=_integer(said.get("format_version")),
        weights=_numbers(_mapping(said.get("rewards"))),
        reward_options={
            plain(name): value
            for name, value in _mapping(said.get("reward_options")).items()
            if isinstance(value, dict)
        },
        gains=_gains(_mapping(said.get("gains"))),
        sketch=_sketch(_mapping(said.get("base_sketch"))),
        judged_at=_mapping(said.get("judged_at")),
    )


def describe(facts: Facts) -> list[str]:
    """Lines of plain text about an adapter."""
    of = f": run {facts.run}, update {facts.update}" if facts.run else ", which says nothing of its origin"
    lines = [f"{facts.file}{of}"]
    for name, (before, after) in facts.gains.items():
        role = "optimised" if facts.weights.get(name) else "watched"
        lines.append(f"{name} ({role}): {before:.3f} → {after:.3f} ({after - before:+.3f}, held-out prompts)")
    if facts.version is not None and facts.version > READABLE_VERSION:
        lines.append(f"written by a newer version (format {facts.version}); update this node pack")
    return lines


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None


def _mapping(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    found = {plain(name): _number(value) for name, value in values.items()}
    return {name: value for name, value in found.items() if value is not None}


def _gains(values: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    found = {}
    for name, entry in values.items():
        if isinstance(entry, dict):
            before, after = _number(entry.get("before")), _number(entry.get("after"))
            if before is not None and after is not None:
                found[plain(name)] = (before, after)
    return found


def _sketch(values: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], tuple[float, ...]]]:
    try:
        return {
            str(name): (tuple(map(int, entry["shape"])), tuple(map(float, entry["values"])))
            for name, entry in values.items()
        }
    except (TypeError, KeyError, ValueError):
        return {}
