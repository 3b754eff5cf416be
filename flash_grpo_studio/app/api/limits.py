"""How much a request may hold."""

from __future__ import annotations

import os
from dataclasses import dataclass

from flash_grpo.errors import InputError

MB = 2**20


@dataclass(frozen=True)
class Limits:
    """In bytes; `depth` is the deepest nesting of JSON, `streams` the most open event streams."""

    json: int = 32 * MB
    video: int = 512 * MB
    prompts: int = 10 * MB
    depth: int = 32
    streams: int = 500


def read_limits() -> Limits:
    """FLASH_GRPO_MAX_VIDEO_MB and FLASH_GRPO_MAX_PROMPTS_MB, else the defaults."""
    defaults = Limits()
    return Limits(
        video=_megabytes("FLASH_GRPO_MAX_VIDEO_MB", defaults.video),
        prompts=_megabytes("FLASH_GRPO_MAX_PROMPTS_MB", defaults.prompts),
    )


def _megabytes(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    if not text:
        return default
    if not text.isdigit() or not 0 < int(text) <= 1_000_000:
        raise InputError(f"expected a whole number of megabytes in {variable}, got {text!r}")
    return int(text) * MB
