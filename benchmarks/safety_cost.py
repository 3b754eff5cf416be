"""What safety costs: wall time of a run with checks and checkpoints at their defaults over one without.

    python benchmarks/safety_cost.py [--preset pocket] [--pairs 5] [--set key=value ...] [--json]

Runs alternate, with and without, in one process after a warm-up run; the figure is the median of the pairs' ratios.
"Without" means `checks: false` and no checkpoint but the last, which every run needs for its report.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median

from session import configuration

from flash_grpo.config import RunConfig, with_overrides
from flash_grpo.trainer import train


def seconds(config: RunConfig) -> float:
    """Wall time of one run, process time aside from imports."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        train(config, Path(folder) / "run")
        return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="pocket")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--set", dest="assignments", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    safe = configuration(arguments.preset, arguments.assignments)
    bare = with_overrides(safe, {"checks": False, "checkpoint_every": safe.updates})
    seconds(safe)
    pairs = []
    for pair in range(arguments.pairs):
        order = (safe, bare) if pair % 2 == 0 else (bare, safe)
        taken = {config.checks: seconds(config) for config in order}
        pairs.append(taken[True] / taken[False])
        if not arguments.json:
            print(f"with {taken[True]:.1f} s, without {taken[False]:.1f} s: {pairs[-1]:.3f}", flush=True)
    report = {"median": median(pairs), "pairs": pairs, "updates": safe.updates}
    print(json.dumps(report, indent=1) if arguments.json else f"median of {len(pairs)} pairs: {median(pairs):.3f}")


if __name__ == "__main__":
    main()
