"""What is done with jobs: cancel, pause, resume, retry, save, sample, clone, reorder, and many at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import Body, Response
from pydantic import BaseModel, Field

from flash_grpo_studio.app.api.base import JobId, Strict, subject
from flash_grpo_studio.app.api.errors import ErrorBody, error_response, problems
from flash_grpo_studio.app.api.studio import Studio
from flash_grpo_studio.app.api.views import SUBMITTED, JobView, view
from flash_grpo_studio.app.api.who import Parts, Writer
from flash_grpo_studio.app.jobs.access import Actor, Forbidden
from flash_grpo_studio.app.jobs.change import IllegalTransition, NotFound
from flash_grpo_studio.app.jobs.states import State
from flash_grpo_studio.app.store.tables import Job

router = subject("jobs")
RESPONSES = problems(404, 409)


class Reorder(Strict):
    """Where to put a queued job."""

    before: str | None = Field(
        None, max_length=32, description="Id of the queued job to put it before; null puts it last."
    )


class BulkAsk(Strict):
    """One action for many jobs."""

    ids: list[Annotated[str, Field(max_length=200)]] = Field(min_length=1, max_length=1000)
    action: Literal["cancel", "pause", "resume", "retry", "delete"]


class BulkResult(BaseModel):
    """What became of one of many jobs."""

    id: str
    ok: bool
    state: State | None = Field(None, description="The state it has now; null if it was deleted or cannot be seen.")
    error: ErrorBody | None = None


class BulkAnswer(BaseModel):
    """The results, in the order of the ids."""

    results: list[BulkResult]


def _shown(studio: Studio, actor: Actor, job: Job) -> JobView:
    with studio.store.reading() as session:
        return view(session, actor, job)


@router.post("/jobs/bulk", response_model=BulkAnswer, summary="One action for many jobs")
def change_many_jobs(studio: Parts, actor: Writer, asked: BulkAsk) -> BulkAnswer:
    """Each job for itself: what cannot be done with one does not keep the others from it."""
    work: dict[str, Callable[[Actor, str], Any]] = {
        "cancel": studio.jobs.cancel,
        "pause": studio.jobs.pause,
        "resume": studio.jobs.resume,
        "retry": studio.jobs.retry,
        "delete": studio.jobs.delete,
    }
    return BulkAnswer(results=[_one(work[asked.action], actor, job_id) for job_id in dict.fromkeys(asked.ids)])


def _one(work: Callable[[Actor, str], Job | None], actor: Actor, job_id: str) -> BulkResult:
    try:
        job = work(actor, job_id)
    except (NotFound, Forbidden, IllegalTransition) as error:
        state = error.state if isinstance(error, IllegalTransition) else None
        body = ErrorBody.model_validate_json(_inner(error))
        return BulkResult(id=job_id, ok=False, state=state, error=body)
    return BulkResult(id=job_id, ok=True, state=job.state if job else None)


def _inner(error: Exception) -> bytes:
    """The error's body as a single request would have had it."""
    return bytes(error_response(error).body).removeprefix(b'{"error":').removesuffix(b"}")


@router.post("/jobs/{job_id}/cancel", response_model=JobView, responses=RESPONSES, summary="Cancel a job")
def cancel_job(studio: Parts, actor: Writer, job_id: JobId) -> JobView:
    """End a job; it is `cancelling` until its processes are gone. It can be resumed later."""
    return _shown(studio, actor, studio.jobs.cancel(actor, job_id))


@router.post("/jobs/{job_id}/pause", response_model=JobView, responses=RESPONSES, summary="Pause a job")
def pause_job(studio: Parts, actor: Writer, job_id: JobId) -> JobView:
    """Save, stop and free the devices; a queued job is held back."""
    return _shown(studio, actor, studio.jobs.pause(actor, job_id))


@router.post("/jobs/{job_id}/resume", response_model=JobView, responses=RESPONSES, summary="Resume a job")
def resume_job(studio: Parts, actor: Writer, job_id: JobId) -> JobView:
    """Queue a paused or cancelled job again; it goes on from its newest checkpoint."""
    return _shown(studio, actor, studio.jobs.resume(actor, job_id))


@router.post("/jobs/{job_id}/retry", response_model=JobView, responses=RESPONSES, summary="Retry a job")
def retry_job(studio: Parts, actor: Writer, job_id: JobId) -> JobView:
    """Queue a failed or lost job again, with all its retries."""
    return _shown(studio, actor, studio.jobs.retry(actor, job_id))


@router.post("/jobs/{job_id}/save", response_model=JobView, responses=problems(404, 409, 507), summary="Save now")
def save_job(studio: Parts, actor: Writer, job_id: JobId) -> JobView:
    """Ask a running alignment for a checkpoint after its present update."""
    return _shown(studio, actor, studio.jobs.request(actor, job_id, "save"))


@router.post("/jobs/{job_id}/sample", response_model=JobView, responses=problems(404, 409, 507), summary="Sample now")
def sample_job(studio: Parts, actor: Writer, job_id: JobId) -> JobView:
    """Ask a running alignment for videos after its present update."""
    return _shown(studio, actor, studio.jobs.request(actor, job_id, "sample"))


@router.post(
    "/jobs/{job_id}/clone",
    status_code=201,
    response_model=JobView,
    responses=SUBMITTED,
    summary="Clone a job",
)
def clone_job(
    studio: Parts,
    actor: Writer,
    response: Response,
    job_id: JobId,
    edits: Annotated[
        dict[str, Any] | None, Body(description="Fields of the request to change; `overrides` are merged.")
    ] = None,
) -> JobView:
    """Submit a job like another one, with some fields of its request changed."""
    job, new = studio.jobs.clone(actor, job_id, edits or {})
    if not new:
        response.status_code = 200
    return _shown(studio, actor, job)


@router.post("/jobs/{job_id}/reorder", response_model=JobView, responses=RESPONSES, summary="Move a job in the queue")
def reorder_job(studio: Parts, actor: Writer, job_id: JobId, asked: Reorder) -> JobView:
    """Put a queued job right before another one, whose priority it takes, or last of its own priority."""
    return _shown(studio, actor, studio.jobs.reorder(actor, job_id, asked.before))
