"""What one update costs with shared and with independent prefixes, where its time goes, and its peak memory.

    python benchmarks/update_cost.py --preset pocket --updates 5 [key=value ...]

Each variant runs in a process of its own, so that peak memory is its own; the ratios at the end compare them. The
autoencoder's decoder is a network: `outside_networks` is the share of wall time in neither rollout, decode nor replay.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import torch
from session import configuration, frozen_trainer

from flash_grpo.config import RunConfig
from flash_grpo.metrics import PhaseClock, peak_memory_mb


def measure(config: RunConfig, updates: int) -> dict[str, object]:
    """Means per update after one warm-up: seconds by phase, evaluations, cost; backward time in forwards; memory."""
    with frozen_trainer(config) as trainer:
        seconds: dict[str, float] = {}
        nfe, cost = 0, 0.0
        for trainer.course.update in range(updates + 1):
            clock = PhaseClock(trainer.run.meter)
            start_nfe, start_cost = trainer.run.meter.nfe, trainer.run.meter.cost
            batch = trainer.collect(clock)
            with clock.phase("replay"):
                trainer.accumulate(batch)
            clock.close()
            if trainer.course.update:
                for phase, value in clock.seconds.items():
                    seconds[phase] = seconds.get(phase, 0.0) + value / updates
                nfe += trainer.run.meter.nfe - start_nfe
                cost += trainer.run.meter.cost - start_cost
        total = sum(seconds.values())
        networks = sum(seconds[phase] for phase in ("rollout", "decode", "replay"))
        return {
            "seconds": total,
            "seconds_by_phase": seconds,
            "outside_networks": 1 - networks / total,
            "nfe": nfe / updates,
            "cost": cost / updates,
            "peak_memory_mb": peak_memory_mb(torch.device("cpu")),
        }


def measure_apart(preset: str, updates: int, overrides: list[str]) -> dict[str, float]:
    """`measure` in a fresh process."""
    command = [sys.executable, __file__, "--preset", preset, "--updates", str(updates), "--one", *overrides]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, float] = json.loads(output.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="pocket")
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--one", action="store_true", help="measure just this configuration")
    parser.add_argument("overrides", nargs="*", help="key=value, as for flash-grpo train --set")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(configuration(arguments.preset, arguments.overrides), arguments.updates)))
        return
    results = {
        kind: measure_apart(arguments.preset, arguments.updates, [*arguments.overrides, f"initial_noise={kind}"])
        for kind in ("shared", "independent")
    }
    keys = ("seconds", "nfe", "cost", "peak_memory_mb")
    ratios = {key: results["independent"][key] / results["shared"][key] for key in keys}
    print(json.dumps({**results, "independent_over_shared": ratios}, indent=1))


if __name__ == "__main__":
    main()
