"""An adapter limited to some steps acts in these and in no others, as strongly as on the weights."""

from __future__ import annotations

import pytest
import torch

from custom_nodes.comfyui_flash_grpo.logic.problem import Problem
from custom_nodes.comfyui_flash_grpo.logic.step_range import Delta, active

SIGMAS = [1.0, 0.9, 0.7, 0.4, 0.0]


@pytest.mark.parametrize(
    ("steps", "boundary", "wanted"),
    [
        ("all", 0.5, [True] * 4),
        ("early", 0.5, [True, True, False, False]),
        ("late", 0.5, [False, False, True, True]),
        ("early", 0.25, [True, False, False, False]),
        ("late", 0.0, [True] * 4),
        ("late", 1.0, [False] * 4),
        ("early", 1.0, [True] * 4),
    ],
)
def test_which_steps_are_early_and_which_late(steps: str, boundary: float, wanted: list[bool]) -> None:
    # Between two levels of the schedule, where some samplers look as well, the nearer one counts.
    assert [active(steps, boundary, sigma - 0.001, SIGMAS) for sigma in SIGMAS[:-1]] == wanted


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))


@torch.no_grad()
def test_outputs_are_those_of_patched_weights_while_it_acts_and_as_before_afterwards() -> None:
    ours, patched, x = network(), network(), torch.randn(3, 8)
    pairs = {"0": (torch.randn(2, 8), torch.randn(16, 2)), "2": (torch.randn(2, 16), torch.randn(4, 2))}
    for name, (a, b) in pairs.items():
        patched.get_submodule(name).weight.add_(b @ a)
    before = ours(x)
    delta = Delta(pairs)
    for _ in range(2):
        with delta.added(ours):
            torch.testing.assert_close(ours(x), patched(x))
        assert torch.equal(ours(x), before)
    assert float((patched(x) - before).abs().max()) > 0.1
    with pytest.raises(ZeroDivisionError), delta.added(ours):
        raise ZeroDivisionError
    assert torch.equal(ours(x), before)


def test_a_layer_that_is_not_linear_is_refused() -> None:
    convolution = torch.nn.Sequential(torch.nn.Conv3d(1, 1, 1))
    with (
        pytest.raises(Problem, match="set steps to all"),
        Delta({"0": (torch.ones(1), torch.ones(1))}).added(convolution),
    ):
        pass
