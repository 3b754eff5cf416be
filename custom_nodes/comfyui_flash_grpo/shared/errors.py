# A copy of flash_grpo/errors.py, made by `make comfyui-pack`; edit that file instead.
"""The one error that reaches a user as a sentence instead of a traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Input that cannot be used; the message says what was expected, what came and what to do."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """An error for a name that is not in `known`, suggesting the nearest ones."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else f"known: {', '.join(names)}"
    return InputError(f"unknown {kind} {name!r}; {hint}")
