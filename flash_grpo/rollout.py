"""Rollouts: ODE prefix, one stochastic branch step, ODE finish. Prompts in; latents and recorded transitions out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from flash_grpo.config import RunConfig
from flash_grpo.kernel import Transition, adams_velocity, log_density, ode_step, transition_mean
from flash_grpo.models.base import TextEmbeddings, VideoModel, network_cost
from flash_grpo.noise import NoiseSpace, gaussian, noise_seed
from flash_grpo.schedule import SigmaGrid, branch_transition, rectification_weights, sigma_grid


@dataclass(frozen=True)
class Sampler:
    """How rollouts are drawn: grid, transitions and weights of the candidate steps, noise space."""

    grid: SigmaGrid
    transitions: dict[int, Transition]
    weights: dict[int, float]
    space: NoiseSpace
    guidance: float
    solver: str
    shared: bool
    group_size: int
    batch: int
    seed: int
    latent_shape: tuple[int, int, int, int]


def build_sampler(config: RunConfig, model: VideoModel) -> Sampler:
    """The sampler of a run, on the grid of the model's own scheduler."""
    grid = sigma_grid(model.scheduler, config.sampling_steps, config.shift)
    candidates = config.candidates()
    transitions = {step: branch_transition(config.noise_level, grid, step, config.eta) for step in candidates}
    if config.rectify:
        weights = rectification_weights([transitions[step].gradient_scale for step in candidates])
    else:
        weights = [1.0] * len(candidates)
    space = NoiseSpace(config.branch_noise, config.lowpass_block)
    latent_shape = model.latent_shape(config.frames, config.height, config.width)
    space.check(latent_shape)
    return Sampler(
        grid=grid,
        transitions=transitions,
        weights=dict(zip(candidates, weights, strict=True)),
        space=space,
        guidance=config.guidance_scale,
        solver=config.solver,
        shared=config.initial_noise == "shared",
        group_size=config.group_size,
        batch=config.rollout_batch,
        seed=config.seed,
        latent_shape=latent_shape,
    )


@dataclass(frozen=True)
class GroupPlan:
    """One group to roll out: its global index in the update, its prompt's index, its branch step (None: pure ODE)."""

    group: int
    prompt: int
    branch_step: int | None


@dataclass
class GroupRollout:
    """What one group left behind: final latents [K, ...] and the transition that is trained.

    `state` is [1, ...] with a shared prefix, else [K, ...]; `next_states` [K, ...]; `old_log_density` [K].
    """

    plan: GroupPlan
    latents: torch.Tensor
    state: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    next_states: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    old_log_density: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    previous_velocity: torch.Tensor | None = None


class Meter:
    """Counts network evaluations: `nfe` forwards alone (a guidance pair counts two), `cost` with backwards.

    `after_forward` is called after each forward; it may raise to interrupt the work. Where `processes` of them share
    the work evenly, each counts for all.
    """

    def __init__(self, after_forward: Callable[[], None] = lambda: None, processes: int = 1) -> None:
        self.processes = processes
        self.nfe = 0
        self.cost = 0.0
        self._after_forward = after_forward

    def forward(self, evaluations: int) -> None:
        """Count forwards."""
        self.nfe += evaluations * self.processes
        self.cost += evaluations * self.processes
        self._after_forward()

    def backward(self, evaluations: int, ratio: float) -> None:
        """Count backwards, each worth `ratio` forwards."""
        self.cost += evaluations * self.processes * ratio


def initial_latents(sampler: Sampler, update: int, plan: GroupPlan) -> torch.Tensor:
    """Starting noise of a group: [1, ...] if shared or purely deterministic, else [K, ...]."""
    members = 1 if sampler.shared else sampler.group_size
    seeds = [noise_seed(sampler.seed, update, plan.group, member, "initial") for member in range(members)]
    return torch.stack([gaussian(sampler.latent_shape, seed) for seed in seeds])


@torch.no_grad()
def roll_out(
    model: VideoModel,
    sampler: Sampler,
    embeddings: TextEmbeddings,
    plans: Sequence[GroupPlan],
    update: int,
    meter: Meter,
    initial: Sequence[torch.Tensor] | None = None,
) -> list[GroupRollout]:
    """Roll out the groups together, all active states of a denoising step in shared forwards.

    `initial` overrides the seeded starting noise per group. The last dimension order is [C, T, h, w].
    """
    start = initial if initial is not None else [initial_latents(sampler, update, plan) for plan in plans]
    groups = [GroupRollout(plan, noise.to(model.device)) for plan, noise in zip(plans, start, strict=True)]
    for step in range(sampler.grid.steps):
        velocities = _velocities(model, sampler, embeddings, groups, step, meter)
        for rollout, velocity in zip(groups, velocities, strict=True):
            if rollout.plan.branch_step == step:
                _branch(sampler, rollout, velocity, step, update)
            else:
                _advance(sampler, rollout, velocity, step)
    return groups


def _velocities(
    model: VideoModel,
    sampler: Sampler,
    embeddings: TextEmbeddings,
    groups: Sequence[GroupRollout],
    step: int,
    meter: Meter,
) -> tuple[torch.Tensor, ...]:
    sizes = [len(g.latents) for g in groups]
    latents = torch.cat([g.latents for g in groups])
    prompts = [g.plan.prompt for g, size in zip(groups, sizes, strict=True) for _ in range(size)]
    parts = []
    for first in range(0, len(latents), sampler.batch):
        part = latents[first : first + sampler.batch]
        timesteps = torch.full((len(part),), sampler.grid.timesteps[step], device=model.device)
        text = embeddings.pick(prompts[first : first + sampler.batch])
        parts.append(model.velocity(part, timesteps, text, embeddings.negative, sampler.guidance))
        meter.forward(network_cost(len(part), sampler.guidance))
    return torch.split(torch.cat(parts), sizes)


def _branch(sampler: Sampler, rollout: GroupRollout, velocity: torch.Tensor, step: int, update: int) -> None:
    """The one stochastic step; a shared state fans out into the whole group."""
    transition = sampler.transitions[step]
    mean = transition_mean(transition, rollout.latents, velocity)
    group = rollout.plan.group
    seeds = [noise_seed(sampler.seed, update, group, member, "branch") for member in range(sampler.group_size)]
    noise = torch.stack([sampler.space.sample(sampler.latent_shape, seed) for seed in seeds]).to(mean.device)
    rollout.state = rollout.latents
    rollout.next_states = mean + transition.std * noise
    rollout.old_log_density = log_density(transition, sampler.space.reduce(rollout.next_states - mean))
    rollout.latents = rollout.next_states
    rollout.previous_velocity = None


def _advance(sampler: Sampler, rollout: GroupRollout, velocity: torch.Tensor, step: int) -> None:
    sigmas = sampler.grid.sigmas
    if sampler.solver == "adams2":
        previous_step = sigmas[step] - sigmas[step - 1] if step else 1.0
        effective = adams_velocity(velocity, rollout.previous_velocity, sigmas[step + 1] - sigmas[step], previous_step)
        rollout.previous_velocity = velocity
    else:
        effective = velocity
    rollout.latents = ode_step(rollout.latents, effective, sigmas[step], sigmas[step + 1])
