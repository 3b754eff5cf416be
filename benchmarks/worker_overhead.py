"""What a run costs more as a job of the studio than on the command line, in alternating pairs.

    python -m benchmarks.worker_overhead [--pairs 5] [--preset pocket] [key=value ...]

Seconds of a job: from its submission through the API until the store says it succeeded; of a command: from its start to
its exit. The studio with its broker, web app and worker runs during the jobs only.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from flash_grpo.config import build_config, parse_assignments
from tests.chaos import Studio, running_studio, states

QUICK = ["updates=22", "evaluate_every=0", "validation_limit=8", "heldout_limit=16", "threads=1"]


def as_command(preset: str, assignments: list[str], folder: Path) -> float:
    """Seconds of `flash-grpo train`."""
    settings = [part for assignment in assignments for part in ("--set", assignment)]
    command = [sys.executable, "-m", "flash_grpo.cli", "train", "--preset", preset, "--output", str(folder), *settings]
    environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "CUDA_VISIBLE_DEVICES": ""}
    began = time.monotonic()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - began


def as_job(studio: Studio, preset: str, overrides: dict[str, Any]) -> float:
    """Seconds from submission to success."""
    began = time.monotonic()
    answer = studio.ask("POST", "/jobs", json={"preset": preset, "overrides": overrides})
    id_ = answer.json()["id"]
    while (state := states(studio, [id_])[id_]) != "succeeded":
        assert state in ("queued", "starting", "running"), f"the job is {state}"
        time.sleep(0.1)
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--preset", default="pocket")
    parser.add_argument("assignments", nargs="*", help="key=value, as for flash-grpo train --set")
    arguments = parser.parse_args()
    assignments = [*QUICK, *arguments.assignments]
    overrides = parse_assignments(assignments)
    build_config(arguments.preset, overrides)
    pairs = []
    with tempfile.TemporaryDirectory() as name:
        for number in range(arguments.pairs):
            measured = {}
            for kind in ("command", "job") if number % 2 else ("job", "command"):
                if kind == "command":
                    measured[kind] = as_command(arguments.preset, assignments, Path(name) / f"run{number}")
                    continue
                with running_studio(Path(name) / f"workspace{number}") as studio:
                    measured[kind] = as_job(studio, arguments.preset, overrides)
            pairs.append(measured)
            print(json.dumps(measured), file=sys.stderr, flush=True)
    ratios = [pair["job"] / pair["command"] for pair in pairs]
    print(json.dumps({"pairs": pairs, "ratios": ratios, "median": statistics.median(ratios)}, indent=1))


if __name__ == "__main__":
    main()
