"""The loss of one update: clipped surrogate, temporal gradient rectification, optional KL to the base model."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flash_grpo.kernel import Transition, gaussian_divergence, log_density, transition_mean
from flash_grpo.noise import NoiseSpace


@dataclass(frozen=True)
class Terms:
    """Loss of one group (scalar with gradient) and what it is made of, detached."""

    loss: torch.Tensor
    log_ratio: torch.Tensor
    clipped: torch.Tensor
    divergence: torch.Tensor


def clipped_surrogate(
    log_ratio: torch.Tensor, advantage: torch.Tensor, clip: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """PPO's loss per rollout [K] and which rollouts the clip silences [K]."""
    ratio = log_ratio.exp()
    plain = -advantage * ratio
    bounded = -advantage * ratio.clamp(1 - clip, 1 + clip)
    return torch.maximum(plain, bounded), bounded > plain


def group_loss(
    transition: Transition,
    space: NoiseSpace,
    state: torch.Tensor,
    velocity: torch.Tensor,
    next_states: torch.Tensor,
    old_log_density: torch.Tensor,
    advantage: torch.Tensor,
    weight: float,
    clip: float,
    kl_weight: float = 0.0,
    base_velocity: torch.Tensor | None = None,
) -> Terms:
    """Mean loss over the K rollouts of one group.

    `state` and `velocity` are [1, ...] when the group shares its branch state (all K log-densities then come from one
    network evaluation) or [K, ...]; `next_states` is [K, ...]; `old_log_density` and `advantage` are [K]. `weight` is
    the rectification weight of the branch step. With `kl_weight`, `base_velocity` must be given.
    """
    mean = transition_mean(transition, state, velocity)
    log_ratio = log_density(transition, space.reduce(next_states - mean)) - old_log_density
    surrogate, clipped = clipped_surrogate(log_ratio, advantage, clip)
    loss = weight * surrogate.mean()
    divergence = torch.zeros(())
    if kl_weight > 0:
        if base_velocity is None:
            raise ValueError("kl_weight needs the base model's velocity")
        base_mean = transition_mean(transition, state, base_velocity)
        divergence = gaussian_divergence(transition, space.reduce(mean - base_mean)).mean()
        loss = loss + kl_weight * divergence
    return Terms(loss, log_ratio.detach(), clipped, divergence.detach())
