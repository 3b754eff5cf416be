"""A run put into the store of a studio that has no worker, for tests of its page."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from flash_grpo.config import build_config
from flash_grpo_studio.app.pages.addresses import WEB
from flash_grpo_studio.app.store.metrics import Point, flatten, put_points
from flash_grpo_studio.app.store.tables import Attempt, Event, Job, User, Video
from tests.app.pages.conftest import Served


class Seed:
    """A run in the store of a studio without a worker, so that nothing but the test changes it."""

    def __init__(self, served: Served, **fields: Any) -> None:
        self.served, self.store = served, served.store()
        config = build_config("micro").model_dump()
        overrides = fields.pop("config", {})
        spec = {"ask": {"preset": "micro", "overrides": {}}, "config": {**config, **overrides}, "files": {}}
        values = {"kind": "alignment", "name": "seeded", "state": "running", "preset": "micro", "updates": 20, **fields}
        served.call("GET", "/me")  # the implicit user is there from the first request on
        with self.store.writing() as session:
            owner = session.query(User).first()
            assert owner is not None
            self.owner = owner.id
            job = Job(owner_id=self.owner, spec=spec, folder="", position=1.0, started=time.time() - 60, **values)
            session.add(job)
            session.flush()
            job.folder = f"jobs/{job.id}"
            self.id = job.id
            session.add(Attempt(job_id=job.id, number=1, worker_id="w", host="here", devices=["cuda:0"]))
        self.folder = served.workspace.job(self.id)
        (self.folder / "run").mkdir(parents=True, exist_ok=True)

    def set(self, **fields: Any) -> None:
        """Change the job."""
        with self.store.writing() as session:
            job = session.get_one(Job, self.id)
            for name, value in fields.items():
                setattr(job, name, value)

    def measure(self, first: int, last: int) -> None:
        """Metrics of the updates first..last, and the progress they mean."""
        with self.store.writing() as session:
            put_points(session, self.id, [point(update) for update in range(first, last + 1)])
            job = session.get_one(Job, self.id)
            job.update = last
            left = {"eta_low_seconds": 725.0, "eta_high_seconds": 905.0, "time": time.time()}
            job.progress = {"phase": "rollout", "update": last, "updates": 20, **left}

    def tell(self, type_: str, data: Mapping[str, Any], update: int | None = None) -> None:
        """An event."""
        with self.store.writing() as session:
            session.add(Event(job_id=self.id, type=type_, update=update, data=dict(data)))

    def evaluate(self, update: int, mean: float, split: str = "validation") -> None:
        """An evaluation with its interval."""
        rewards = {"colorfulness": {"mean": mean, "ci95": [mean - 0.05, mean + 0.05]}}
        self.tell("evaluation", {"update": update, "split": split, "rewards": rewards, "videos": 8}, update)

    def videos(self, prompts: list[str], updates: list[int]) -> None:
        """A video of every prompt at every update, all of the same file."""
        path = self.folder / "run" / "a.mp4"
        path.write_bytes((WEB / "example" / "00-before.mp4").read_bytes())
        with self.store.writing() as session:
            for update in updates:
                for place, prompt in enumerate(prompts):
                    # A file of its own each: a path names one video.
                    copy = self.folder / "run" / f"{update}-{place}.mp4"
                    copy.hardlink_to(path)
                    session.add(
                        Video(
                            owner_id=self.owner,
                            job_id=self.id,
                            update=update,
                            prompt_id=f"p{place:03}",
                            prompt=prompt,
                            seed=0,
                            path=self.served.workspace.relative(copy),
                            scores={"colorfulness": update / 100 + place},
                        )
                    )

    @property
    def url(self) -> str:
        """Address of its page."""
        return f"/run?id={self.id}"


def point(update: int) -> Point:
    """What an update measured; the reward is a hundredth of the update."""
    reward = update / 100
    data = {
        "rewards": {"colorfulness": {"mean": reward, "std": 0.1, "min": reward - 0.1, "max": reward + 0.1}},
        "branch": {"0": {"weight": 1.25, "reward": 0.3}, "1": {"weight": 0.75, "reward": 0.2}},
        "seconds": {"rollout": 1.5, "replay": 0.5},
        "grad_norm": 1.0 + update,
        "drift": 1e-7,
        "clip_fraction": 0.25,
        "learning_rate": 1e-4,
        "peak_memory_mb": 512.0,
    }
    return Point(update, 1, 1000.0 + update, flatten(data))
