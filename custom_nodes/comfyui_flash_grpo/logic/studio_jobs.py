"""What nodes ask of a studio: to align a model, to tell how far a job is, to score a video."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .problem import Problem, plain
from .studio import Studio, job_id

ENDED = ("succeeded", "failed", "cancelled", "lost")
PAUSE = 1.0
"""Seconds between two looks at a job."""


@dataclass(frozen=True)
class Standing:
    """How far a job is: its state, done and total updates, a sentence."""

    id: str
    state: str
    done: int
    total: int
    text: str

    @property
    def ended(self) -> bool:
        """Whether nothing more happens by itself."""
        return self.state in ENDED or self.state == "paused"


def parse_changes(text: str) -> dict[str, Any]:
    """Configuration keys from lines `key = value`; values are JSON, or text where they are none."""
    found: dict[str, Any] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        key, separator, value = line.partition("=")
        if not separator or not key.strip():
            raise Problem(f"expected lines such as updates = 40, got {plain(line, 60)!r}; correct it")
        try:
            found[key.strip()] = json.loads(value)
        except (ValueError, RecursionError):
            found[key.strip()] = value.strip()
    return found


def launch(studio: Studio, preset: str, name: str, prompts: str, changes: str, number: int) -> Standing:
    """Queue an alignment. The same inputs and number are the same job, however often they are sent."""
    ask: dict[str, Any] = {"preset": preset.strip(), "overrides": parse_changes(changes)}
    if name.strip():
        ask["name"] = name.strip()[:200]
    if texts := [line.strip() for line in prompts.splitlines() if line.strip()]:
        ask["prompts"] = texts
    whole = json.dumps([ask, number], sort_keys=True).encode()
    ask["idempotency_key"] = f"comfyui-{hashlib.sha256(whole).hexdigest()[:40]}"
    return _standing(studio.post("/jobs", ask))


def look(studio: Studio, job: str) -> Standing:
    """How far a job is."""
    return _standing(studio.get(f"/jobs/{job_id(job.strip())}"))


def wait(studio: Studio, job: str, seconds: float, looked: Callable[[Standing], None]) -> Standing:
    """Look again and again until a job has ended or the time is up; what `looked` raises ends the wait."""
    until = time.monotonic() + seconds
    while True:
        standing = look(studio, job)
        looked(standing)
        left = until - time.monotonic()
        if standing.ended or left <= 0:
            return standing
        time.sleep(min(PAUSE, left))


def score(
    studio: Studio,
    video: Path,
    names: Sequence[str],
    options: Mapping[str, Any],
    prompt: str,
    seconds: float,
    looked: Callable[[Standing], None],
) -> dict[str, float]:
    """A video file's scores by the studio's rewards: uploaded, made playable everywhere, scored."""
    name = {"name": "From ComfyUI"}
    made = _done(studio, {"kind": "normalisation", "file_id": studio.upload(video), **name}, seconds, looked)
    (shown,) = studio.get(f"/jobs/{made}/videos")["videos"]
    chosen = {reward: options[reward] for reward in names if reward in options}
    ask = {"kind": "scoring", "video_ids": [shown["id"]], "rewards": list(names), "reward_options": chosen, **name}
    scored = _done(studio, {**ask, "prompt": prompt} if prompt.strip() else ask, seconds, looked)
    try:
        scores = studio.get(f"/jobs/{scored}")["result"]["videos"][0]["scores"]
        return {reward: float(scores[reward]) for reward in names}
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise Problem(f"the studio gave no scores for the video (job {scored}); look there") from error


def _done(studio: Studio, ask: Mapping[str, Any], seconds: float, looked: Callable[[Standing], None]) -> str:
    """Submit a job and see it through; its id."""
    job = str(studio.post("/jobs", ask)["id"])
    standing = wait(studio, job, seconds, looked)
    if standing.state != "succeeded":
        raise Problem(f"the studio's job {job} did not succeed within {seconds:g} s ({standing.text}); look there")
    return job


def _standing(job: Mapping[str, Any]) -> Standing:
    try:
        progress = job["progress"]
        done, total = int(progress["update"] or 0), int(progress["updates"] or 0)
        state = plain(job["state"], 20)
        parts = [f"{plain(job['name'], 80)}: {state}"]
        if total:
            parts.append(f"{done} of {total} updates")
        if state == "running" and progress.get("eta_seconds") is not None:
            parts.append(f"about {round(float(progress['eta_seconds']) / 60)} min left")
        parts += [plain(job[key]) for key in ("waiting_reason", "message") if job.get(key)]
        return Standing(job_id(job["id"]), state, done, total, ", ".join(parts))
    except (KeyError, TypeError, ValueError) as error:
        raise Problem("the studio describes the job in a way this node pack does not know; update both") from error
