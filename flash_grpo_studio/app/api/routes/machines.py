"""Workers and their devices."""

from __future__ import annotations

import time
from typing import Any, Literal

from pydantic import BaseModel, Field
from sqlalchemy import select

from flash_grpo_studio.app.api.base import Done, Strict, WorkerId, subject
from flash_grpo_studio.app.api.errors import problems
from flash_grpo_studio.app.api.who import Administrator, Parts, Reader
from flash_grpo_studio.app.jobs import workers
from flash_grpo_studio.app.jobs.access import visible
from flash_grpo_studio.app.jobs.change import tell
from flash_grpo_studio.app.jobs.states import ACTIVE
from flash_grpo_studio.app.store.tables import DeviceLease, Job, Worker

router = subject("machines")


class WorkerView(BaseModel):
    """A worker process on a machine."""

    id: str
    host: str
    version: str
    state: Literal["active", "draining", "gone"]
    devices: list[dict[str, Any]] = Field(description="Each with its `name`, and what the worker knows of it.")
    silent_seconds: float = Field(description="Since its last sign of life, by the clocks of both.")
    started: float
    jobs: int = Field(description="Jobs it has now.")
    facts: dict[str, Any] = Field(description="What it tells of its machine, such as free memory and disk.")


class WorkerList(BaseModel):
    """Workers by machine."""

    workers: list[WorkerView]


class LeaseView(BaseModel):
    """A device in use; the job is named to those who may see it."""

    host: str
    device: str
    worker_id: str
    since: float
    job_id: str | None
    job_name: str | None


class LeaseList(BaseModel):
    """Devices in use."""

    leases: list[LeaseView]


class Drain(Strict):
    """Whether to drain."""

    on: bool = Field(True, description="False lets the worker take new jobs again.")


@router.get("/workers", response_model=WorkerList, summary="Workers")
def list_workers(studio: Parts, actor: Reader, gone: bool = False) -> WorkerList:
    """Workers that live, with `gone` also those of the last week."""
    with studio.store.reading() as session:
        query = select(Worker).order_by(Worker.host, Worker.started)
        rows = session.scalars(query if gone else query.where(Worker.state != "gone")).all()
        holders = session.scalars(select(Job.worker_id).where(Job.state.in_(ACTIVE))).all()
    now = time.time()
    names = ("id", "host", "version", "state", "devices", "started", "facts")
    shown = [
        WorkerView(
            **{name: getattr(row, name) for name in names},
            silent_seconds=round(max(0.0, now - row.seen), 1),
            jobs=list(holders).count(row.id),
        )
        for row in rows
    ]
    return WorkerList(workers=shown)


@router.post("/workers/{worker_id}/drain", response_model=Done, responses=problems(404), summary="Drain a worker")
def drain_worker(studio: Parts, actor: Administrator, worker_id: WorkerId, asked: Drain | None = None) -> Done:
    """Let a worker finish what it has and take nothing new."""
    on = asked.on if asked is not None else True
    workers.drain(studio.store, worker_id, on)
    with studio.store.writing() as session:
        tell(session, None, "worker_drained", actor.user_id, worker=worker_id, on=on)
    return Done()


@router.get("/leases", response_model=LeaseList, summary="Devices in use")
def list_leases(studio: Parts, actor: Reader) -> LeaseList:
    """Which device has which job."""
    with studio.store.reading() as session:
        rows = session.scalars(select(DeviceLease).order_by(DeviceLease.host, DeviceLease.device)).all()
        query = select(Job.id, Job.name).where(Job.id.in_([row.job_id for row in rows]), visible(actor, Job))
        names = dict(session.execute(query).all())
    plain = ("host", "device", "worker_id", "since")
    shown = [
        LeaseView(
            **{name: getattr(row, name) for name in plain},
            job_id=row.job_id if row.job_id in names else None,
            job_name=names.get(row.job_id),
        )
        for row in rows
    ]
    return LeaseList(leases=shown)
