"""Replay: recompute the velocities of recorded transitions and accumulate the update's gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from flash_grpo.models.base import TextEmbeddings, VideoModel, network_cost
from flash_grpo.objective import Terms, group_loss
from flash_grpo.rollout import GroupRollout, Meter, Sampler


@dataclass(frozen=True)
class Unit:
    """Members `first` to `last` of one group, replayed from `states` branch states."""

    rollout: GroupRollout
    advantage: torch.Tensor
    first: int
    last: int
    states: int

    def share(self, groups: int) -> float:
        """This unit's part of the mean over all rollouts of the update."""
        return (self.last - self.first) / (len(self.rollout.next_states) * groups)


@dataclass
class ReplayReport:
    """What a replay measured: loss, largest |log-ratio|, share of clipped rollouts, mean KL (None if not computed)."""

    loss: float = 0.0
    drift: float = 0.0
    clipped: float = 0.0
    kl: float = 0.0

    @classmethod
    def total(cls, parts: Sequence[ReplayReport]) -> ReplayReport:
        """The report over all processes, from each one's own: what is a share of the update's mean adds up."""
        return cls(
            loss=sum(part.loss for part in parts),
            drift=max(part.drift for part in parts),
            clipped=sum(part.clipped for part in parts),
            kl=sum(part.kl for part in parts),
        )


def _units(rollouts: Sequence[GroupRollout], advantages: torch.Tensor, batch: int) -> Iterator[Unit]:
    for rollout, advantage in zip(rollouts, advantages, strict=True):
        members = len(rollout.next_states)
        if len(rollout.state) == 1:
            yield Unit(rollout, advantage, 0, members, 1)
            continue
        for first in range(0, members, batch):
            last = min(first + batch, members)
            yield Unit(rollout, advantage[first:last], first, last, last - first)


def micro_batches(rollouts: Sequence[GroupRollout], advantages: torch.Tensor, batch: int) -> Iterator[list[Unit]]:
    """Cut the update into forwards of at most `batch` states; a shared group is one state, never cut."""
    current: list[Unit] = []
    for unit in _units(rollouts, advantages, batch):
        if current and sum(u.states for u in current) + unit.states > batch:
            yield current
            current = []
        current.append(unit)
    if current:
        yield current


@dataclass(frozen=True)
class ReplaySettings:
    """The parts of the configuration the replay reads."""

    batch: int
    clip: float
    kl_weight: float
    backward_cost: float


def replay(
    model: VideoModel,
    sampler: Sampler,
    embeddings: TextEmbeddings,
    rollouts: Sequence[GroupRollout],
    advantages: torch.Tensor,
    groups: int,
    settings: ReplaySettings,
    backward: Callable[[torch.Tensor, bool], None],
    meter: Meter,
) -> ReplayReport:
    """Accumulate the gradient of the mean loss over the update's `groups` groups (all ranks together).

    `advantages` is [len(rollouts), K]. Groups with shared branch state need one forward and backward each, whatever K.
    `backward` is told whether the loss it gets is the last one: only then need processes exchange gradients.
    """
    report = ReplayReport()
    parts = list(micro_batches(rollouts, advantages, settings.batch))
    for index, units in enumerate(parts):
        loss = _replay_units(model, sampler, embeddings, units, groups, settings, meter, report)
        backward(loss, index == len(parts) - 1)
        states = sum(unit.states for unit in units)
        meter.backward(network_cost(states, sampler.guidance), settings.backward_cost)
    return report


def _replay_units(
    model: VideoModel,
    sampler: Sampler,
    embeddings: TextEmbeddings,
    units: Sequence[Unit],
    groups: int,
    settings: ReplaySettings,
    meter: Meter,
    report: ReplayReport,
) -> torch.Tensor:
    """The units' part of the loss, with gradient."""
    states = torch.cat([_state(unit) for unit in units])
    steps = [_step(unit) for unit in units for _ in range(unit.states)]
    timesteps = torch.tensor([sampler.grid.timesteps[step] for step in steps], device=states.device)
    text = embeddings.pick([unit.rollout.plan.prompt for unit in units for _ in range(unit.states)])
    evaluations = network_cost(len(states), sampler.guidance)
    base: Sequence[torch.Tensor | None] = [None] * len(units)
    sizes = [unit.states for unit in units]
    if settings.kl_weight > 0:
        with torch.no_grad(), model.base_weights():
            base = model.velocity(states, timesteps, text, embeddings.negative, sampler.guidance).split(sizes)
        meter.forward(evaluations)
    velocity = model.velocity(states, timesteps, text, embeddings.negative, sampler.guidance)
    meter.forward(evaluations)
    losses = []
    for unit, part, base_part in zip(units, velocity.split(sizes), base, strict=True):
        terms = _terms(sampler, unit, part, base_part, settings)
        share = unit.share(groups)
        losses.append(terms.loss * share)
        _note(report, unit, terms, share)
    return torch.stack(losses).sum()


def _step(unit: Unit) -> int:
    step = unit.rollout.plan.branch_step
    if step is None:
        raise ValueError("a rollout without a branch step has nothing to replay")
    return step


def _state(unit: Unit) -> torch.Tensor:
    state = unit.rollout.state
    return state if len(state) == 1 else state[unit.first : unit.last]


def _terms(
    sampler: Sampler, unit: Unit, velocity: torch.Tensor, base: torch.Tensor | None, settings: ReplaySettings
) -> Terms:
    step = _step(unit)
    span = slice(unit.first, unit.last)
    return group_loss(
        transition=sampler.transitions[step],
        space=sampler.space,
        state=_state(unit),
        velocity=velocity,
        next_states=unit.rollout.next_states[span],
        old_log_density=unit.rollout.old_log_density[span],
        advantage=unit.advantage.to(velocity.device),
        weight=sampler.weights[step],
        clip=settings.clip,
        kl_weight=settings.kl_weight,
        base_velocity=base,
    )


def _note(report: ReplayReport, unit: Unit, terms: Terms, share: float) -> None:
    report.loss += float(terms.loss.detach()) * share
    report.kl += float(terms.divergence) * share
    report.clipped += float(terms.clipped.float().mean()) * share
    report.drift = max(report.drift, float(terms.log_ratio.abs().max()))
