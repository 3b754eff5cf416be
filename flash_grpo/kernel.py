"""The transition kernel for rollout and replay: ODE step, stochastic step, log-density, gradient scale.

Flow matching: x_sigma = (1 - sigma) x_0 + sigma noise, velocity v = noise - x_0, sigma falls from 1 to 0. Every
stochastic step here is a Gaussian whose mean is linear in state and velocity, `mean = a x + b v`, with one standard
deviation for all elements; the rules differ only in these three numbers. All tensor arithmetic is float32 or wider.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Transition:
    """One stochastic step: mean = state_coefficient * x + velocity_coefficient * v, spread `std` per element.

    `normalised` tells whether the log-density is the Gaussian's own (mean over elements) or, as in CPS, the bare
    negative squared distance.
    """

    state_coefficient: float
    velocity_coefficient: float
    std: float
    normalised: bool = True

    @property
    def gradient_scale(self) -> float:
        """lambda: |d log p / d v| = |eps| * lambda / numel (Flash-GRPO, temporal gradient rectification)."""
        if self.normalised:
            return abs(self.velocity_coefficient) / self.std if self.std > 0 else math.inf
        return 2 * self.std * abs(self.velocity_coefficient)


def sde_transition(sigma: float, sigma_next: float, noise_level: float) -> Transition:
    """The SDE step of Flow-GRPO, Flash-GRPO and DanceGRPO for a noise level s; sigma in (0, 1], sigma_next < sigma."""
    step = sigma_next - sigma
    drift = noise_level**2 / (2 * sigma)
    return Transition(
        state_coefficient=1 + drift * step,
        velocity_coefficient=(1 + drift * (1 - sigma)) * step,
        std=noise_level * math.sqrt(-step),
    )


def cps_transition(sigma: float, sigma_next: float, noise_level: float) -> Transition:
    """The coefficient-preserving step (CPS); noise_level = sigma_next * sin(eta pi / 2)."""
    kept = math.sqrt(max(0.0, sigma_next**2 - noise_level**2))
    return Transition(
        state_coefficient=1 - sigma_next + kept,
        velocity_coefficient=kept * (1 - sigma) - sigma * (1 - sigma_next),
        std=noise_level,
        normalised=False,
    )


def ode_step(state: torch.Tensor, velocity: torch.Tensor, sigma: float, sigma_next: float) -> torch.Tensor:
    """Euler step of the probability-flow ODE; same shape as `state`."""
    return state + velocity * (sigma_next - sigma)


def adams_velocity(
    velocity: torch.Tensor, previous: torch.Tensor | None, step: float, previous_step: float
) -> torch.Tensor:
    """Effective velocity of the two-step Adams-Bashforth method; without history it is Euler's.

    `step` and `previous_step` are the (negative) sigma differences of this and the previous step.
    """
    if previous is None:
        return velocity
    return velocity + (velocity - previous) * (step / (2 * previous_step))


def transition_mean(transition: Transition, state: torch.Tensor, velocity: torch.Tensor) -> torch.Tensor:
    """Mean of the next state; shapes of `state` and `velocity` broadcast."""
    return transition.state_coefficient * state + transition.velocity_coefficient * velocity


def log_density(transition: Transition, deviation: torch.Tensor) -> torch.Tensor:
    """Log-density of a sample at `deviation` from the mean, averaged over all but the first dimension: [B, ...] -> [B].

    For noise that lives in a subspace, reduce the deviation to it (`NoiseSpace.reduce`): reducing sample and mean apart
    would cost float32 most of its digits where the noise is weak.
    """
    squared = (deviation**2).flatten(1).mean(dim=1)
    if not transition.normalised:
        return -squared
    return -squared / (2 * transition.std**2) - math.log(transition.std) - 0.5 * math.log(2 * math.pi)


def gaussian_divergence(transition: Transition, difference: torch.Tensor) -> torch.Tensor:
    """KL divergence per element of two steps whose means differ by `difference`, with equal spread: [B, ...] -> [B]."""
    return (difference**2).flatten(1).mean(dim=1) / (2 * transition.std**2)
