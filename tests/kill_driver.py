"""Runs trainings in child processes that kill themselves at a chosen point, and resumes them until they are done.

    python -m tests.kill_driver < JOBS

JOBS is JSON: {"config": overrides of preset micro, "cases": [{"folder", "kills": [[point, count], ...]}]}. Each kill is
one attempt that ends by SIGKILL at the count-th passing of the point; a last attempt goes to the end. Prints one JSON
line per case: the exit signals seen, the updates lost per kill.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from flash_grpo.config import build_config
from flash_grpo.events import read_events
from flash_grpo.trainer import resume, train

# Where a run may die: phase -> what is called there; the process is killed right after the call.
POINTS = {
    "rollout": ("flash_grpo.rollout", "_velocities"),
    "decode": ("flash_grpo.models.wan:WanModel", "decode"),
    "scoring": ("flash_grpo.rewards.scoring:RewardSet", "score"),
    "replay": ("flash_grpo.distributed:Runtime", "backward"),
    "update": ("flash_grpo.optimizer:WeightAverage", "step"),
    "event": ("flash_grpo.events", "_write_all"),
    "save": ("flash_grpo.checkpoint", "_write_tensors"),
    "manifest": ("flash_grpo.checkpoint", "write_atomic"),
    "rename": ("pathlib:Path", "rename"),
    "pointers": ("flash_grpo.trainer", "write_pointers"),
    "prune": ("flash_grpo.trainer", "prune"),
    "evaluation": ("flash_grpo.evaluate", "deploy"),
    "scores": ("flash_grpo.run", "write_scores"),
    "report": ("flash_grpo.run", "contact_sheet"),
}


def arm(point: str, count: int) -> None:
    """Let this process die by SIGKILL once `point` was passed `count` times."""
    where, name = POINTS[point]
    module, _, owner = where.partition(":")
    holder: Any = getattr(import_module(module), owner) if owner else import_module(module)
    original: Callable[..., Any] = getattr(holder, name)
    passed = 0

    def deadly(*args: Any, **kwargs: Any) -> Any:
        nonlocal passed
        result = original(*args, **kwargs)
        passed += 1
        if passed == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(holder, name, deadly)


def in_child(work: Callable[[], Any]) -> int:
    """Run `work` in a forked process; its exit status, negative for a signal."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def attempt(folder: Path, values: dict[str, Any], kill: tuple[str, int] | None) -> None:
    """Start the run, or go on with it if its folder exists; die where told."""
    if kill:
        arm(*kill)
    if (folder / "config.yaml").exists():
        resume(folder)
    else:
        train(build_config("micro", values), folder, preset="micro")


def run_case(folder: Path, values: dict[str, Any], kills: list[tuple[str, int]]) -> dict[str, Any]:
    """All attempts of one run."""
    statuses, lost = [], []
    for kill in (*kills, None):
        reached = last_update(folder)
        if kill is None and statuses and statuses[-1] == 0:
            break  # it ended before it reached the point of its death
        statuses.append(in_child(lambda kill=kill: attempt(folder, values, kill)))
        started = [r for r in read_events(folder, fold=False) if r.type == "resumed"]
        if len(statuses) > 1 and started:
            lost.append(reached - int(started[-1].data["from_update"]))
    return {"folder": str(folder), "statuses": statuses, "lost": lost}


def last_update(folder: Path) -> int:
    """The last update whose metrics are in the log."""
    return max((r.update or 0 for r in read_events(folder) if r.type == "metrics"), default=0)


def outcome(folder: Path) -> dict[str, Any]:
    """All that must not depend on how often a run was killed: folded metrics and evaluations, summary, weights."""
    volatile = ("seconds", "peak_memory_mb")
    told = [r for r in read_events(folder) if r.type in ("metrics", "evaluation")]
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    newest = max((folder / "checkpoints").iterdir())
    tensors = {
        f"{file.name}:{name}": hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
        for file in newest.rglob("*.safetensors")
        for name, tensor in load_file(file).items()
    }
    return {
        "told": [(r.type, {k: v for k, v in r.data.items() if k not in volatile}) for r in told],
        "summary": {k: v for k, v in summary.items() if k != "minutes"},
        "weights": (newest.name, tensors),
    }


def main() -> None:
    jobs = json.load(sys.stdin)
    for case in jobs["cases"]:
        kills = [(point, int(count)) for point, count in case["kills"]]
        print(json.dumps(run_case(Path(case["folder"]), jobs["config"], kills)), flush=True)


if __name__ == "__main__":
    main()
