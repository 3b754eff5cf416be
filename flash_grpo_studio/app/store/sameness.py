"""What two videos or runs must share so that their scores may be set against each other, and where they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flash_grpo.config import RunConfig

Code = Literal[
    "model",
    "prompt",
    "seed",
    "noise",
    "steps",
    "guidance_scale",
    "shift",
    "sampler",
    "negative_prompt",
    "width",
    "height",
    "frames",
    "fps",
    "rewards",
]
Settings = Mapping[str, Any]
RENDERED = ("sampler", "steps", "guidance_scale", "shift", "width", "height", "frames", "fps")
"""What a preview's result says of how it was rendered."""


@dataclass(frozen=True)
class Difference:
    """Where two sides differ; None is not known, or left to the model."""

    code: Code
    before: Any
    after: Any


def settings_of(config: RunConfig) -> dict[str, Any]:
    """How a run renders the videos it is judged by; the sampler's name is known to previews alone."""
    return {
        "model": config.model if config.revision is None else f"{config.model}@{config.revision}",
        "steps": config.evaluation_steps,
        "guidance_scale": config.deployment_guidance(),
        "shift": config.shift,
        "sampler": None,
        "negative_prompt": config.negative_prompt,
        "width": config.width,
        "height": config.height,
        "frames": config.frames,
        "fps": config.fps,
    }


def of_preview(run: Settings, result: Mapping[str, Any]) -> dict[str, Any]:
    """How a preview of a run was rendered, as far as its result says."""
    return {**run, **{name: result[name] for name in RENDERED if name in result}}


def differing(before: Settings, after: Settings) -> list[Difference]:
    """Settings that differ; a sampler that one side does not name is that of the model."""
    found = []
    for code in before:
        ours, theirs = before[code], after[code]
        unknown = code == "sampler" and None in (ours, theirs)
        if ours != theirs and not unknown:
            found.append(Difference(code, ours, theirs))  # type: ignore[arg-type]
    return found


def measured_otherwise(before: RunConfig, after: RunConfig) -> list[Difference]:
    """Rewards that both runs measure, but with other options."""
    shared = before.rewards.keys() & after.rewards.keys()
    options = [{name: config.reward_options.get(name, {}) for name in shared} for config in (before, after)]
    unlike = sorted(name for name in shared if options[0][name] != options[1][name])
    if not unlike:
        return []
    return [Difference("rewards", *({name: found[name] for name in unlike} for found in options))]


def optimised(configs: Sequence[RunConfig]) -> set[str]:
    """Rewards that any of the runs was trained on."""
    return {name for config in configs for name, weight in config.rewards.items() if weight}
