"""What one update measured: seconds and cost by phase, rewards by branch step, memory."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from flash_grpo.advantage import Advantages
from flash_grpo.events import Metrics
from flash_grpo.replay import ReplayReport
from flash_grpo.rollout import GroupPlan, Meter, Sampler


class PhaseClock:
    """Seconds and cost per phase of one update; phases do not nest."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self.seconds: dict[str, float] = {}
        self.cost: dict[str, float] = {}
        self.started = time.perf_counter()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Charge the block to a phase."""
        start, cost = time.perf_counter(), self.meter.cost
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
            self.cost[name] = self.cost.get(name, 0.0) + self.meter.cost - cost

    def close(self) -> None:
        """Charge what no phase claimed to `other`."""
        self.seconds["other"] = time.perf_counter() - self.started - sum(self.seconds.values())


def peak_memory_mb(device: torch.device) -> float:
    """Peak memory of this process in MB: of the GPU if it trains there, else resident memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def reward_statistics(values: torch.Tensor) -> dict[str, float]:
    """Statistics of one reward's [groups, K]; group_spread is the mean standard deviation within groups."""
    return {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "min": float(values.min()),
        "max": float(values.max()),
        "group_spread": float(values.std(dim=1).mean()),
    }


def branch_statistics(
    plans: Sequence[GroupPlan], sampler: Sampler, objective: torch.Tensor, advantages: torch.Tensor
) -> dict[int, dict[str, float]]:
    """Per branch step: its rectification weight, the weighted reward's mean and spread, and how many groups drew it."""
    table = {}
    for step, weight in sampler.weights.items():
        rows = [row for row, plan in enumerate(plans) if plan.branch_step == step]
        if rows:
            table[step] = {
                "weight": weight,
                "reward": float(objective[rows].mean()),
                "group_spread": float(objective[rows].std(dim=1).mean()),
                "advantage": float(advantages[rows].abs().mean()),
                "groups": float(len(rows)),
            }
    return table


def update_metrics(
    sampler: Sampler,
    device: torch.device,
    weights: Mapping[str, float],
    update: int,
    plans: Sequence[GroupPlan],
    rewards: Mapping[str, torch.Tensor],
    advantages: Advantages,
    report: ReplayReport,
    grad_norm: float,
    learning_rate: float,
    kl_measured: bool,
    clock: PhaseClock,
) -> Metrics:
    """The metrics event of one update."""
    clock.close()
    objective = torch.stack([weight * rewards[name] for name, weight in weights.items() if weight]).sum(dim=0)
    magnitude = advantages.values.abs()
    return Metrics(
        update=update,
        rewards={name: reward_statistics(values) for name, values in rewards.items()},
        advantage={"mean_abs": float(magnitude.mean()), "max_abs": float(magnitude.max())},
        grad_norm=grad_norm,
        branch=branch_statistics(plans, sampler, objective, advantages.values),
        drift=report.drift,
        clip_fraction=report.clipped,
        kl=report.kl if kl_measured else None,
        dead_groups=int(advantages.dead.sum()),
        groups=len(advantages.dead),
        learning_rate=learning_rate,
        seconds=clock.seconds,
        cost=clock.cost,
        nfe=clock.meter.nfe,
        peak_memory_mb=peak_memory_mb(device),
        loss=report.loss,
    )
