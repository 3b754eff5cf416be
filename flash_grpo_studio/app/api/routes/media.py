"""Videos by id."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel, Field

from flash_grpo_studio.app.api.base import VideoId, subject
from flash_grpo_studio.app.api.errors import problems
from flash_grpo_studio.app.api.serving import CONTENT, media_type, send_file
from flash_grpo_studio.app.api.who import Parts, Reader
from flash_grpo_studio.app.jobs.access import fetch
from flash_grpo_studio.app.store.tables import Video

router = subject("videos")


class VideoView(BaseModel):
    """A video; update 0 is before alignment, `url` serves it by `Range`."""

    id: str
    job_id: str | None
    update: int | None
    side: str | None
    prompt_id: str | None
    prompt: str | None
    seed: int | None
    strength: float | None = Field(description="Of the adapter in a preview; null is as it was trained.")
    noise: str | None = Field(description="Seed of the starting noise, which has 63 bits; null where it is not known.")
    bytes: int
    scores: dict[str, Any] = Field(description="Reward name to value.")
    media_type: str
    created: float
    url: str


def video_view(row: Video) -> VideoView:
    """A video as clients see it."""
    plain = ("id", "job_id", "update", "side", "prompt_id", "prompt", "seed", "strength", "bytes", "scores", "created")
    facts = {name: getattr(row, name) for name in plain}
    noise = str(row.noise) if row.noise is not None else None
    return VideoView(**facts, noise=noise, media_type=media_type(row.path), url=f"/api/v1/videos/{row.id}/content")


@router.get("/videos/{video_id}", response_model=VideoView, responses=problems(404), summary="A video")
def get_video(studio: Parts, actor: Reader, video_id: VideoId) -> VideoView:
    """What is known of a video."""
    with studio.store.reading() as session:
        return video_view(fetch(session, actor, Video, video_id))


@router.get("/videos/{video_id}/content", response_class=Response, responses=CONTENT, summary="A video's content")
def get_video_content(studio: Parts, actor: Reader, request: Request, video_id: VideoId) -> Response:
    """The video itself; `Range` is served."""
    with studio.store.reading() as session:
        row = fetch(session, actor, Video, video_id)
    return send_file(request, studio.workspace, row.path, PurePosixPath(row.path).name)
