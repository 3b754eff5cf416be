"""Group advantages: each reward is normalised on its own, then weighted; groups without spread are called dead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

EPSILON = 1e-4
DEAD_RANGE = 1e-6


@dataclass(frozen=True)
class Advantages:
    """Advantages [groups, members], and which groups [groups] had no spread in any weighted reward."""

    values: torch.Tensor
    dead: torch.Tensor


def group_advantages(
    rewards: Mapping[str, torch.Tensor],
    weights: Mapping[str, float],
    std: Literal["batch", "pooled", "group"],
    clamp: float,
) -> Advantages:
    """Weighted sum of normalised rewards, each [groups, members] float; rewards of weight 0 do not count.

    A reward is centred on its group's mean and divided by a spread: of the whole batch (`batch`, the paper), within
    groups pooled over the batch (`pooled`), or of the group itself (`group`). ValueError if no reward has weight.
    """
    active = {name: values.double() for name, values in rewards.items() if weights.get(name)}
    if not active:
        raise ValueError(f"no weighted reward among {sorted(rewards)}; weights are {dict(weights)}")
    total: torch.Tensor | None = None
    dead: torch.Tensor | None = None
    for name, values in active.items():
        still = values.amax(dim=1) - values.amin(dim=1) <= DEAD_RANGE
        part = weights[name] * normalised(values, std)
        total = part if total is None else total + part
        dead = still if dead is None else dead & still
    assert total is not None and dead is not None
    total = total.clamp(-clamp, clamp).masked_fill(dead[:, None], 0.0)
    return Advantages(total.float(), dead)


def normalised(values: torch.Tensor, std: Literal["batch", "pooled", "group"]) -> torch.Tensor:
    """Rewards [groups, members] centred per group and divided by the chosen spread."""
    centred = values - values.mean(dim=1, keepdim=True)
    if std == "group":
        spread = values.std(dim=1, keepdim=True)
    elif std == "pooled":
        spread = centred.square().mean().sqrt()
    else:
        spread = values.std()
    return centred / (spread + EPSILON)


def shuffled(advantages: torch.Tensor, seed: int) -> torch.Tensor:
    """A seeded permutation of all advantages over groups and members: a control that must learn nothing."""
    order = torch.randperm(advantages.numel(), generator=torch.Generator().manual_seed(seed))
    return advantages.flatten()[order].view_as(advantages)
