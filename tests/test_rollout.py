"""Rollouts: the pipeline's own video without a branch, shared and independent groups, and what they cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, WanPipeline

from flash_grpo.errors import InputError
from flash_grpo.kernel import adams_velocity
from flash_grpo.models.base import TextEmbeddings
from flash_grpo.models.wan import WanModel
from flash_grpo.noise import noise_seed
from flash_grpo.rollout import GroupPlan, GroupRollout, Meter, Sampler, build_sampler, roll_out
from tests.tiny import CAPTIONS, NEGATIVE, config_for, embed, open_model, relative_gap

PLANS = [GroupPlan(0, 0, 1), GroupPlan(1, 1, 0), GroupPlan(2, 2, 2), GroupPlan(3, 3, 1)]
MEMBERS = 4


@pytest.fixture(scope="module")
def model(tiny_folder: Path) -> WanModel:
    return open_model(tiny_folder)


@pytest.fixture(scope="module")
def text(model: WanModel) -> TextEmbeddings:
    return embed(model)


def sampler_for(model: WanModel, folder: Path, **changes: Any) -> Sampler:
    return build_sampler(config_for(folder, group_size=MEMBERS, **changes), model)


def rolled(
    model: WanModel, sampler: Sampler, text: TextEmbeddings, plans: list[GroupPlan], update: int = 0
) -> list[GroupRollout]:
    return roll_out(model, sampler, text, plans, update, Meter())


def pipelines_latents(folder: Path, noise: torch.Tensor, guidance: float, shift: float, steps: int) -> torch.Tensor:
    """What diffusers' own pipeline makes of the noise with the flow Euler scheduler."""
    pipeline = WanPipeline.from_pretrained(folder, scheduler=FlowMatchEulerDiscreteScheduler(shift=shift))
    pipeline.set_progress_bar_config(disable=True)
    latents: torch.Tensor = pipeline(
        prompt=list(CAPTIONS[: len(noise)]),
        negative_prompt=[NEGATIVE] * len(noise),
        height=32,
        width=32,
        num_frames=5,
        num_inference_steps=steps,
        guidance_scale=guidance,
        latents=noise,
        max_sequence_length=24,
        output_type="latent",
    ).frames
    return latents


@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_without_a_branch_the_rollout_is_the_pipelines_own(tiny_folder: Path, guidance: float) -> None:
    model = open_model(tiny_folder)
    text = embed(model)
    model.scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    sampler = sampler_for(model, tiny_folder, guidance_scale=guidance)
    noise = torch.randn((3, *sampler.latent_shape), generator=torch.Generator().manual_seed(1))
    plans = [GroupPlan(group, group, None) for group in range(3)]
    done = roll_out(model, sampler, text, plans, 0, Meter(), initial=list(noise.split(1)))
    latents = torch.cat([rollout.latents for rollout in done])
    assert float((latents - pipelines_latents(tiny_folder, noise, guidance, 3.0, 6)).abs().max()) < 1e-4
    # Negative controls: other guidance, another shift, another step count.
    for other in ((guidance + 0.5, 3.0, 6), (guidance, 3.2, 6), (guidance, 3.0, 7)):
        assert float((latents - pipelines_latents(tiny_folder, noise, *other)).abs().max()) > 1e-2


def test_a_shared_group_starts_from_one_state(model: WanModel, text: TextEmbeddings, tiny_folder: Path) -> None:
    for rollout in rolled(model, sampler_for(model, tiny_folder), text, PLANS):
        assert rollout.state.shape == (1, 16, 2, 4, 4)
        assert rollout.next_states.shape == rollout.latents.shape == (MEMBERS, 16, 2, 4, 4)
        assert rollout.old_log_density.shape == (MEMBERS,)
        assert bool(torch.isfinite(rollout.latents).all())
        assert smallest_distance(rollout.next_states) > 1e-2
        assert smallest_distance(rollout.latents) > 1e-2


def test_an_independent_group_has_a_state_for_each_member(
    model: WanModel, text: TextEmbeddings, tiny_folder: Path
) -> None:
    sampler = sampler_for(model, tiny_folder, initial_noise="independent")
    for rollout in rolled(model, sampler, text, PLANS):
        assert rollout.state.shape == rollout.next_states.shape == (MEMBERS, 16, 2, 4, 4)
        assert smallest_distance(rollout.state) > 1e-1
        assert smallest_distance(rollout.next_states) > 1e-1


def smallest_distance(states: torch.Tensor) -> float:
    flat = states.flatten(1)
    gaps = torch.cdist(flat, flat) + 1e9 * torch.eye(len(flat))
    return float(gaps.min())


def test_groups_differ_and_updates_differ_and_all_is_seeded(
    model: WanModel, text: TextEmbeddings, tiny_folder: Path
) -> None:
    sampler = sampler_for(model, tiny_folder)
    same_prompt = [GroupPlan(0, 0, 1), GroupPlan(1, 0, 1)]  # a prompt drawn twice is two groups with noise of their own
    first, second = rolled(model, sampler, text, same_prompt)
    assert relative_gap(first.state, second.state) > 0.1
    again = rolled(model, sampler, text, same_prompt)
    assert torch.equal(first.latents, again[0].latents)
    later = rolled(model, sampler, text, same_prompt, update=1)
    assert relative_gap(first.state, later[0].state) > 0.1
    other = rolled(model, replace(sampler, seed=1), text, same_prompt)
    assert relative_gap(first.state, other[0].state) > 0.1


@pytest.mark.parametrize("guidance", [1.0, 3.0])
@pytest.mark.parametrize("initial", ["shared", "independent"])
def test_network_evaluations_follow_the_formula(
    model: WanModel, text: TextEmbeddings, tiny_folder: Path, initial: str, guidance: float
) -> None:
    sampler = sampler_for(model, tiny_folder, initial_noise=initial, guidance_scale=guidance)
    meter = Meter()
    roll_out(model, sampler, text, PLANS, 0, meter)
    steps, pair = sampler.grid.steps, 2 if guidance > 1 else 1
    branches = [plan.branch_step for plan in PLANS if plan.branch_step is not None]
    if initial == "shared":
        expected = sum(k + 1 + MEMBERS * (steps - k - 1) for k in branches)
    else:
        expected = len(PLANS) * MEMBERS * steps
    assert meter.nfe == pair * expected
    assert meter.cost == meter.nfe


@pytest.mark.parametrize("initial", ["shared", "independent"])
@pytest.mark.parametrize("solver", ["euler", "adams2"])
def test_a_group_does_not_depend_on_how_it_is_batched(
    model: WanModel, text: TextEmbeddings, tiny_folder: Path, initial: str, solver: str
) -> None:
    sampler = sampler_for(model, tiny_folder, initial_noise=initial, solver=solver)
    together = rolled(model, sampler, text, PLANS)
    narrow = rolled(model, replace(sampler, batch=3), text, PLANS)
    alone = [rolled(model, sampler, text, [plan])[0] for plan in reversed(PLANS)][::-1]
    for one, two, three in zip(together, narrow, alone, strict=True):
        for other in (two, three):
            assert torch.allclose(one.latents, other.latents, rtol=1e-5, atol=1e-5)
            assert torch.allclose(one.old_log_density, other.old_log_density, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(together[0].latents, together[3].latents, atol=1e-1)


def by_hand(
    model: WanModel, sampler: Sampler, text: TextEmbeddings, plan: GroupPlan, start: torch.Tensor, forget: bool
) -> torch.Tensor:
    """One member's latents, step by step, with or without forgetting the solver's history at the branch."""
    sigmas, latents, previous = sampler.grid.sigmas, start, None
    for step, timestep in enumerate(sampler.grid.timesteps):
        velocity = model.velocity(
            latents, torch.tensor([timestep]), text.pick([plan.prompt]), text.negative, sampler.guidance
        )
        size = sigmas[step + 1] - sigmas[step]
        if step == plan.branch_step:
            kernel = sampler.transitions[step]
            noise = sampler.space.sample(sampler.latent_shape, noise_seed(sampler.seed, 0, plan.group, 0, "branch"))
            latents = kernel.state_coefficient * latents + kernel.velocity_coefficient * velocity + kernel.std * noise
            previous = None if forget else velocity
        else:
            earlier = sigmas[step] - sigmas[step - 1] if step else 1.0
            latents = latents + size * adams_velocity(velocity, previous, size, earlier)
            previous = velocity
    return latents


@torch.no_grad()
def test_the_second_order_solver_forgets_its_history_at_the_branch(
    model: WanModel, text: TextEmbeddings, tiny_folder: Path
) -> None:
    sampler = sampler_for(model, tiny_folder, solver="adams2")
    start = torch.randn((1, *sampler.latent_shape), generator=torch.Generator().manual_seed(2))
    plan = PLANS[0]
    done = roll_out(model, sampler, text, [plan], 0, Meter(), initial=[start])[0]
    expected = by_hand(model, sampler, text, plan, start, forget=True)
    assert torch.allclose(done.latents[:1], expected, atol=1e-5)
    assert not torch.allclose(by_hand(model, sampler, text, plan, start, forget=False), expected, atol=1e-3)


def test_weights_are_normalised_over_the_candidates_and_optional(model: WanModel, tiny_folder: Path) -> None:
    sampler = sampler_for(model, tiny_folder)
    assert sum(sampler.weights.values()) / 3 == pytest.approx(1)
    products = [sampler.weights[step] * sampler.transitions[step].gradient_scale for step in (0, 1, 2)]
    assert products == pytest.approx([products[0]] * 3)
    assert set(sampler_for(model, tiny_folder, rectify=False).weights.values()) == {1.0}


def test_lowpass_blocks_must_fit_the_latents(model: WanModel, tiny_folder: Path) -> None:
    with pytest.raises(InputError, match="lowpass_block 3 does not divide the latent size 4x4"):
        sampler_for(model, tiny_folder, branch_noise="lowpass", lowpass_block=3)
