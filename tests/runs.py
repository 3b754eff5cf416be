"""Short whole runs on the tiny pipeline, and how tests look at what they left."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flash_grpo.events import Event, Record, read_events
from flash_grpo.trainer import train
from tests.tiny import config_for

BRIGHT = "tests.tiny:brightness"
QUICK: dict[str, Any] = {
    "rewards": {BRIGHT: 1.0, "colorfulness": 0.0},
    "prompts_per_update": 3,
    "group_size": 4,
    "sampling_steps": 4,
    "candidate_steps": [0, 1],
    "guidance_scale": 2.0,
    "evaluation_steps": 3,
    "updates": 3,
    "evaluate_every": 2,
    "checkpoint_every": 1,
    "validation_limit": 3,
    "heldout_limit": 5,
    "videos_saved": 2,
}


def run(folder: Path, output: Path, *subscribers: Callable[[Event], None], **changes: Any) -> dict[str, Any]:
    return train(config_for(folder, **{**QUICK, **changes}), output, preset="micro", subscribers=subscribers)


def of_type(output: Path, kind: str) -> list[Record]:
    return [record for record in read_events(output) if record.type == kind]


def summary_of(output: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((output / "summary.json").read_text(encoding="utf-8"))
    return content


def at(kind: type[Event], act: Callable[[], object]) -> Callable[[Event], None]:
    """A subscriber that acts once, when the first event of a kind comes."""
    left = [act]

    def see(event: Event) -> None:
        if isinstance(event, kind) and left:
            left.pop()()

    return see
