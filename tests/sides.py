"""Alignments with videos of several updates in a store, as their workers would have left them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import insert

from flash_grpo.config import build_config
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.tables import Checkpoint, Job, Video

Scores = Callable[[int, int], Mapping[str, float]]
"""Rewards of a video, from its update and the place of its prompt."""


def no_scores(update: int, place: int) -> Mapping[str, float]:
    """Videos that nobody scored."""
    return {}


def prompts(count: int) -> list[str]:
    """Distinct prompts; none is part of another."""
    return [f"a red circle number {place:05d}" for place in range(count)]


def put_run(store: Store, owner_id: str, **more: Any) -> str:
    """An alignment that has ended, with a checkpoint at update 4, the best; returns its id.

    more: `name`, `shared`, and `config`, changes of the micro preset's configuration.
    """
    config = build_config("micro", more.pop("config", {})).model_dump()
    spec = {"ask": {"preset": "micro", "overrides": {}}, "config": config, "files": {}}
    return put_job(store, owner_id, "alignment", spec, checkpoint=4, **more)


def put_preview(store: Store, owner_id: str, run: str, **more: Any) -> str:
    """A preview of a run; returns its id."""
    spec = {"ask": {"kind": "preview", "job_id": run}, "task": {"strength": 1.0}}
    return put_job(store, owner_id, "preview", spec, parent_id=run, **more)


def put_job(store: Store, owner_id: str, kind: str, spec: dict[str, Any], checkpoint: int = 0, **more: Any) -> str:
    """A job that has succeeded."""
    facts = {"name": kind, "state": "succeeded", "position": 1.0, **more}
    with store.writing() as session:
        job = Job(owner_id=owner_id, kind=kind, spec=spec, folder="", **facts)
        session.add(job)
        session.flush()
        job.folder = f"jobs/{job.id}"
        if checkpoint:
            session.add(Checkpoint(job_id=job.id, update=checkpoint, path="x", best=True))
        return job.id


def put_videos(
    store: Store,
    owner_id: str,
    job_id: str,
    texts: Sequence[str],
    updates: Sequence[int] = (0, 4),
    scores: Scores = no_scores,
    **more: Any,
) -> None:
    """Videos of each prompt at seed 0 for each update; `noise` is that of the prompt's place unless `more` says."""
    rows = [
        {
            "owner_id": owner_id,
            "job_id": job_id,
            "update": update,
            "side": "after" if update else "before",
            "prompt_id": f"p{place:05d}",
            "prompt": text,
            "seed": 0,
            "noise": place,
            "path": f"jobs/{job_id}/run/videos/{update:06d}/p{place:05d}-0.mp4",
            "bytes": 100,
            "scores": dict(scores(update, place)),
            **more,
        }
        for update in updates
        for place, text in enumerate(texts)
    ]
    with store.writing() as session:
        session.execute(insert(Video), rows)
