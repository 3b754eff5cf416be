"""Optimiser, learning-rate course and averaged weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from flash_grpo.config import RunConfig
from flash_grpo.optimizer import WeightAverage, build_optimizer, learning_rate


def config(**values: Any) -> RunConfig:
    return RunConfig(**{"learning_rate": 1.0, "updates": 20, **values})


def test_the_optimizers_take_the_configured_steps() -> None:
    for name in ("sgd", "adamw"):
        weight = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
        optimizer = build_optimizer(config(optimizer=name, learning_rate=0.1, weight_decay=0.0), [weight])
        weight.grad = torch.tensor([0.5, -4.0])
        optimizer.step()
        # Adam's first step has the size of the rate whatever the gradient; SGD's is proportional to it.
        step = torch.tensor([0.05, -0.4]) if name == "sgd" else torch.tensor([0.1, -0.1])
        assert torch.allclose(weight.detach(), torch.tensor([1.0, -2.0]) - step, atol=1e-5)


def test_adamw_has_the_configured_moments_and_decay() -> None:
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer = build_optimizer(config(beta1=0.8, beta2=0.95, weight_decay=0.01), [weight])
    group = optimizer.param_groups[0]
    assert (group["betas"], group["weight_decay"]) == ((0.8, 0.95), 0.01)


def test_warm_up_is_linear_and_then_the_rate_is_constant() -> None:
    rates = [learning_rate(config(warmup_updates=4), update) for update in range(8)]
    assert rates == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.0, 1.0])
    assert learning_rate(config(), 0) == 1.0


def test_the_cosine_course_falls_to_a_tenth() -> None:
    course = config(learning_rate_schedule="cosine")
    rates = [learning_rate(course, update) for update in range(21)]
    assert rates[0] == 1.0
    assert rates[10] == pytest.approx(0.55)
    assert rates[20] == pytest.approx(0.1)
    assert rates == sorted(rates, reverse=True)


def test_the_average_follows_its_formula() -> None:
    weight = torch.zeros(3)
    average = WeightAverage({"w": weight}, decay=0.9)
    expected = 0.0
    for count in range(200):
        weight += 1.0
        average.step({"w": weight}, count)
        decay = min((1 + count) / (10 + count), 0.9)
        expected = decay * expected + (1 - decay) * float(weight[0])
        assert average.weights["w"].tolist() == pytest.approx([expected] * 3, rel=1e-5)
    assert float(weight[0]) - expected == pytest.approx(9, rel=0.01)  # lags decay / (1 - decay) steps behind


def test_averaged_weights_visit_and_leave() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    average = WeightAverage({"w": weight}, decay=0.5)
    with torch.no_grad():
        weight.fill_(5.0)
    with average.swapped_in({"w": weight}):
        assert weight.tolist() == [1.0, 1.0]
    assert weight.tolist() == [5.0, 5.0]
    with pytest.raises(RuntimeError), average.swapped_in({"w": weight}):
        raise RuntimeError
    assert weight.tolist() == [5.0, 5.0]
    assert average.weights["w"].tolist() == [1.0, 1.0]
