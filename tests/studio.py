"""A studio's parts for tests: a migrated store, users, a service, a registered worker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flash_grpo.events import Record, parse_records
from flash_grpo_studio.app.jobs import workers
from flash_grpo_studio.app.jobs.access import Actor
from flash_grpo_studio.app.jobs.leases import Claim, claim
from flash_grpo_studio.app.jobs.prepare import parse_ask
from flash_grpo_studio.app.jobs.service import JobService
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.intake import take_in
from flash_grpo_studio.app.store.migrate import upgrade
from flash_grpo_studio.app.store.tables import Event, Job, Role, User
from flash_grpo_studio.app.workspace import Workspace


@dataclass
class Parts:
    """What most tests of the studio need."""

    store: Store
    workspace: Workspace
    service: JobService
    ann: Actor

    def user(self, name: str, role: Role = "creator") -> Actor:
        """A new user."""
        with self.store.writing() as session:
            row = User(name=name, role=role)
            session.add(row)
            session.flush()
        return Actor(row.id, name, role)

    def submit(self, actor: Actor | None = None, **values: Any) -> Job:
        """A queued alignment of the micro preset unless `values` say otherwise."""
        asked = values if "kind" in values else {"preset": "micro", **values}
        return self.service.submit(actor or self.ann, parse_ask(asked))[0]

    def worker(self, devices: int = 1, host: str = "here") -> str:
        """A registered worker with CPU slots; returns its id."""
        slots = [{"name": f"cpu:{number}", "kind": "cpu"} for number in range(devices)]
        return workers.register(self.store, host, 1, 1.0, "test", slots, {})

    def claim(self, worker_id: str) -> Claim:
        """The worker's next job, which there must be."""
        found = claim(self.store, worker_id)
        assert found is not None, "the queue has nothing for this worker"
        return found

    def job(self, job_id: str) -> Job:
        """The job as the store has it now."""
        with self.store.reading() as session:
            return session.get_one(Job, job_id)

    def events(self, job_id: str, type_: str) -> list[Event]:
        """The job's events of one type, in order."""
        with self.store.reading() as session:
            query = session.query(Event).filter(Event.job_id == job_id, Event.type == type_)
            return query.order_by(Event.id).all()

    def states(self, job_id: str) -> list[str]:
        """The states the job went through, as audited."""
        return [event.data["to"] for event in self.events(job_id, "state")]

    def take(self, found: Claim, records: Sequence[Record], before: int, after: int) -> bool:
        """Take records in, as the worker would."""
        with self.store.writing() as session:
            return take_in(session, found.job_id, found.fence, records, (before, after), lambda record: [])


def open_parts(database_url: str, folder: Path) -> Parts:
    """A fresh studio without broker, web app or worker; `ann` is a creator."""
    store = Store(database_url)
    upgrade(store)
    workspace = Workspace(folder)
    workspace.prepare()
    parts = Parts(store, workspace, JobService(store, workspace, lambda: False), Actor("", "", "creator"))
    parts.ann = parts.user("ann")
    return parts


def records(*events: dict[str, Any], attempt: int = 1, first: int = 1) -> list[Record]:
    """Events as a run's log would give them."""
    lines = [
        json.dumps({"v": 1, "seq": first + place, "attempt": attempt, "time": 1000.0 + place, **event})
        for place, event in enumerate(events)
    ]
    return parse_records("\n".join(lines).encode())


def metrics(update: int, reward: float = 0.5, **more: Any) -> dict[str, Any]:
    """A metrics event with one reward."""
    rewards = {"subject_size": {"mean": reward, "std": 0.1}}
    return {"type": "metrics", "update": update, "rewards": rewards, "loss": float(update), **more}
