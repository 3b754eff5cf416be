"""The transition kernel against its formulas, written out again here, and against autograd."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler

from flash_grpo.kernel import (
    Transition,
    adams_velocity,
    gaussian_divergence,
    log_density,
    ode_step,
    sde_transition,
    transition_mean,
)
from flash_grpo.models.pocket.architecture import build_scheduler
from flash_grpo.noise import NoiseSpace
from flash_grpo.schedule import NoiseRule, SigmaGrid, branch_transition, noise_level, sigma_grid

SHAPE = (2, 3, 2, 8, 8)
NUMEL = math.prod(SHAPE[1:])
GRIDS = {
    f"{name}-{steps}": sigma_grid(scheduler, steps, shift=3.0)
    for name, scheduler in (("unipc", build_scheduler()), ("euler", FlowMatchEulerDiscreteScheduler()))
    for steps in (6, 20)
}
GAUSSIAN: tuple[NoiseRule, ...] = ("flash", "flow", "dance")
WHITE, LOWPASS_2, LOWPASS_4 = NoiseSpace("white"), NoiseSpace("lowpass", 2), NoiseSpace("lowpass", 4)


def tensors(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """A state and a velocity."""
    generator = torch.Generator().manual_seed(5)
    state, velocity = (torch.randn(SHAPE, generator=generator, dtype=dtype) for _ in range(2))
    return state, velocity


def noise(space: NoiseSpace, dtype: torch.dtype) -> torch.Tensor:
    return torch.stack([space.sample(SHAPE[1:], seed) for seed in range(SHAPE[0])]).to(dtype)


def reference_mean(rule: str, sigma: float, after: float, s: float, x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The mean as published: by drift for the SDE rules, by predicted ends for CPS."""
    if rule == "cps":
        clean, noisy = x - sigma * v, x + (1 - sigma) * v
        return (1 - after) * clean + math.sqrt(after**2 - s**2) * noisy
    dt = after - sigma
    return x * (1 + s**2 / (2 * sigma) * dt) + v * (1 + s**2 * (1 - sigma) / (2 * sigma)) * dt


def reference_lambda(rule: str, sigma: float, after: float, s: float) -> float:
    if rule == "cps":
        return 2 * s * abs(-sigma * (1 - after) + (1 - sigma) * math.sqrt(after**2 - s**2))
    root = math.sqrt(sigma - after)
    return root / s + s * root * (1 - sigma) / (2 * sigma)


def measured(transition: Transition, space: NoiseSpace, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """|d log p / d v| of every element, by autograd, and the |eps| that the stored sample realises."""
    state, velocity = tensors(dtype)
    velocity.requires_grad_(True)
    mean = transition_mean(transition, state, velocity)
    sample = (mean + transition.std * noise(space, dtype)).detach()
    log_density(transition, space.reduce(sample - mean)).sum().backward()
    assert velocity.grad is not None
    # The sample is rounded to its precision, which moves the noise: in float32 by up to 5e-5 where noise is weakest.
    realised = space.reduce((sample.double() - mean.detach().double()) / max(transition.std, 1e-300))
    if space.kind == "lowpass":
        realised = realised.repeat_interleave(space.block, 2).repeat_interleave(space.block, 3)
        realised = realised[:, :, None].expand(SHAPE)
    return velocity.grad.abs(), realised.abs()


def gap(measured: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference relative to the largest expected value; 0 where both are zero (a step without noise)."""
    largest = float(expected.abs().max())
    difference = float((measured - expected).abs().max())
    return difference / largest if largest else difference


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS.keys())
@pytest.mark.parametrize("rule", [*GAUSSIAN, "cps"])
@pytest.mark.parametrize("space", [WHITE, LOWPASS_2, LOWPASS_4], ids=["white", "lowpass2", "lowpass4"])
def test_the_gradient_of_the_log_density_is_noise_times_lambda(
    rule: NoiseRule, grid: SigmaGrid, space: NoiseSpace
) -> None:
    for step in range(grid.steps):
        transition = branch_transition(rule, grid, step)
        sigma, after = grid.sigmas[step], grid.sigmas[step + 1]
        scale = reference_lambda(rule, sigma, after, noise_level(rule, grid.sigmas, step))
        assert transition.gradient_scale == pytest.approx(scale, rel=1e-12, abs=1e-15)
        double, _ = measured(transition, space, torch.float64)
        assert gap(double, noise(space, torch.float64).abs() * scale / NUMEL) < 1e-9, step
        single, realised = measured(transition, space, torch.float32)
        assert gap(single, realised * scale / NUMEL) < 1e-6, step


@pytest.mark.parametrize("rule", GAUSSIAN)
def test_the_identity_misses_a_wrong_lambda(rule: NoiseRule) -> None:
    """Negative control: lambda with sigma for (1 - sigma), or from the neighbouring step, is seen at every step."""
    grid = GRIDS["unipc-20"]
    eps = noise(WHITE, torch.float64).abs() / NUMEL
    for step in range(grid.steps - 1):
        sigma, after, s = grid.sigmas[step], grid.sigmas[step + 1], noise_level(rule, grid.sigmas, step)
        gradient, _ = measured(branch_transition(rule, grid, step), WHITE, torch.float64)
        root = math.sqrt(sigma - after)
        assert gap(gradient, eps * (root / s + s * root * sigma / (2 * sigma))) > 1e-4
        neighbour = reference_lambda(rule, grid.sigmas[step + 1], grid.sigmas[step + 2], s)
        assert gap(gradient, eps * neighbour) > 1e-4


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS.keys())
@pytest.mark.parametrize("rule", [*GAUSSIAN, "cps"])
def test_mean_and_spread_follow_the_published_formulas(rule: NoiseRule, grid: SigmaGrid) -> None:
    state, velocity = tensors(torch.float64)
    for step in range(grid.steps):
        sigma, after, s = grid.sigmas[step], grid.sigmas[step + 1], noise_level(rule, grid.sigmas, step)
        transition = branch_transition(rule, grid, step)
        expected = reference_mean(rule, sigma, after, s, state, velocity)
        assert gap(transition_mean(transition, state, velocity), expected) < 1e-12
        spread = s if rule == "cps" else s * math.sqrt(sigma - after)
        assert transition.std == pytest.approx(spread, rel=1e-12)
        # Negative control: the sign of the velocity matters.
        assert gap(transition_mean(transition, state, -velocity), expected) > 1e-3


def test_the_log_density_is_the_mean_of_a_normal_distributions() -> None:
    transition = sde_transition(0.9, 0.8, 0.7)
    mean, other = tensors(torch.float64)
    sample = mean + 0.3 * other
    expected = torch.distributions.Normal(mean, transition.std).log_prob(sample).flatten(1).mean(dim=1)
    assert torch.allclose(log_density(transition, sample - mean), expected, rtol=1e-12)
    wider = replace(transition, std=transition.std * 1.01)
    assert not torch.allclose(log_density(wider, sample - mean), expected, rtol=1e-4)


def test_cps_has_no_normaliser() -> None:
    transition = branch_transition("cps", GRIDS["unipc-20"], 3)
    _, other = tensors(torch.float64)
    expected = -(other**2).flatten(1).mean(dim=1)
    assert torch.allclose(log_density(transition, other), expected, rtol=1e-12)


def test_the_divergence_is_that_of_two_normal_distributions() -> None:
    transition = sde_transition(0.9, 0.8, 0.7)
    mean, other = tensors(torch.float64)
    normal = torch.distributions.Normal
    expected = torch.distributions.kl_divergence(normal(mean, transition.std), normal(other, transition.std))
    assert torch.allclose(gaussian_divergence(transition, mean - other), expected.flatten(1).mean(dim=1), rtol=1e-12)


def test_a_step_without_noise_has_no_usable_scale() -> None:
    assert math.isinf(sde_transition(0.5, 0.4, 0.0).gradient_scale)
    assert branch_transition("cps", GRIDS["unipc-6"], 5).gradient_scale == 0.0


def solve(steps: int, adams: bool) -> float:
    """Error at sigma 0 of dx/dsigma = x, x(1) = 1, on an uneven grid."""
    grid = [(1 - i / steps) ** 1.3 for i in range(steps + 1)]
    state, previous = torch.ones(1, dtype=torch.float64), None
    for step in range(steps):
        velocity = state
        size = grid[step + 1] - grid[step]
        earlier = grid[step] - grid[step - 1] if step else 1.0
        effective = adams_velocity(velocity, previous, size, earlier) if adams else velocity
        state = ode_step(state, effective, grid[step], grid[step + 1])
        previous = velocity
    return abs(float(state) - math.exp(-1))


def test_adams_is_of_second_order_and_euler_of_first() -> None:
    for steps in (40, 80):
        assert solve(steps, adams=True) / solve(2 * steps, adams=True) == pytest.approx(4, abs=0.5)
        assert solve(steps, adams=False) / solve(2 * steps, adams=False) == pytest.approx(2, abs=0.15)
    assert solve(40, adams=True) < solve(40, adams=False) / 10


def test_adams_without_history_is_euler() -> None:
    velocity = torch.ones(3)
    assert adams_velocity(velocity, None, -0.1, 1.0) is velocity
