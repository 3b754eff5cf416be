"""Sigma grids, noise levels, rectification weights and the seeded draws."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from diffusers import DDPMScheduler, FlowMatchEulerDiscreteScheduler, UniPCMultistepScheduler

from flash_grpo.errors import InputError
from flash_grpo.models.pocket.architecture import build_scheduler
from flash_grpo.schedule import (
    NoiseRule,
    branch_transition,
    describe_schedule,
    draw_prompts,
    draw_step,
    noise_level,
    rectification_weights,
    scheduler_with_shift,
    sigma_grid,
)

CASE = Path(__file__).parent / "cases" / "rectification_wan_shift3_20steps.json"
RULES: tuple[NoiseRule, ...] = ("flash", "flow", "dance", "cps")


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    case: dict[str, Any] = json.loads(CASE.read_text(encoding="utf-8"))
    return case


def inverse_lambdas(scheduler: Any, eta: float | None = None, steps: int = 20, shift: float = 3.0) -> list[float]:
    grid = sigma_grid(scheduler, steps, shift)
    return [1 / branch_transition("flash", grid, step, eta).gradient_scale for step in range(10)]


def agrees(golden: dict[str, Any], values: list[float]) -> bool:
    wanted = golden["inverse_lambda"]
    return all(
        math.isclose(values[step], wanted[step], rel_tol=golden["relative_tolerance"]) for step in golden["steps"]
    )


def test_the_golden_table_is_reproduced(golden: dict[str, Any]) -> None:
    assert agrees(golden, inverse_lambdas(build_scheduler()))


def test_the_golden_weights_are_reproduced(golden: dict[str, Any]) -> None:
    rows = describe_schedule("unipc", 20, 3.0, "flash", None, golden["steps"])
    mean = statistics.mean(golden["inverse_lambda"])
    wanted = [value / mean for value in golden["inverse_lambda"]]
    assert [rows[step].weight for step in golden["steps"]] == pytest.approx(wanted, rel=golden["relative_tolerance"])
    assert [row.weight for row in rows[10:]] == [None] * 10
    assert [round(row.timestep) for row in rows[:10]] == pytest.approx(golden["timesteps"], abs=1)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: inverse_lambdas(build_scheduler(), shift=5.0),
        lambda: inverse_lambdas(FlowMatchEulerDiscreteScheduler()),
        lambda: inverse_lambdas(build_scheduler(), eta=1.1),
        lambda: inverse_lambdas(build_scheduler(), steps=21),
    ],
    ids=["shift 5", "euler grid", "eta 1.1", "21 steps"],
)
def test_the_golden_table_is_missed_by_a_wrong_schedule(golden: dict[str, Any], wrong: Any) -> None:
    assert not agrees(golden, wrong())


def test_late_steps_are_drowned_without_rectification() -> None:
    grid = sigma_grid(build_scheduler(), 20, 3.0)
    scales = [branch_transition("flash", grid, step).gradient_scale for step in range(20)]
    assert max(scales) / min(scales) == pytest.approx(22, rel=0.05)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("scheduler", ["unipc", "euler"])
@pytest.mark.parametrize("steps", [6, 20, 50])
def test_any_step_count_and_shift_has_a_finite_lambda(rule: NoiseRule, scheduler: Any, steps: int) -> None:
    for shift in (1.0, 2.0, 3.0, 5.0, 7.0):
        rows = describe_schedule(scheduler, steps, shift, rule, None, None)
        weights = [row.weight for row in rows if row.weight is not None]
        assert len(weights) == steps // 2
        assert statistics.mean(weights) == pytest.approx(1)
        for row in rows[: steps // 2]:
            assert row.lambda_ is not None and math.isfinite(row.lambda_) and row.lambda_ > 0
            assert row.inverse_lambda == pytest.approx(1 / row.lambda_)


def test_noise_levels_follow_their_formulas() -> None:
    sigmas = [1.0, 0.9, 0.6, 0.3, 0.0]
    for step, sigma in enumerate(sigmas[:-1]):
        assert noise_level("flash", sigmas, step) == pytest.approx(0.9 * sigma)
        assert noise_level("dance", sigmas, step, 0.25) == 0.25
        assert noise_level("cps", sigmas, step, 0.5) == pytest.approx(sigmas[step + 1] * math.sin(math.pi / 4))
    assert noise_level("flow", sigmas, 0, 1.0) == pytest.approx(math.sqrt(1.0 / 0.1))  # 1 - sigma would divide by zero
    assert noise_level("flow", sigmas, 2, 0.7) == pytest.approx(0.7 * math.sqrt(0.6 / 0.4))
    with pytest.raises(InputError, match="eta of the cps rule lies in 0..1, got 1.5"):
        noise_level("cps", sigmas, 0, 1.5)


def test_weights_are_inverse_and_average_to_one() -> None:
    weights = rectification_weights([1.0, 2.0, 4.0])
    assert weights == pytest.approx([12 / 7, 6 / 7, 3 / 7])


def test_the_shift_is_applied_once_and_the_pipelines_own_is_the_default() -> None:
    own = build_scheduler()
    assert sigma_grid(own, 8) == sigma_grid(own, 8, 3.0)
    assert sigma_grid(own, 8, 1.0) != sigma_grid(own, 8, 3.0)
    assert own.config.flow_shift == 3.0 and scheduler_with_shift(own, 5.0).config.flow_shift == 5.0
    euler = sigma_grid(FlowMatchEulerDiscreteScheduler(shift=3.0), 4)
    plain = sigma_grid(FlowMatchEulerDiscreteScheduler(shift=1.0), 4)
    assert euler.sigmas[:1] == (1.0,) and euler.sigmas[-1] == 0.0
    assert euler.sigmas[1] > plain.sigmas[1]


@pytest.mark.parametrize("scheduler", [UniPCMultistepScheduler(), DDPMScheduler()], ids=["unipc", "ddpm"])
def test_a_scheduler_of_another_kind_is_refused(scheduler: Any) -> None:
    with pytest.raises(InputError, match="use a flow-matching scheduler"):
        sigma_grid(scheduler, 10)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"steps": 1}, "steps must be at least 2"),
        ({"shift": 0.0}, "shift must be a positive number"),
        ({"shift": math.inf}, "shift must be a positive number"),
        ({"candidates": [3, 20]}, "candidate steps must lie in 0..19, got \\[20\\]"),
        ({"candidates": []}, "candidate steps must lie in 0..19"),
        ({"candidates": [19], "noise_level": "cps"}, "carry no noise under the cps rule"),
    ],
)
def test_a_schedule_that_cannot_be_is_one_sentence(values: dict[str, Any], sentence: str) -> None:
    plain: dict[str, Any] = {
        "scheduler": "unipc", "steps": 20, "shift": 3.0, "noise_level": "flash", "eta": None, "candidates": None
    }  # fmt: skip
    with pytest.raises(InputError, match=sentence):
        describe_schedule(**{**plain, **values})


def drawn(seed: int, updates: int, groups: int, candidates: list[int]) -> list[int]:
    return [draw_step(seed, u, g, groups, candidates) for u in range(updates) for g in range(groups)]


@pytest.mark.parametrize("groups", [1, 3, 5, 8, 24])
def test_every_deal_holds_each_candidate_once(groups: int) -> None:
    """Also when an update has fewer groups than there are candidates: the deal goes on over updates."""
    candidates = [0, 2, 3, 5, 8]
    steps = drawn(0, 40, groups, candidates)
    for start in range(0, len(steps) - 4, 5):
        assert sorted(steps[start : start + 5]) == candidates
    counts = Counter(steps)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_the_draw_is_pure_and_seeded() -> None:
    candidates = list(range(10))
    one = drawn(1, 10, 6, candidates)
    assert one == drawn(1, 10, 6, candidates) == drawn(1, 10, 6, candidates[::-1])
    assert one != drawn(2, 10, 6, candidates)
    deals = {tuple(one[start : start + 10]) for start in range(0, 60, 10)}
    assert len(deals) > 4  # permutations differ from deal to deal
    assert draw_step(1, 7, 3, 6, candidates) == one[7 * 6 + 3]  # no state: a resumed run draws the same


def test_prompts_are_dealt_once_per_round() -> None:
    slots = [index for update in range(20) for index in draw_prompts(3, update, 7, 10)]
    for start in range(0, 140, 10):
        assert sorted(slots[start : start + 10]) == list(range(10))
    assert draw_prompts(3, 5, 7, 10) == slots[35:42]
    assert slots != [index for update in range(20) for index in draw_prompts(4, update, 7, 10)]
    assert slots[:10] != slots[10:20]
