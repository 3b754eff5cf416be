# A copy of flash_grpo/sketch.py, made by `make comfyui-pack`; edit that file instead.
"""A few numbers that tell a base model from others of its shape, in whatever precision it was stored; imports no torch.

The file hash of a base says nothing once someone stored it in another precision or under other names; some of its
weights still do. The ComfyUI node pack holds a copy of this file (`make comfyui-pack`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

VALUES = 64
"""Numbers kept of each sketched weight."""
SAME = 0.995
"""Cosine from which two sketches are of one weight: storing it in 8 bits leaves 0.999, another model has far less."""


def sketched(blocks: int) -> tuple[str, ...]:
    """Native names of the weights that are sketched, of a transformer with this many blocks."""
    last = blocks - 1
    return (
        "blocks.0.self_attn.q.weight",
        "blocks.0.ffn.0.weight",
        f"blocks.{last}.cross_attn.v.weight",
        f"blocks.{last}.ffn.2.weight",
    )


def places(size: int) -> list[int]:
    """Which of a flattened weight's numbers are kept, spread over all of it."""
    return [index * size // VALUES for index in range(min(VALUES, size))]


def likeness(one: Sequence[float], other: Sequence[float]) -> float:
    """Cosine of two sketches of one weight; 0 where they cannot be compared. A common scale does not matter."""
    if len(one) != len(other):
        return 0.0
    product = sum(a * b for a, b in zip(one, other, strict=True))
    length = math.sqrt(sum(a * a for a in one) * sum(b * b for b in other))
    return product / length if length > 0 and math.isfinite(length) else 0.0
