"""How much signal one update carries: cosine between the gradients of independent updates at frozen weights.

    python benchmarks/gradient_signal.py --preset pocket --updates 16 [key=value ...]

Two independent estimates of one direction have an expected cosine of about the squared share of signal in each, so
1 / cosine is roughly the number of updates to average before the direction is more signal than noise.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
from session import configuration, flat_gradient, frozen_trainer

from flash_grpo.config import RunConfig
from flash_grpo.metrics import PhaseClock


def measure(config: RunConfig, updates: int) -> dict[str, float]:
    """Mean cosine over pairs with its jackknife error, seconds, evaluations and mean reward per update."""
    with frozen_trainer(config) as trainer:
        gradients, objective = [], []
        started, nfe = time.perf_counter(), trainer.run.meter.nfe
        for trainer.course.update in range(updates):
            batch = trainer.collect(PhaseClock(trainer.run.meter))
            trainer.accumulate(batch)
            gradients.append(flat_gradient(trainer))
            objective.append(sum(w * float(batch.rewards[n].mean()) for n, w in config.rewards.items()))
        seconds = (time.perf_counter() - started) / updates
        evaluations = (trainer.run.meter.nfe - nfe) / updates
    cosine, error = mean_cosine(torch.stack(gradients))
    return {
        "cosine": cosine,
        "error": error,
        "seconds": seconds,
        "cosine_per_second": cosine / seconds,
        "evaluations": evaluations,
        "reward": sum(objective) / updates,
    }


def mean_cosine(gradients: torch.Tensor) -> tuple[float, float]:
    """Mean pairwise cosine of rows [U, P], and its delete-one jackknife error."""
    rows = torch.nn.functional.normalize(gradients, dim=1)
    count = len(rows)
    table = rows @ rows.T
    whole = (table.sum() - table.trace()) / (count * (count - 1))
    others = table.sum() - table.trace() - 2 * (table.sum(dim=1) - table.diagonal())
    left_out = others / ((count - 1) * (count - 2))
    error = ((count - 1) / count * ((left_out - left_out.mean()) ** 2).sum()).sqrt()
    return float(whole), float(error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="pocket")
    parser.add_argument("--updates", type=int, default=16)
    parser.add_argument("overrides", nargs="*", help="key=value, as for flash-grpo train --set")
    arguments = parser.parse_args()
    result = measure(configuration(arguments.preset, arguments.overrides), arguments.updates)
    print(json.dumps({"overrides": arguments.overrides, **{k: round(v, 4) for k, v in result.items()}}))


if __name__ == "__main__":
    main()
