"""The loss of a group: surrogate, clip, rectification weight and KL, against closed forms."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from flash_grpo.kernel import Transition, log_density, transition_mean
from flash_grpo.models.pocket.architecture import build_scheduler
from flash_grpo.noise import NoiseSpace
from flash_grpo.objective import clipped_surrogate, group_loss
from flash_grpo.schedule import NoiseRule, branch_transition, sigma_grid

SHAPE = (4, 2, 4, 4)
NUMEL = math.prod(SHAPE)
MEMBERS = 6
WEIGHT = 1.7
GRID = sigma_grid(build_scheduler(), 8)


def randn(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Group:
    """A recorded group with a shared state, on-policy unless `moved`: the velocity at replay."""

    def __init__(self, rule: NoiseRule = "flow", space: NoiseSpace | None = None) -> None:
        self.transition: Transition = branch_transition(rule, GRID, 2)
        self.space = space or NoiseSpace("white")
        self.state, self.velocity = randn(1, *SHAPE, seed=1), randn(1, *SHAPE, seed=2)
        self.noise = torch.stack([self.space.sample(SHAPE, seed) for seed in range(MEMBERS)]).double()
        mean = transition_mean(self.transition, self.state, self.velocity)
        self.next_states = mean + self.transition.std * self.noise
        self.old = log_density(self.transition, self.space.reduce(self.next_states - mean))
        self.advantage = randn(MEMBERS, seed=3)

    def loss(self, velocity: torch.Tensor, **changes: Any) -> Any:
        arguments: dict[str, Any] = {
            "transition": self.transition,
            "space": self.space,
            "state": self.state,
            "velocity": velocity,
            "next_states": self.next_states,
            "old_log_density": self.old,
            "advantage": self.advantage,
            "weight": WEIGHT,
            "clip": 1e-3,
        }
        return group_loss(**{**arguments, **changes})

    def gradient(self, velocity: torch.Tensor, **changes: Any) -> torch.Tensor:
        velocity = velocity.clone().requires_grad_(True)
        self.loss(velocity, **changes).loss.backward()
        assert velocity.grad is not None
        return velocity.grad

    def log_density_gradient(self) -> torch.Tensor:
        """d log p_i / d v of every member, in closed form: eps (d mean / d v) / (std numel)."""
        transition = self.transition
        factor = transition.velocity_coefficient / (transition.std * NUMEL)
        if not transition.normalised:
            factor = 2 * transition.std * transition.velocity_coefficient / NUMEL
        return self.noise * factor


@pytest.mark.parametrize("rule", ["flash", "flow", "dance", "cps"])
@pytest.mark.parametrize("space", [NoiseSpace("white"), NoiseSpace("lowpass", 2)], ids=["white", "lowpass"])
def test_on_policy_the_gradient_is_the_advantage_weighted_score(rule: NoiseRule, space: NoiseSpace) -> None:
    group = Group(rule, space)
    advantage = group.advantage.view(-1, 1, 1, 1, 1)
    expected = -WEIGHT * (advantage * group.log_density_gradient()).mean(dim=0, keepdim=True)
    measured = group.gradient(group.velocity)
    assert torch.allclose(measured, expected, rtol=1e-9, atol=1e-15)
    # Negative control: the members' advantages belong to their own noise.
    turned = -WEIGHT * (advantage.roll(1, 0) * group.log_density_gradient()).mean(dim=0, keepdim=True)
    assert not torch.allclose(measured, turned, rtol=1e-1)


def test_rectified_gradients_have_no_step_dependent_factor() -> None:
    """With weight 1 / lambda, |gradient| is |mean of A eps| / numel at every step; without, it differs tenfold."""
    norms, plain = [], []
    for step in range(GRID.steps):
        group = Group()
        group.transition = branch_transition("flash", GRID, step)
        mean = transition_mean(group.transition, group.state, group.velocity)
        group.next_states = mean + group.transition.std * group.noise
        group.old = log_density(group.transition, group.next_states - mean)
        weight = 1 / group.transition.gradient_scale
        norms.append(float(group.gradient(group.velocity, weight=weight).norm()))
        plain.append(float(group.gradient(group.velocity, weight=1.0).norm()))
    expected = (group.advantage.view(-1, 1, 1, 1, 1) * group.noise).mean(dim=0).norm() / NUMEL
    assert norms == pytest.approx([float(expected)] * GRID.steps, rel=1e-9)
    assert max(plain) / min(plain) > 5


def test_at_ratio_one_nothing_is_clipped_and_the_loss_is_minus_the_mean_advantage() -> None:
    group = Group()
    terms = group.loss(group.velocity)
    assert float(terms.log_ratio.abs().max()) < 1e-12
    assert not bool(terms.clipped.any())
    assert float(terms.loss) == pytest.approx(-WEIGHT * float(group.advantage.mean()))
    assert float(terms.divergence) == 0.0


def test_the_clip_silences_exactly_the_rollouts_that_went_too_far() -> None:
    log_ratio = torch.tensor([-0.3, -0.05, 0.0, 0.05, 0.3]).repeat(2).requires_grad_(True)
    advantage = torch.tensor([1.0] * 5 + [-1.0] * 5)
    loss, clipped = clipped_surrogate(log_ratio, advantage, 0.1)
    loss.sum().backward()
    assert log_ratio.grad is not None
    # Too likely already and good, or too unlikely already and bad.
    assert clipped.tolist() == [False] * 4 + [True] + [True] + [False] * 4
    expected = torch.where(clipped, torch.zeros(10), -advantage * log_ratio.detach().exp())
    assert torch.allclose(log_ratio.grad, expected)
    assert loss.tolist()[4] == pytest.approx(-1.1) and loss.tolist()[5] == pytest.approx(0.9)


def test_a_clipped_member_adds_nothing_to_the_groups_gradient() -> None:
    group = Group()
    old = group.old.clone()
    old[0] -= 0.1  # member 0 has become more likely
    group.advantage = group.advantage.abs()
    everyone = group.gradient(group.velocity)
    without = group.gradient(group.velocity, old_log_density=old)
    share = -WEIGHT * group.advantage[0] * group.log_density_gradient()[:1] / MEMBERS
    assert torch.allclose(without, everyone - share, rtol=1e-9, atol=1e-15)
    assert group.loss(group.velocity, old_log_density=old).clipped.tolist() == [True] + [False] * 5
    # Negative control: within a wide clip it counts.
    assert not torch.allclose(group.gradient(group.velocity, old_log_density=old, clip=0.5), without, rtol=1e-3)


@pytest.mark.parametrize("space", [NoiseSpace("white"), NoiseSpace("lowpass", 2)], ids=["white", "lowpass"])
def test_the_kl_term_and_its_gradient_equal_their_closed_form(space: NoiseSpace) -> None:
    group = Group(space=space)
    base = group.velocity + 0.1 * randn(1, *SHAPE, seed=9)
    silent = {"advantage": torch.zeros(MEMBERS, dtype=torch.float64), "kl_weight": 0.25, "base_velocity": base}
    slope = group.transition.velocity_coefficient
    difference = slope * space.reduce(group.velocity - base)
    terms = group.loss(group.velocity, **silent)
    assert float(terms.divergence) == pytest.approx(float(difference.pow(2).mean()) / (2 * group.transition.std**2))
    assert float(terms.loss) == pytest.approx(0.25 * float(terms.divergence))
    measured = group.gradient(group.velocity, **silent)
    if space.kind == "lowpass":
        difference = difference.repeat_interleave(2, 2).repeat_interleave(2, 3)[:, :, None].expand(1, *SHAPE)
    expected = 0.25 * slope * difference / (group.transition.std**2 * NUMEL)
    assert float(expected.abs().max()) > 0
    assert torch.allclose(measured, expected, rtol=1e-9, atol=1e-15)
    # Negative control: at the base itself there is nothing to pull.
    assert float(group.gradient(group.velocity, **{**silent, "base_velocity": group.velocity}).abs().max()) == 0.0


def test_the_kl_term_needs_the_base_velocity() -> None:
    group = Group()
    with pytest.raises(ValueError, match="kl_weight needs the base model's velocity"):
        group.loss(group.velocity, kl_weight=0.1)


def test_one_shared_state_gives_what_repeated_states_give() -> None:
    group = Group()
    moved = group.velocity + 0.02 * randn(1, *SHAPE, seed=4)
    shared = group.loss(moved)
    apart = group.loss(moved.expand(MEMBERS, *SHAPE), state=group.state.expand(MEMBERS, *SHAPE))
    assert torch.allclose(shared.log_ratio, apart.log_ratio, rtol=1e-12)
    assert float(shared.loss) == pytest.approx(float(apart.loss), rel=1e-12)
