"""What one process of a run has in hand at once, and the network evaluations a run spends. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flash_grpo.config import RunConfig
from flash_grpo.errors import InputError
from flash_grpo.planning.architecture import Pipeline
from flash_grpo.schedule import draw_step


@dataclass(frozen=True)
class Workload:
    """What one process computes at once; `pair` is 2 under classifier-free guidance, else 1."""

    groups: int
    group_size: int
    states_at_once: int
    forward_batch: int
    replay_states: int
    replay_members: int
    micro_batches: int
    evaluation_batch: int
    decode_batch: int
    pair: int
    evaluation_pair: int
    shared: bool
    latent_shape: tuple[int, int, int, int]
    tokens: int
    text_tokens: int
    pixels: int
    frames: int

    @property
    def latent_elements(self) -> int:
        """Elements of one video's latents."""
        channels, frames, height, width = self.latent_shape
        return channels * frames * height * width


def workload(config: RunConfig, pipeline: Pipeline, devices: int, evaluated: int) -> Workload:
    """The work of one of `devices` processes; `evaluated` is the size of the larger evaluation set."""
    if config.prompts_per_update % devices:
        raise InputError(
            f"prompts_per_update {config.prompts_per_update} does not divide among {devices} processes; "
            f"use a multiple of {devices}"
        )
    groups, members = config.prompts_per_update // devices, config.group_size
    shared = config.initial_noise == "shared"
    shape = pipeline.latent_shape(config.frames, config.height, config.width)
    patch = pipeline.denoiser.patch
    sizes = micro_batch_states(groups, members, config.replay_batch, shared)
    states = min(groups, max(1, config.rollout_batch // members)) * members
    return Workload(
        groups=groups,
        group_size=members,
        states_at_once=states,
        forward_batch=min(states, config.rollout_batch),
        replay_states=max(sizes),
        replay_members=max(sizes) * (members if shared else 1),
        micro_batches=len(sizes),
        evaluation_batch=min(config.rollout_batch, config.decode_batch * 4, -(-evaluated // devices)),
        decode_batch=config.decode_batch,
        pair=2 if config.guidance_scale > 1 else 1,
        evaluation_pair=2 if config.deployment_guidance() > 1 else 1,
        shared=shared,
        latent_shape=shape,
        tokens=(shape[1] // patch[0]) * (shape[2] // patch[1]) * (shape[3] // patch[2]),
        text_tokens=config.max_sequence_length,
        pixels=config.height * config.width,
        frames=config.frames,
    )


def micro_batch_states(groups: int, members: int, batch: int, shared: bool) -> list[int]:
    """States of each forward of a replay, cut as `replay.micro_batches` cuts them."""
    units = [1] * groups if shared else [min(batch, members - first) for first in range(0, members, batch)] * groups
    sizes = [0]
    for unit in units:
        if sizes[-1] and sizes[-1] + unit > batch:
            sizes.append(0)
        sizes[-1] += unit
    return sizes


def backward_cost(config: RunConfig) -> float:
    """Time of a backward in forwards, as `WanModel.backward_cost` has it."""
    return (0.7 if config.adapter == "lora" else 1.7) + (0.8 if config.gradient_checkpointing else 0.0)


@dataclass(frozen=True)
class Spending:
    """Network evaluations over all devices, counted as `rollout.Meter` does: forwards alone, and with backwards."""

    nfe: int
    cost: float

    def __add__(self, other: Spending) -> Spending:
        return Spending(self.nfe + other.nfe, self.cost + other.cost)

    def __mul__(self, times: int) -> Spending:
        return Spending(self.nfe * times, self.cost * times)


def rollout_spending(config: RunConfig, update: int) -> Spending:
    """One update's rollouts; where the prefix is shared it depends on the branch steps drawn. Counted from 0."""
    groups, candidates = config.prompts_per_update, config.candidates()
    steps = [draw_step(config.seed, update, group, groups, candidates) for group in range(groups)]
    nfe = _pair(config.guidance_scale) * sum(_states(config, step) for step in steps)
    return Spending(nfe, float(nfe))


def all_rollouts_spending(config: RunConfig) -> Spending:
    """All updates' rollouts. Every whole deal of branch steps holds each candidate once, so only the last is drawn."""
    candidates, groups = config.candidates(), config.prompts_per_update
    deals, rest = divmod(config.updates * groups, len(candidates))
    states = deals * sum(_states(config, step) for step in candidates)
    for slot in range(deals * len(candidates), deals * len(candidates) + rest):
        update, group = divmod(slot, groups)
        states += _states(config, draw_step(config.seed, update, group, groups, candidates))
    nfe = _pair(config.guidance_scale) * states
    return Spending(nfe, float(nfe))


def _states(config: RunConfig, branch_step: int) -> int:
    """Denoiser inputs of one group's rollout: one state up to the branch where it is shared, then all."""
    steps, members = config.sampling_steps, config.group_size
    if config.initial_noise == "independent":
        return steps * members
    return branch_step + 1 + (steps - branch_step - 1) * members


def replay_spending(config: RunConfig) -> Spending:
    """One update's replay: forwards, backwards, and under a KL term the base model's forwards, per inner update."""
    states = config.prompts_per_update * (1 if config.initial_noise == "shared" else config.group_size)
    evaluations = _pair(config.guidance_scale) * states * config.inner_updates
    nfe = evaluations * (2 if config.kl_weight > 0 else 1)
    return Spending(nfe, nfe + evaluations * backward_cost(config))


def evaluation_spending(config: RunConfig, videos: int) -> Spending:
    """Deploying `videos` videos."""
    nfe = videos * config.evaluation_steps * _pair(config.deployment_guidance())
    return Spending(nfe, float(nfe))


def validations(config: RunConfig) -> int:
    """Validations of a run that goes through all its updates; the base model's is not among them."""
    if config.evaluate_every == 0:
        return 1
    return -(-config.updates // config.evaluate_every)


def evaluated_videos(config: RunConfig, validation: int, heldout: int) -> int:
    """Videos of all evaluations: both sets before, the validations, the held-out set at the end."""
    return validation * (1 + validations(config)) + 2 * heldout


def run_spending(config: RunConfig, validation: int, heldout: int) -> Mapping[str, Spending]:
    """The whole run by phase, for evaluation sets of these sizes."""
    return {
        "rollout": all_rollouts_spending(config),
        "replay": replay_spending(config) * config.updates,
        "evaluate": evaluation_spending(config, evaluated_videos(config, validation, heldout)),
    }


def _pair(guidance: float) -> int:
    return 2 if guidance > 1 else 1
