"""Server-sent events."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header, Request
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from flash_grpo_studio.app.api.base import JobId, subject
from flash_grpo_studio.app.api.errors import problems
from flash_grpo_studio.app.api.feed import Message
from flash_grpo_studio.app.api.studio import Studio
from flash_grpo_studio.app.api.views import detail
from flash_grpo_studio.app.api.who import Parts, Reader, current_actor
from flash_grpo_studio.app.jobs.access import Actor, fetch
from flash_grpo_studio.app.store.listing import newest_event_id
from flash_grpo_studio.app.store.tables import Job

router = subject("streams")
DESCRIPTION = """Events of the stream: `state` (a state change), `event` (anything else that happened), `progress`
(where an active job is, at most twice a second), `deleted`; `state`, `event` and `deleted` carry an id, and a client
that comes back with `Last-Event-ID` gets what it missed."""
STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": DESCRIPTION, "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}
LastEventId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=30, description="Id of the last event that was received.")
]


@router.get(
    "/jobs/{job_id}/stream",
    response_class=StreamingResponse,
    responses=problems(404) | STREAM,
    summary="What happens with a job, as it happens",
)
async def stream_job(
    studio: Parts, actor: Reader, request: Request, job_id: JobId, last_event_id: LastEventId = None
) -> StreamingResponse:
    """First `job`, the job as it is now; then what happens with it."""
    studio.feed.check_room()

    def begin() -> tuple[int, Message]:
        with studio.store.reading() as session:
            job = fetch(session, actor, Job, job_id)
            number = newest_event_id(session)
            data = detail(session, actor, job).model_dump(mode="json")
            return number, Message("job", data, job.id, job.owner_id, job.shared)

    def recheck() -> Actor:
        found = current_actor(studio, request)
        with studio.store.reading() as session:
            fetch(session, found, Job, job_id)
        return found

    newest, first = await run_in_threadpool(begin)
    body = studio.feed.stream(actor, job_id, first, _after(last_event_id, newest), recheck)
    return _response(body)


@router.get(
    "/stream",
    response_class=StreamingResponse,
    responses=problems() | STREAM,
    summary="What happens with all jobs one may see",
)
async def stream_all(
    studio: Parts, actor: Reader, request: Request, last_event_id: LastEventId = None
) -> StreamingResponse:
    """First `hello`, with the number to come back with; then what happens."""
    studio.feed.check_room()
    newest = await run_in_threadpool(_newest, studio)
    after = _after(last_event_id, newest)
    first = Message("hello", {"id": after}, None, None, id=after)
    body = studio.feed.stream(actor, None, first, after, lambda: current_actor(studio, request))
    return _response(body)


def _newest(studio: Studio) -> int:
    with studio.store.reading() as session:
        return newest_event_id(session)


def _after(last_event_id: str | None, newest: int) -> int:
    """Where to go on; what is no number of ours begins with now."""
    text = last_event_id or ""
    return min(int(text), newest) if text.isascii() and text.isdigit() else newest


def _response(body: Any) -> StreamingResponse:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(body, media_type="text/event-stream", headers=headers)
