"""Group advantages: centring, spreads, weights, clamps, dead groups."""

from __future__ import annotations

from typing import Literal, get_args

import pytest
import torch

from flash_grpo.advantage import group_advantages, normalised, shuffled

Std = Literal["batch", "pooled", "group"]
MODES: tuple[Std, ...] = get_args(Std)


def rewards(seed: int = 0, groups: int = 6, members: int = 8) -> torch.Tensor:
    """Rewards whose level differs more between groups than within them."""
    generator = torch.Generator().manual_seed(seed)
    level = 3 * torch.randn((groups, 1), generator=generator)
    return level + torch.randn((groups, members), generator=generator)


@pytest.mark.parametrize("std", MODES)
def test_every_group_has_zero_mean_and_keeps_its_order(std: Std) -> None:
    values = rewards()
    advantages = group_advantages({"r": values}, {"r": 1.0}, std, 5.0)
    assert float(advantages.values.mean(dim=1).abs().max()) < 1e-6
    assert torch.equal(advantages.values.argsort(dim=1), values.argsort(dim=1))
    assert not bool(advantages.dead.any())


def test_the_modes_divide_by_their_spread() -> None:
    values = rewards().double()
    centred = values - values.mean(dim=1, keepdim=True)
    assert torch.allclose(normalised(values, "batch"), centred / values.std(), rtol=1e-3)
    assert torch.allclose(normalised(values, "pooled"), centred / centred.pow(2).mean().sqrt(), rtol=1e-3)
    assert torch.allclose(normalised(values, "group"), centred / values.std(dim=1, keepdim=True), rtol=1e-3)
    # The level differs between groups, so the batch's spread is the largest and its advantages the smallest.
    assert float(normalised(values, "batch").std()) < 0.6 * float(normalised(values, "pooled").std())


def test_the_published_form_by_hand() -> None:
    values = torch.tensor([[1.0, 3.0], [0.0, 0.0]])
    result = group_advantages({"r": values}, {"r": 1.0}, "batch", 5.0)
    spread = float(torch.tensor([1.0, 3.0, 0.0, 0.0]).std())
    assert result.values.tolist()[0] == pytest.approx([-1 / (spread + 1e-4), 1 / (spread + 1e-4)])
    assert result.dead.tolist() == [False, True]


@pytest.mark.parametrize("std", MODES)
def test_a_group_without_spread_is_dead_and_zero(std: Std) -> None:
    values = rewards()
    values[2] = 0.7
    values[4] = 0.7 + 1e-8 * torch.randn(8)
    result = group_advantages({"r": values}, {"r": 1.0}, std, 5.0)
    assert result.dead.tolist() == [False, False, True, False, True, False]
    assert float(result.values[[2, 4]].abs().max()) == 0.0
    # With a second reward that tells its members apart, the group lives.
    both = group_advantages({"r": values, "q": rewards(1)}, {"r": 1.0, "q": 1.0}, std, 5.0)
    assert not bool(both.dead.any())
    assert float(both.values[2].abs().max()) > 0


@pytest.mark.parametrize("std", MODES)
def test_the_scale_of_one_reward_of_two_changes_nothing(std: Std) -> None:
    one, other = rewards(0), rewards(1)
    weights = {"one": 1.0, "other": 0.5}
    plain = group_advantages({"one": one, "other": other}, weights, std, 5.0)
    scaled = group_advantages({"one": 1000 * one - 7, "other": other}, weights, std, 5.0)
    assert torch.allclose(plain.values, scaled.values, rtol=1e-3, atol=1e-3)
    # Negative control: what does matter is the weight.
    heavier = group_advantages({"one": one, "other": other}, {"one": 2.0, "other": 0.5}, std, 5.0)
    assert not torch.allclose(plain.values, heavier.values, rtol=1e-1, atol=1e-1)


def test_weights_combine_linearly_and_a_negative_one_turns_the_order() -> None:
    one, other = rewards(0), rewards(1)
    both = group_advantages({"one": one, "other": other}, {"one": 2.0, "other": -1.0}, "group", 100.0)
    expected = 2 * normalised(one.double(), "group") - normalised(other.double(), "group")
    assert torch.allclose(both.values.double(), expected, atol=1e-5)


def test_a_watched_reward_changes_nothing() -> None:
    values = rewards()
    plain = group_advantages({"r": values}, {"r": 1.0}, "batch", 5.0)
    watched = group_advantages({"r": values, "w": 100 * rewards(1)}, {"r": 1.0, "w": 0.0}, "batch", 5.0)
    unnamed = group_advantages({"r": values, "w": 100 * rewards(1)}, {"r": 1.0}, "batch", 5.0)
    assert torch.equal(plain.values, watched.values) and torch.equal(plain.values, unnamed.values)
    values[1] = 2.0
    dead = group_advantages({"r": values, "w": rewards(1)}, {"r": 1.0, "w": 0.0}, "batch", 5.0)
    assert bool(dead.dead[1])  # spread in a watched reward alone teaches nothing


def test_outliers_are_clamped() -> None:
    values = torch.zeros(4, 100)
    values[0, 0] = 1e6
    result = group_advantages({"r": values}, {"r": 1.0}, "batch", 5.0)
    assert float(result.values.max()) == 5.0
    assert float(group_advantages({"r": values}, {"r": 1.0}, "batch", 50.0).values.max()) > 5.0


def test_no_weighted_reward_is_an_error() -> None:
    with pytest.raises(ValueError, match="no weighted reward among \\['r'\\]"):
        group_advantages({"r": rewards()}, {"r": 0.0}, "batch", 5.0)


def test_shuffling_is_a_seeded_permutation() -> None:
    values = rewards()
    mixed = shuffled(values, 3)
    assert mixed.shape == values.shape
    assert torch.equal(mixed.flatten().sort().values, values.flatten().sort().values)
    assert torch.equal(mixed, shuffled(values, 3))
    assert not torch.equal(mixed, values)
    assert not torch.equal(mixed, shuffled(values, 4))
