"""Makes the finished example that ships with the package from a run folder:

    python -m flash_grpo_studio.app.pages.example RUN_FOLDER

What the page shows is copied unchanged from the run: its curves, its evaluations and the videos of both sides.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from flash_grpo.events import Record, read_events
from flash_grpo.files import write_atomic
from flash_grpo_studio.app.pages.addresses import WEB

FOLDER = WEB / "example"
MOST_BYTES = 5 * 10**6
CURVES = ("grad_norm", "drift", "clip_fraction")


def make(run: Path, target: Path = FOLDER) -> dict[str, Any]:
    """Write the example of a finished run; returns what was written as example.json."""
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    records = list(read_events(run))
    first = next(record for record in records if record.type == "run_started")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    found = {
        "preset": summary["preset"],
        "model": first.data["config"]["model"],
        "config": config,
        "versions": first.data["versions"],
        "time": first.time,
        **{name: summary[name] for name in ("seed", "updates", "minutes", "nfe", "cost", "rewards", "heldout")},
        "series": _series(records),
        "evaluations": _evaluations(records),
        "pairs": _pairs(run, summary["files"], target),
    }
    write_atomic(target / "example.json", json.dumps(found, separators=(",", ":")).encode())
    size = sum(path.stat().st_size for path in target.iterdir())
    if size > MOST_BYTES:
        raise SystemExit(
            f"the example takes {size / 1e6:.1f} MB and may take {MOST_BYTES / 1e6:.0f}; keep fewer videos"
        )
    return found


def _series(records: Sequence[Record]) -> dict[str, dict[str, list[Any]]]:
    """Curves by name: of each reward the mean with the spread inside groups as its band, and the numerics."""
    found: dict[str, dict[str, list[Any]]] = {}
    for record in records:
        if record.type != "metrics":
            continue
        for name, reward in record.data["rewards"].items():
            spread = reward["group_spread"]
            low, high = reward["mean"] - spread, reward["mean"] + spread
            _add(found, f"reward/{name}", record, reward["mean"], low, high)
        for name in CURVES:
            _add(found, name, record, record.data[name])
    return found


def _add(found: dict[str, dict[str, list[Any]]], name: str, record: Record, value: Any, *band: Any) -> None:
    keys = ("value", "low", "high")[: 1 + len(band)]
    curve = found.setdefault(name, {key: [] for key in ("update", *keys)})
    curve["update"].append(record.update)
    for key, number in zip(keys, (value, *band), strict=True):
        curve[key].append(None if number is None else float(f"{number:.5g}"))


def _evaluations(records: Sequence[Record]) -> list[dict[str, Any]]:
    return [
        {"update": record.update, "split": record.data["split"], "rewards": record.data["rewards"]}
        for record in records
        if record.type == "evaluation"
    ]


def _pairs(run: Path, files: dict[str, str], target: Path) -> list[dict[str, Any]]:
    """Copy the held-out videos there are on both sides; each pair with its prompt, seed and scores."""
    before, after = run / files["videos_before"], run / files["videos_after"]
    scores = [json.loads((folder / "scores-heldout.json").read_text(encoding="utf-8")) for folder in (before, after)]
    seed = scores[0]["seed"]
    found: list[dict[str, Any]] = []
    for place, prompt in enumerate(scores[0]["prompts"]):
        videos = [folder / f"{prompt['id']}-{seed}.mp4" for folder in (before, after)]
        if not all(video.is_file() for video in videos):
            continue
        names = [f"{len(found):02d}-{side}.mp4" for side in ("before", "after")]
        for video, name in zip(videos, names, strict=True):
            shutil.copyfile(video, target / name)
        rewards = {
            name: [float(f"{side['rewards'][name][place]:.5g}") for side in scores] for name in scores[0]["rewards"]
        }
        found.append({"prompt": prompt["text"], "seed": seed, "before": names[0], "after": names[1], "scores": rewards})
    return found


if __name__ == "__main__":
    made = make(Path(sys.argv[1]))
    print(f"{len(made['pairs'])} pairs of videos and {len(made['series'])} curves in {FOLDER}")
