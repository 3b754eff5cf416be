"""Files and videos of a job."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query, Request, Response
from pydantic import BaseModel
from sqlalchemy import BigInteger, Integer, String, func, select

from flash_grpo_studio.app.api.base import Cursor, FileId, JobId, Limit, PageOf, subject
from flash_grpo_studio.app.api.errors import problems
from flash_grpo_studio.app.api.job_files import WRITTEN, registered
from flash_grpo_studio.app.api.routes.media import VideoView, video_view
from flash_grpo_studio.app.api.serving import CONTENT, media_type, send_file, send_words
from flash_grpo_studio.app.api.who import Parts, Reader
from flash_grpo_studio.app.jobs.access import fetch
from flash_grpo_studio.app.store.listing import paged
from flash_grpo_studio.app.store.tables import File, Job, Video

router = subject("files")


class FileView(BaseModel):
    """A file that can be fetched by its id."""

    id: str
    kind: str
    name: str
    path: str
    bytes: int
    media_type: str
    created: float
    url: str


class FileList(BaseModel):
    """Files of a job; `path` is relative to its folder."""

    files: list[FileView]


class VideoPage(PageOf):
    """A page of videos."""

    videos: list[VideoView]


@router.get("/jobs/{job_id}/files", response_model=FileList, responses=problems(404), summary="Files")
def list_job_files(studio: Parts, actor: Reader, job_id: JobId) -> FileList:
    """Configuration, summary, charts, logs, events and exports, as far as they are there."""
    with studio.store.reading() as session:
        job = fetch(session, actor, Job, job_id)
    rows = registered(studio.store, studio.workspace, job)
    return FileList(files=[file_view(row, size, job.folder) for row, size in rows])


def file_view(row: File, size: int, folder: str) -> FileView:
    """A file as clients see it."""
    return FileView(
        id=row.id,
        kind=row.kind,
        name=row.name,
        path=row.path.removeprefix(f"{folder}/"),
        bytes=size,
        media_type=media_type(row.name).partition(";")[0],
        created=row.created,
        url=f"/api/v1/files/{row.id}/content",
    )


@router.get("/jobs/{job_id}/videos", response_model=VideoPage, responses=problems(404), summary="Videos")
def list_job_videos(
    studio: Parts,
    actor: Reader,
    job_id: JobId,
    update: Annotated[int | None, Query(ge=0, le=2**31 - 1, description="Only of this update.")] = None,
    side: Annotated[Literal["before", "after"] | None, Query(description="Only this side.")] = None,
    prompt_id: Annotated[str | None, Query(max_length=200, description="Only of this prompt.")] = None,
    limit: Limit = 200,
    cursor: Cursor = None,
) -> VideoPage:
    """A job's videos in the order of update, prompt and seed."""
    with studio.store.reading() as session:
        job = fetch(session, actor, Job, job_id)
        query = select(Video).where(Video.job_id == job.id)
        for column, wanted in ((Video.update, update), (Video.side, side), (Video.prompt_id, prompt_id)):
            if wanted is not None:
                query = query.where(column == wanted)
        order = (
            (func.coalesce(Video.update, -1, type_=Integer), False),
            (func.coalesce(Video.prompt_id, "", type_=String), False),
            (func.coalesce(Video.seed, -1, type_=BigInteger), False),
            (Video.id, False),
        )
        page = paged(session, query, order, limit, cursor)
    return VideoPage(videos=[video_view(row) for row in page.rows], total=page.total, next=page.next)


@router.get("/files/{file_id}", response_model=FileView, responses=problems(404), summary="A file")
def get_file(studio: Parts, actor: Reader, file_id: FileId) -> FileView:
    """What is known of a file."""
    with studio.store.reading() as session:
        row = fetch(session, actor, File, file_id)
        job = session.get(Job, row.job_id) if row.job_id else None
    return file_view(row, row.bytes, job.folder if job else "uploads")


@router.get("/files/{file_id}/content", response_class=Response, responses=CONTENT, summary="A file's content")
def get_file_content(studio: Parts, actor: Reader, request: Request, file_id: FileId) -> Response:
    """The file itself; `Range` is served. Only videos and pictures are shown in a page, all else is a download.

    What a job's processes wrote comes whole, and passwords and tokens are blotted out.
    """
    with studio.store.reading() as session:
        row = fetch(session, actor, File, file_id)
    if row.kind in WRITTEN:
        return send_words(studio.workspace, row.path, row.name)
    return send_file(request, studio.workspace, row.path, row.name)
