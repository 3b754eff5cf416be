"""Whether everything is there."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from sqlalchemy import func, select

from flash_grpo_studio.app.api.base import operation_id
from flash_grpo_studio.app.api.studio import Studio
from flash_grpo_studio.app.api.who import Parts, find_actor
from flash_grpo_studio.app.store.engine import StoreUnavailable
from flash_grpo_studio.app.store.tables import Worker

router = APIRouter(tags=["health"], generate_unique_id_function=operation_id)
LITTLE_BYTES = 2 * 10**9


class Part(BaseModel):
    """One part of the studio."""

    ok: bool
    message: str = Field(examples=["answers"])


class Health(BaseModel):
    """`degraded` says that something is away, and the parts say what. Who is not logged in is told less."""

    status: Literal["ok", "degraded"]
    version: str
    database: Part
    broker: Part
    workers: Part
    disk: Part
    free_bytes: int | None = Field(None, description="Room on the workspace's disk.")
    workspace: str | None = None
    login_needed: bool | None = Field(None, description="Whether the studio has a login; null where that is unknown.")


@router.get("/health", response_model=Health, summary="Whether everything is there")
def health(request: Request, studio: Parts) -> Health:
    """Always 200 while the server runs, also when another part is away."""
    trouble = studio.database_problem()
    known = login_needed = None
    if trouble is None:
        try:
            known, login_needed = find_actor(studio, request), studio.accounts.login_needed()
        except StoreUnavailable as error:
            trouble = str(error)
    database = Part(ok=trouble is None, message=trouble or "answers")
    keeping = studio.housekeeping
    broker = Part(ok=keeping.broker_ok is not False, message=keeping.broker)
    workers = _workers(studio) if trouble is None else Part(ok=False, message="unknown while the database is away")
    free, disk = _disk(studio)
    whole = all(part.ok for part in (database, broker, workers, disk))
    found = Health(
        status="ok" if whole else "degraded",
        version=request.app.version,
        database=database,
        broker=broker,
        workers=workers,
        disk=disk,
        login_needed=login_needed,
    )
    if known is not None:
        found.free_bytes, found.workspace = free, str(studio.workspace.folder)
    elif studio.settings.loopback is False:
        for part in (found.database, found.broker, found.disk):
            part.message = "answers" if part.ok else "away"
    return found


def _workers(studio: Studio) -> Part:
    try:
        with studio.store.reading() as session:
            rows = session.execute(select(Worker.state, func.count()).group_by(Worker.state))
            counts = dict(rows.all())
    except StoreUnavailable:
        return Part(ok=False, message="unknown while the database is away")
    active, draining = counts.get("active", 0), counts.get("draining", 0)
    if not active:
        also = f" ({draining} draining)" if draining else ""
        return Part(ok=False, message=f"none is running{also}; start one with: flash-grpo worker")
    return Part(ok=True, message=f"{active} active" + (f", {draining} draining" if draining else ""))


def _disk(studio: Studio) -> tuple[int | None, Part]:
    try:
        free = studio.workspace.free_bytes()
    except OSError as error:
        return None, Part(ok=False, message=f"the workspace cannot be read: {error.strerror}")
    return free, Part(ok=free >= LITTLE_BYTES, message=f"{free / 1e9:.1f} GB free")
