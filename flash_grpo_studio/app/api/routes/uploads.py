"""Uploading videos and prompt files."""

from __future__ import annotations

import shutil
from typing import Any

from fastapi import Request
from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from flash_grpo_studio.app.api.base import Cursor, Done, FileId, Limit, PageOf, subject
from flash_grpo_studio.app.api.errors import problems
from flash_grpo_studio.app.api.receive import Received, receive
from flash_grpo_studio.app.api.serving import media_type
from flash_grpo_studio.app.api.studio import Studio
from flash_grpo_studio.app.api.who import Parts, Reader, Writer
from flash_grpo_studio.app.jobs.access import Actor, fetch
from flash_grpo_studio.app.jobs.change import NotFound, tell
from flash_grpo_studio.app.store.listing import paged
from flash_grpo_studio.app.store.tables import File

router = subject("uploads")


class UploadView(BaseModel):
    """An uploaded file."""

    id: str
    name: str
    kind: str = Field(description="`upload` for a video, `prompts` for a text.", examples=["upload"])
    media_type: str
    bytes: int
    created: float
    url: str


class UploadPage(PageOf):
    """A page of uploads."""

    uploads: list[UploadView]


FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            }
        },
    }
}


def _view(row: File) -> UploadView:
    return UploadView(
        id=row.id,
        name=row.name,
        kind=row.kind,
        media_type=media_type(row.name).partition(";")[0],
        bytes=row.bytes,
        created=row.created,
        url=f"/api/v1/files/{row.id}/content",
    )


@router.post(
    "/uploads",
    status_code=201,
    response_model=UploadView,
    responses=problems(415, 507),
    openapi_extra=FORM,
    summary="Upload a video or a prompt file",
)
async def upload(studio: Parts, actor: Writer, request: Request) -> UploadView:
    """A video (mp4, mov, webm, mkv, gif) or prompts in UTF-8 (.txt, .csv, .jsonl), judged by content, not name."""
    received = await receive(request, studio.workspace, studio.limits)
    return await run_in_threadpool(_keep, studio, actor, received)


def _keep(studio: Studio, actor: Actor, received: Received) -> UploadView:
    relative = studio.workspace.relative(received.path)
    try:
        with studio.store.writing() as session:
            row = File(
                id=received.id,
                owner_id=actor.user_id,
                kind=received.kind,
                name=received.name,
                path=relative,
                bytes=received.bytes,
            )
            session.add(row)
            session.flush()
            tell(session, None, "uploaded", actor.user_id, file=row.id, name=row.name, bytes=row.bytes)
    except BaseException:
        shutil.rmtree(received.path.parent, ignore_errors=True)
        raise
    return _view(row)


@router.get("/uploads", response_model=UploadPage, summary="One's own uploads")
def list_uploads(studio: Parts, actor: Reader, limit: Limit = 100, cursor: Cursor = None) -> UploadPage:
    """What one has uploaded, newest first."""
    query = select(File).where(File.job_id.is_(None), File.owner_id == actor.user_id)
    with studio.store.reading() as session:
        page = paged(session, query, [(File.created, True), (File.id, False)], limit, cursor)
    return UploadPage(uploads=[_view(row) for row in page.rows], total=page.total, next=page.next)


@router.delete("/uploads/{file_id}", response_model=Done, responses=problems(404), summary="Delete an upload")
def delete_upload(studio: Parts, actor: Writer, file_id: FileId) -> Done:
    """Remove an uploaded file for good."""
    with studio.store.writing() as session:
        row = _upload(session, actor, file_id)
        session.delete(row)
        tell(session, None, "upload_deleted", actor.user_id, file=row.id, name=row.name)
    shutil.rmtree(studio.workspace.inside(row.path).parent, ignore_errors=True)
    return Done()


def _upload(session: Session, actor: Actor, file_id: str) -> File:
    row = fetch(session, actor, File, file_id, change=True)
    if row.job_id is not None:
        raise NotFound(f"no upload {file_id!r}")
    return row
