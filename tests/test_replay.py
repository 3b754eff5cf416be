"""Replay: one gradient per shared group, exact; accumulation, drift and KL."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from flash_grpo.models.wan import WanModel
from flash_grpo.replay import ReplayReport, ReplaySettings, micro_batches, replay
from flash_grpo.rollout import GroupPlan, GroupRollout, Meter, Sampler, build_sampler, roll_out
from tests.tiny import config_for, embed, gradient, open_model, perturb, relative_gap

PLANS = [GroupPlan(0, 0, 1), GroupPlan(1, 1, 0), GroupPlan(2, 2, 2), GroupPlan(3, 3, 1)]
MEMBERS = 4
ADVANTAGES = torch.randn((len(PLANS), MEMBERS), generator=torch.Generator().manual_seed(8))
SETTINGS = ReplaySettings(batch=8, clip=1e-3, kl_weight=0.0, backward_cost=2.0)


class Scene:
    """A model with a small random adapter and four groups it rolled out."""

    def __init__(self, folder: Path, adapter: float = 0.05, **changes: Any) -> None:
        self.model: WanModel = open_model(folder, adapter)
        self.text = embed(self.model)
        self.sampler: Sampler = build_sampler(config_for(folder, group_size=MEMBERS, **changes), self.model)
        self.rollouts = roll_out(self.model, self.sampler, self.text, PLANS, 0, Meter())
        self.meter = Meter()

    def replay(
        self,
        rollouts: list[GroupRollout] | None = None,
        advantages: torch.Tensor = ADVANTAGES,
        settings: ReplaySettings = SETTINGS,
        groups: int = len(PLANS),
    ) -> ReplayReport:
        return replay(
            self.model,
            self.sampler,
            self.text,
            self.rollouts if rollouts is None else rollouts,
            advantages,
            groups,
            settings,
            lambda loss, last: loss.backward(),
            self.meter,
        )

    def gradient(self, *arguments: Any, **named: Any) -> torch.Tensor:
        self.replay(*arguments, **named)
        return gradient(self.model)


def one_by_one(rollouts: list[GroupRollout]) -> list[GroupRollout]:
    """Every member as a group of its own: what replaying K times means."""
    return [
        replace(
            rollout,
            state=rollout.state[member : member + 1] if len(rollout.state) > 1 else rollout.state,
            next_states=rollout.next_states[member : member + 1],
            old_log_density=rollout.old_log_density[member : member + 1],
        )
        for rollout in rollouts
        for member in range(MEMBERS)
    ]


@pytest.mark.parametrize("noise", ["white", "lowpass"])
@pytest.mark.parametrize("rule", ["flow", "cps"])
def test_the_shared_gradient_is_the_sum_of_separate_replays(tiny_folder: Path, noise: str, rule: str) -> None:
    """Also off-policy, with the clip silencing some members and the rectification weights at work."""
    scene = Scene(tiny_folder, branch_noise=noise, noise_level=rule)
    separate = {"rollouts": one_by_one(scene.rollouts), "advantages": ADVANTAGES.view(-1, 1), "groups": 16}
    assert relative_gap(scene.gradient(), scene.gradient(**separate)) < 1e-5
    perturb(scene.model, 0.02)
    clip = replace(SETTINGS, clip=1e-4)
    report = scene.replay(settings=clip)
    assert 0.1 < report.clipped < 0.9
    together = gradient(scene.model)
    assert relative_gap(together, scene.gradient(**separate, settings=clip)) < 1e-5
    # Negative control: without the clip, or with members' advantages exchanged, the gradient is another.
    assert relative_gap(together, scene.gradient(settings=replace(SETTINGS, clip=0.9))) > 1e-2
    assert relative_gap(together, scene.gradient(advantages=ADVANTAGES.roll(1, 1), settings=clip)) > 1e-2


def test_a_shared_group_costs_one_forward_and_backward(tiny_folder: Path) -> None:
    scene = Scene(tiny_folder)
    scene.replay()
    assert scene.meter.nfe == 2 * len(PLANS)  # a guidance pair counts two
    assert scene.meter.cost == 3 * scene.meter.nfe
    scene.meter = Meter()
    scene.replay(rollouts=one_by_one(scene.rollouts), advantages=ADVANTAGES.view(-1, 1), groups=16)
    assert scene.meter.nfe == 2 * len(PLANS) * MEMBERS
    scene.meter = Meter()
    scene.replay(settings=replace(SETTINGS, kl_weight=0.1))
    assert (scene.meter.nfe, scene.meter.cost) == (4 * len(PLANS), 8 * len(PLANS))


@pytest.mark.parametrize("initial", ["shared", "independent"])
def test_the_gradient_does_not_depend_on_the_replay_batch(tiny_folder: Path, initial: str) -> None:
    scene = Scene(tiny_folder, initial_noise=initial)
    whole = scene.gradient(settings=replace(SETTINGS, batch=64))
    for batch in (1, 3, 8):
        assert relative_gap(scene.gradient(settings=replace(SETTINGS, batch=batch)), whole) < 1e-5
    # Negative control: the mean is over all groups, not over those of a forward.
    assert relative_gap(scene.gradient(groups=2), whole) > 0.5


def test_micro_batches_hold_at_most_a_batch_of_states(tiny_folder: Path) -> None:
    scene = Scene(tiny_folder, initial_noise="independent")
    for batch in (1, 3, 8, 64):
        parts = list(micro_batches(scene.rollouts, ADVANTAGES, batch))
        assert all(sum(unit.states for unit in part) <= batch for part in parts)
        assert sum(unit.share(len(PLANS)) for part in parts for unit in part) == pytest.approx(1)


@pytest.mark.parametrize("initial", ["shared", "independent"])
@pytest.mark.parametrize("noise", ["white", "lowpass"])
def test_before_an_update_there_is_no_drift(tiny_folder: Path, initial: str, noise: str) -> None:
    scene = Scene(tiny_folder, initial_noise=initial, branch_noise=noise)
    report = scene.replay()
    assert report.drift < 1e-5
    assert report.clipped == 0.0
    perturb(scene.model, 0.02)
    assert scene.replay().drift > 1e-4


def test_drift_reveals_a_replay_of_something_else(tiny_folder: Path) -> None:
    """Negative controls: next states, prompts or branch steps of another group, another noise or guidance."""
    scene = Scene(tiny_folder)
    first, second, third, fourth = scene.rollouts
    swapped = [
        replace(first, next_states=fourth.next_states),
        second,
        third,
        replace(fourth, next_states=first.next_states),
    ]
    prompts = [replace(r, plan=replace(r.plan, prompt=(r.plan.prompt + 1) % 4)) for r in scene.rollouts]
    steps = [replace(r, plan=replace(r.plan, branch_step=(r.plan.branch_step or 0) // 2 + 1)) for r in scene.rollouts]
    for wrong in (swapped, prompts, steps):
        assert scene.replay(rollouts=wrong).drift > 1e-3
    scene.sampler = replace(scene.sampler, guidance=scene.sampler.guidance + 0.2)
    assert scene.replay().drift > 1e-4


def test_the_report_holds_means_over_all_rollouts(tiny_folder: Path) -> None:
    scene = Scene(tiny_folder)
    report = scene.replay()
    weights = torch.tensor([scene.sampler.weights[plan.branch_step or 0] for plan in PLANS])
    assert report.loss == pytest.approx(-float((weights[:, None] * ADVANTAGES).mean()), rel=1e-3)
    assert report.kl == 0.0


def test_the_kl_gradient_is_alive_with_an_adapter_and_zero_without(tiny_folder: Path) -> None:
    settings = replace(SETTINGS, kl_weight=1.0)
    nothing = torch.zeros_like(ADVANTAGES)
    scene = Scene(tiny_folder, adapter=0.05)
    report = scene.replay(advantages=nothing, settings=settings)
    assert report.kl > 1e-5
    pull = gradient(scene.model)
    assert float(pull.norm()) > 1e-5
    # It pulls back: a small step against it lowers the divergence.
    with torch.no_grad():
        start = 0
        for _, weight in scene.model.trainable():
            part = pull[start : start + weight.numel()].view_as(weight)
            weight.sub_(1e-3 * part / pull.norm())
            start += weight.numel()
    assert scene.replay(advantages=nothing, settings=settings).kl < report.kl
    gradient(scene.model)
    zero = Scene(tiny_folder, adapter=0.0)
    assert zero.replay(advantages=nothing, settings=settings).kl == 0.0
    assert float(gradient(zero.model).abs().max()) == 0.0


def test_the_kl_term_reaches_the_gradient_of_the_whole_loss(tiny_folder: Path) -> None:
    scene = Scene(tiny_folder, adapter=0.05)
    surrogate = scene.gradient()
    pull = scene.gradient(advantages=torch.zeros_like(ADVANTAGES), settings=replace(SETTINGS, kl_weight=0.5))
    both = scene.gradient(settings=replace(SETTINGS, kl_weight=0.5))
    assert relative_gap(both, surrogate + pull) < 1e-4


def test_a_rollout_without_a_branch_cannot_be_replayed(tiny_folder: Path) -> None:
    scene = Scene(tiny_folder)
    plain = [replace(r, plan=replace(r.plan, branch_step=None)) for r in scene.rollouts]
    with pytest.raises(ValueError, match="nothing to replay"):
        scene.replay(rollouts=plain)
