"""What preparing a job results in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Prepared:
    """What the store keeps of a request: `spec` holds the request itself (`ask`) and what a worker needs.

    spec: for an alignment `config` (a whole RunConfig) and `files` (file name -> prompts); for the others `task`, with
    paths relative to the workspace.
    """

    name: str
    spec: dict[str, Any]
    preset: str | None = None
    parent_id: str | None = None
    devices: int = 1
    machines: int = 1
    budget: float | None = None
    updates: int | None = None
