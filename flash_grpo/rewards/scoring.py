"""Several rewards on the same videos, every answer checked."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from flash_grpo.errors import InputError
from flash_grpo.rewards.base import Reward, VideoBatch
from flash_grpo.rewards.registry import create


class RewardSet:
    """Rewards with their weights; weight 0 means watched only.

    `rewards` maps a name or import path to its weight, `options` a reward's name to its options. Raises InputError for
    unknown names, options and weights that are no finite numbers.
    """

    def __init__(self, rewards: Mapping[str, float], options: Mapping[str, Mapping[str, object]] | None = None) -> None:
        options = options or {}
        for name, weight in rewards.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not math.isfinite(weight):
                raise InputError(
                    f"the weight of reward {name!r} must be a finite number, got {weight!r}; 0 only watches"
                )
        stray = sorted(set(options) - set(rewards))
        if stray:
            raise InputError(
                f"options given for {', '.join(stray)}, which is not among the rewards; add it or drop them"
            )
        self.weights: dict[str, float] = {name: float(weight) for name, weight in rewards.items()}
        self._rewards: dict[str, Reward] = {name: create(name, options.get(name)) for name in rewards}

    def score(self, videos: VideoBatch, group_size: int | None) -> dict[str, torch.Tensor]:
        """Raw scores by reward, each [B] float32 on the CPU; weights are not applied.

        Groups are `group_size` consecutive videos of one prompt; None if there are no groups, which groupwise rewards
        refuse. Raises InputError, naming the reward, for answers of a wrong length or with non-finite values.
        """
        if group_size is not None and (group_size < 1 or len(videos) % group_size):
            raise InputError(f"{len(videos)} videos do not divide into groups of {group_size}; pass whole groups")
        scores = {}
        for name, reward in self._rewards.items():
            if not reward.groupwise:
                scores[name] = _answer(name, reward, videos)
                continue
            if group_size is None:
                raise InputError(f"reward {name!r} compares the videos of a group, but no group size came; pass one")
            starts = range(0, len(videos), group_size)
            groups = [_answer(name, reward, videos.part(start, start + group_size)) for start in starts]
            scores[name] = torch.cat(groups) if groups else torch.zeros(0)
        return scores


def _answer(name: str, reward: Reward, videos: VideoBatch) -> torch.Tensor:
    """One reward's scores for these videos, or a sentence on what is wrong with them."""
    with torch.no_grad():
        answer = reward.score(videos)
    if not isinstance(answer, torch.Tensor):
        raise InputError(
            f"reward {name!r} answered with a {type(answer).__name__}; return a tensor of one float per video"
        )
    if answer.shape != (len(videos),):
        raise InputError(
            f"reward {name!r} answered with shape {list(answer.shape)} for {len(videos)} videos; "
            "return exactly one float per video"
        )
    answer = answer.detach().to("cpu", torch.float32)
    bad = (~torch.isfinite(answer)).nonzero().flatten()
    if len(bad):
        first = int(bad[0])
        raise InputError(
            f"reward {name!r} gave {float(answer[first])} for video {first} ({videos.prompts[first]!r}), "
            f"{len(bad)} of {len(answer)} values are not finite; make the reward answer a finite number for every video"
        )
    return answer
