"""The error of this pack: one sentence that a person can act on."""

from __future__ import annotations

from ..shared.errors import InputError

SHOWN = 300


class Problem(InputError):
    """What a node cannot do, with what was expected, what came and what to do; ComfyUI shows it on the node."""


def plain(text: object, limit: int = SHOWN) -> str:
    """Text of unknown origin on one line, without control characters and not too long; nothing in it is markup."""
    words = " ".join("".join(char if char.isprintable() else " " for char in str(text)).split())
    return words if len(words) <= limit else f"{words[: limit - 1]}…"
