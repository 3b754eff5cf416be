"""What people do with jobs: submit, pause, resume, cancel, retry, clone, edit, reorder, delete."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from flash_grpo.control import ask as ask_run
from flash_grpo.errors import InputError
from flash_grpo_studio.app.jobs.access import Actor, fetch
from flash_grpo_studio.app.jobs.change import IllegalTransition, move, tell
from flash_grpo_studio.app.jobs.prepare import edited_spec, parse_ask, prepare
from flash_grpo_studio.app.jobs.spec import AnyAsk
from flash_grpo_studio.app.jobs.states import ACTIVE
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.tables import Job, new_id
from flash_grpo_studio.app.workspace import Workspace

Announce = Callable[[], bool]
"""Tells the workers to look at the store; returns whether the message was sent."""


class JobService:
    """The door for people and pages; workers use `app.jobs.leases` and `app.jobs.attempts`."""

    def __init__(self, store: Store, workspace: Workspace, announce: Announce) -> None:
        self.store, self.workspace, self.announce = store, workspace, announce

    def submit(self, actor: Actor, ask: AnyAsk, cloned_from: str | None = None) -> tuple[Job, bool]:
        """Queue a job; returns it and whether it is new (False: the idempotency key was used before).

        Raises InputError for a configuration or reference that cannot be used, NotFound for things named in it.
        """
        actor.require_write()
        if known := self._asked_before(actor, ask):
            return known, False
        with self.store.reading() as session:
            prepared = prepare(session, self.workspace, actor, ask)
        job_id = new_id()
        try:
            with self.store.writing() as session:
                job = Job(
                    id=job_id,
                    owner_id=actor.user_id,
                    kind=ask.kind,
                    name=ask.name or prepared.name,
                    shared=ask.shared,
                    spec=prepared.spec,
                    preset=prepared.preset,
                    parent_id=prepared.parent_id,
                    cloned_from=cloned_from,
                    idempotency_key=ask.idempotency_key,
                    devices=prepared.devices,
                    machines=prepared.machines,
                    budget=prepared.budget,
                    priority=ask.priority,
                    max_retries=ask.max_retries,
                    updates=prepared.updates,
                    position=_last_position(session) + 1,
                    folder=self.workspace.relative(self.workspace.job(job_id)),
                )
                session.add(job)
                session.flush()
                tell(session, job.id, "state", actor.user_id, **{"from": None, "to": "queued", "message": ""})
        except IntegrityError:
            if known := self._asked_before(actor, ask):  # two clients at once with one key
                return known, False
            raise
        self._announce(job)
        return job, True

    def _asked_before(self, actor: Actor, ask: AnyAsk) -> Job | None:
        if ask.idempotency_key is None:
            return None
        with self.store.reading() as session:
            query = select(Job).where(Job.owner_id == actor.user_id, Job.idempotency_key == ask.idempotency_key)
            return session.scalar(query)

    def cancel(self, actor: Actor, job_id: str) -> Job:
        """End a job for good; a running one is `cancelling` until its processes are gone. It can be resumed later."""
        return self._change(actor, job_id, "cancel", "cancelling", "cancelled")

    def pause(self, actor: Actor, job_id: str) -> Job:
        """Save, stop and free the devices; a queued job is held back."""
        return self._change(actor, job_id, "pause", "pausing", "paused")

    def _change(self, actor: Actor, job_id: str, wish: str, while_active: Any, else_: Any) -> Job:
        with self.store.writing() as session:
            job = fetch(session, actor, Job, job_id, change=True)
            target = while_active if job.state in ACTIVE else else_
            message = f"{actor.name} asked to {wish}"
            ended = time.time() if else_ == "cancelled" and target == else_ else None
            job = move(session, job_id, target, message, wish=wish, user_id=actor.user_id, ended=ended)
        self.announce()
        return job

    def resume(self, actor: Actor, job_id: str) -> Job:
        """Queue a paused or cancelled job again; it goes on from its newest checkpoint."""
        return self._again(actor, job_id, "resume", ("paused", "cancelled"))

    def retry(self, actor: Actor, job_id: str) -> Job:
        """Queue a failed or lost job again, with all its retries."""
        return self._again(actor, job_id, "retry", ("failed", "lost"))

    def _again(self, actor: Actor, job_id: str, wish: str, origins: Any) -> Job:
        with self.store.writing() as session:
            job = fetch(session, actor, Job, job_id, change=True)
            if job.update > 0 and job.kind == "alignment" and not (self.workspace.run(job.id) / "config.yaml").exists():
                raise IllegalTransition(
                    job.state, wish, "its run folder was removed, and its checkpoints with it: clone it to start anew"
                )
            if job.budget is not None and job.device_seconds >= job.budget * 60:
                used = f"{job.device_seconds / 60:.4g} device-minutes of its budget of {job.budget:g} are used"
                raise IllegalTransition(job.state, wish, f"{used}: raise its budget above that first")
            fresh = {"not_before": None, "retries": 0, "ended": None, "announced": False}
            message = f"{actor.name} asked to {wish}"
            job = move(session, job_id, "queued", message, wish=wish, origins=origins, user_id=actor.user_id, **fresh)
        self._announce(job)
        return job

    def request(self, actor: Actor, job_id: str, what: str) -> Job:
        """Ask a running alignment to `save` a checkpoint or `sample` videos after its present update."""
        with self.store.writing() as session:
            job = fetch(session, actor, Job, job_id, change=True)
            if job.state != "running" or job.kind != "alignment":
                raise IllegalTransition(job.state, f"{what} now", "only a running alignment can")
            ask_run(self.workspace.run(job.id), what)
            tell(session, job.id, "request_sent", actor.user_id, request=what)
            return job

    def clone(self, actor: Actor, job_id: str, edits: Mapping[str, Any]) -> tuple[Job, bool]:
        """Submit a job like another one, with some fields of its request changed; overrides and rewards are merged."""
        with self.store.reading() as session:
            original = fetch(session, actor, Job, job_id)
            asked = {**original.spec["ask"], "idempotency_key": None}
        if original.kind != edits.get("kind", original.kind):
            raise InputError(f"a clone stays of its kind, {original.kind}; submit a new job for another kind")
        for key, value in edits.items():
            merge = key == "overrides" and isinstance(value, Mapping)
            asked[key] = {**(asked.get(key) or {}), **value} if merge else value
        return self.submit(actor, parse_ask(asked), cloned_from=original.id)

    def edit(self, actor: Actor, job_id: str, edits: Mapping[str, Any]) -> Job:
        """Change name, shared, priority, budget, max_retries; and overrides while nobody works on the job.

        Once a job has trained, only keys a resumed run may be given anew can change. InputError names the others.
        """
        with self.store.writing() as session:
            job = fetch(session, actor, Job, job_id, change=True)
            for key in ("name", "shared", "priority", "budget", "max_retries"):
                if key in edits:
                    setattr(job, key, edits[key])
            if edits.get("overrides"):
                if job.state in (*ACTIVE, "succeeded"):
                    raise IllegalTransition(job.state, "get another configuration", "pause it first, or clone it")
                job.spec = edited_spec(session, self.workspace, actor, job, edits["overrides"])
                job.updates = job.spec.get("config", {}).get("updates", job.updates)
            job.changed = time.time()
            tell(session, job.id, "edited", actor.user_id, **dict(edits))
            return job

    def reorder(self, actor: Actor, job_id: str, before: str | None) -> Job:
        """Put a queued job right before another queued one, or with None at the end of its priority.

        The job takes the priority of the one it is put before.
        """
        with self.store.writing() as session:
            job = fetch(session, actor, Job, job_id, change=True)
            if job.state != "queued":
                raise IllegalTransition(job.state, "be reordered", "only a queued job can")
            if before is None:
                job.position = _last_position(session) + 1
            elif before != job_id:
                other = fetch(session, actor, Job, before)
                if other.state != "queued":
                    raise IllegalTransition(other.state, "be the one to reorder before", "only a queued job can")
                job.priority = other.priority
                job.position = _position_before(session, job, other)
            tell(session, job.id, "reordered", actor.user_id, before=before)
            return job

    def delete(self, actor: Actor, job_id: str) -> None:
        """Remove a job with its files; one that a worker has must be cancelled first."""
        with self.store.writing() as session:
            job = fetch(session, actor, Job, job_id, change=True)
            if job.state in ACTIVE:
                raise IllegalTransition(job.state, "be deleted", "cancel it first")
            folder, trash = self.workspace.job(job_id), self.workspace.folder / "trash" / f"{job_id}-{new_id()}"
            # The row goes first and the folder is renamed within the transaction: either both are gone or none.
            session.delete(job)
            session.flush()
            tell(session, None, "deleted", actor.user_id, job=job_id, name=job.name)
            if folder.exists():
                folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)

    def _announce(self, job: Job) -> None:
        """Wake the workers; where the broker is away, the watch sends it later (`announced` stays False)."""
        if self.announce():
            with self.store.writing() as session:
                kept = session.get(Job, job.id)
                if kept is not None:
                    kept.announced = True
            job.announced = True


def _position_before(session: Session, job: Job, other: Job) -> float:
    """A position between `other` and the queued job before it; the queue is numbered anew where there is no room."""
    queue = select(Job).where(Job.state == "queued", Job.priority == other.priority, Job.id != job.id)
    order = list(session.scalars(queue.order_by(Job.position, Job.id)))
    place = next(index for index, queued in enumerate(order) if queued.id == other.id)
    earlier = order[place - 1].position if place else other.position - 2
    between = (earlier + other.position) / 2
    if earlier < between < other.position:
        return between
    for index, queued in enumerate(order):
        queued.position = 2.0 * index
    return 2.0 * place - 1


def _last_position(session: Session) -> float:
    return float(session.scalar(select(func.max(Job.position))) or 0.0)
