"""What temporal gradient rectification does: end-to-end gradient norm per branch step, with and without it.

    python benchmarks/rectification.py --preset pocket --updates 8 [key=value ...]

Every update takes one branch step for all groups; both variants replay the very same rollouts. `spread` is the largest
mean norm over the smallest: 1 would be perfectly even.
"""

from __future__ import annotations

import argparse
import dataclasses
import json

import torch
from session import configuration, flat_gradient, frozen_trainer

from flash_grpo.config import RunConfig
from flash_grpo.metrics import PhaseClock
from flash_grpo.trainer import Trainer


def norms_of_step(trainer: Trainer, updates: int, weight: float, step: int) -> tuple[float, float]:
    """Mean gradient norm over updates, (plain, rectified), of the trainer's one candidate step."""
    plain_weights, rectified_weights = {step: 1.0}, {step: weight}
    totals = [0.0, 0.0]
    for trainer.course.update in range(updates):
        batch = trainer.collect(PhaseClock(trainer.run.meter))
        for index, weights in enumerate((plain_weights, rectified_weights)):
            trainer.run.sampler = dataclasses.replace(trainer.run.sampler, weights=weights)
            trainer.accumulate(batch)
            totals[index] += float(torch.linalg.vector_norm(flat_gradient(trainer))) / updates
    return totals[0], totals[1]


def measure(config: RunConfig, updates: int) -> dict[str, object]:
    """Gradient norms per candidate step of the configuration, and how uneven they are."""
    with frozen_trainer(config) as trainer:
        weights = trainer.run.sampler.weights
    table = {}
    for step in config.candidates():
        single = config.model_copy(update={"candidate_steps": [step]})
        with frozen_trainer(single) as trainer:
            plain, rectified = norms_of_step(trainer, updates, weights[step], step)
        table[step] = {"weight": weights[step], "plain": plain, "rectified": rectified}
    spread = {
        kind: max(row[kind] for row in table.values()) / min(row[kind] for row in table.values())
        for kind in ("plain", "rectified")
    }
    return {"noise_level": config.noise_level, "steps": table, "spread": spread}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="pocket")
    parser.add_argument("--updates", type=int, default=8)
    parser.add_argument("overrides", nargs="*", help="key=value, as for flash-grpo train --set")
    arguments = parser.parse_args()
    print(json.dumps(measure(configuration(arguments.preset, arguments.overrides), arguments.updates), indent=1))


if __name__ == "__main__":
    main()
