"""Kill runs at seeded points, resume them, and compare what they tell with a run that nobody disturbed.

    python benchmarks/kill_and_resume.py [--kills-per-phase N] [--seed S] [--json]

Every kill is a SIGKILL of a real process. Equal means: metrics, evaluations, cost, held-out results and the last
checkpoint's weights and trainer state are the same bit for bit. Also measures how long a SIGTERM takes to end a run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from flash_grpo.config import build_config
from flash_grpo.events import read_events
from tests.kill_driver import POINTS, outcome

ROOT = Path(__file__).parent.parent
VALUES: dict[str, Any] = {
    "updates": 6,
    "evaluate_every": 2,
    "checkpoint_every": 2,
    "validation_limit": 4,
    "heldout_limit": 6,
    "videos_saved": 2,
    "evaluation_steps": 4,
    "ema_decay": 0.9,
    "learning_rate_schedule": "cosine",
    "threads": 1,
}
PASSES = {  # how often an undisturbed run of VALUES passes a point
    "rollout": 24,
    "decode": 29,
    "scoring": 29,
    "replay": 6,
    "update": 6,
    "event": 40,
    "save": 12,
    "manifest": 6,
    "rename": 3,
    "pointers": 3,
    "prune": 3,
    "evaluation": 6,
    "scores": 6,
    "report": 1,
}


def drive(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    jobs = json.dumps({"config": VALUES, "cases": cases})
    command = [sys.executable, "-m", "tests.kill_driver"]
    done = subprocess.run(command, input=jobs, capture_output=True, text=True, check=True, cwd=ROOT)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def shutdown_seconds(folder: Path, delay: float) -> float:
    """Seconds from SIGTERM, `delay` after the first event, to the end of a run; it must leave a resumable folder."""
    options = [f"--set={key}={json.dumps(value)}" for key, value in {**VALUES, "updates": 500}.items()]
    command = [sys.executable, "-m", "flash_grpo.cli", "train", "--preset", "micro", "--output", str(folder), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
    while not read_events(folder) and process.poll() is None:
        time.sleep(0.05)
    time.sleep(delay)
    process.send_signal(signal.SIGTERM)
    start = time.monotonic()
    status = process.wait(timeout=120)
    taken = time.monotonic() - start
    if status != 130:
        raise RuntimeError(f"a run that was told to stop ended with status {status}")
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills-per-phase", type=int, default=3)
    parser.add_argument("--shutdowns", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    build_config("micro", VALUES)
    dice = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as work:
        root = Path(work)
        drive([{"folder": str(root / "whole"), "kills": []}])
        wanted = outcome(root / "whole")
        table = {}
        for phase in POINTS:
            counts = [dice.randint(1, PASSES[phase]) for _ in range(arguments.kills_per_phase)]
            cases = [{"folder": str(root / f"{phase}{i}"), "kills": [[phase, n]]} for i, n in enumerate(counts)]
            results = drive(cases)
            table[phase] = {
                "killed": sum(result["statuses"][0] == -signal.SIGKILL for result in results),
                "equal": sum(outcome(Path(result["folder"])) == wanted for result in results),
                "runs": len(results),
                "most_updates_lost": max((lost for result in results for lost in result["lost"]), default=0),
            }
            if not arguments.json:
                print(phase, table[phase], flush=True)
        taken = [shutdown_seconds(root / f"stop{i}", dice.uniform(0, 8)) for i in range(arguments.shutdowns)]
    report = {"phases": table, "checkpoint_every": VALUES["checkpoint_every"], "longest_shutdown_seconds": max(taken)}
    if arguments.json:
        print(json.dumps(report, indent=1))
    else:
        print(f"longest clean shutdown of {len(taken)}: {max(taken):.1f} s")


if __name__ == "__main__":
    main()
