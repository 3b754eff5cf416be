"""Rewards that need nothing but torch and numpy, so that a node can give them anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..shared.base import Reward, VideoBatch
from ..shared.colorfulness import Colorfulness
from ..shared.errors import InputError
from ..shared.flicker import Flicker
from ..shared.sharpness import Sharpness
from ..shared.subject_size import SubjectSize
from .problem import Problem, plain


def _prompt_following() -> Reward:
    from ..shared.prompt_following import PromptFollowing  # knows the pocket world, which only its captions are of

    return PromptFollowing()


HERE: Mapping[str, Callable[..., Reward]] = {
    "colorfulness": Colorfulness,
    "flicker": Flicker,
    "prompt_following": _prompt_following,
    "sharpness": Sharpness,
    "subject_size": SubjectSize,
}
"""Rewards a node gives by itself; all others are the studio's."""


def names_of(text: str) -> list[str]:
    """Reward names from a text with commas, each once."""
    found = list(dict.fromkeys(name.strip() for name in text.replace("\n", ",").split(",") if name.strip()))
    if not found:
        raise Problem(f"expected at least one reward, got none; this node knows {', '.join(HERE)}")
    return found


def options_of(text: str) -> dict[str, Any]:
    """Options per reward from JSON such as {"subject_size": {"low": 0.2}}."""
    try:
        options = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        raise Problem(f"the options are no JSON ({plain(error, 80)}); correct or empty them") from error
    if not isinstance(options, dict) or not all(isinstance(value, dict) for value in options.values()):
        raise Problem('expected options such as {"subject_size": {"low": 0.2}}; correct or empty them')
    return options


def score_here(
    names: Sequence[str], frames: torch.Tensor, fps: float, prompt: str, options: Mapping[str, Mapping[str, Any]]
) -> dict[str, float]:
    """Scores of one video [F, H, W, 3] by rewards of `HERE`."""
    # As bytes would hold it: the same video scores the same here and from its file.
    clip = ((frames[..., :3].float().cpu().clamp(0, 1) * 255).round() / 255).permute(0, 3, 1, 2)[None]
    batch = VideoBatch(clip.contiguous(), [prompt], [{}], fps)
    scores = {}
    for name in names:
        try:
            scores[name] = float(HERE[name](**options.get(name, {})).score(batch)[0])
        except InputError as error:
            raise Problem(str(error)) from error
        except TypeError as error:
            raise Problem(f"reward {name} does not take the options {sorted(options.get(name, {}))}") from error
    return scores
