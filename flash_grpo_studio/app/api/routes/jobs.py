"""Submitting, listing, reading, changing and deleting jobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Body, Query, Response
from pydantic import BaseModel, Discriminator, Field, Tag

from flash_grpo.config import RunConfig, dump_config
from flash_grpo_studio.app.api.base import Cursor, Done, JobId, Limit, Strict, subject
from flash_grpo_studio.app.api.errors import Refused, problems
from flash_grpo_studio.app.api.own_pace import own_paces
from flash_grpo_studio.app.api.plans import Machine, PlanView, plan_of_job
from flash_grpo_studio.app.api.views import SUBMITTED, JobDetail, JobPage, JobView, detail, view, views
from flash_grpo_studio.app.api.who import Parts, Reader, Writer
from flash_grpo_studio.app.jobs.access import fetch, visible
from flash_grpo_studio.app.jobs.spec import (
    AlignmentAsk,
    CompositionAsk,
    ContactSheetAsk,
    DownloadAsk,
    EvaluationAsk,
    ExportAsk,
    Kind,
    NormalisationAsk,
    PreviewAsk,
    PushAsk,
    ScoringAsk,
)
from flash_grpo_studio.app.jobs.states import State
from flash_grpo_studio.app.store.listing import JobFilter, jobs_page, state_counts
from flash_grpo_studio.app.store.rates import read_rate
from flash_grpo_studio.app.store.tables import Job

router = subject("jobs")


def kind_of(value: Any) -> Any:
    """The kind of a request; alignment where it names none."""
    if isinstance(value, dict):
        return value.get("kind", "alignment")
    return getattr(value, "kind", "alignment")


AskBody = Annotated[
    Annotated[AlignmentAsk, Tag("alignment")]
    | Annotated[EvaluationAsk, Tag("evaluation")]
    | Annotated[PreviewAsk, Tag("preview")]
    | Annotated[ScoringAsk, Tag("scoring")]
    | Annotated[NormalisationAsk, Tag("normalisation")]
    | Annotated[CompositionAsk, Tag("composition")]
    | Annotated[ContactSheetAsk, Tag("contact_sheet")]
    | Annotated[ExportAsk, Tag("export")]
    | Annotated[PushAsk, Tag("push")]
    | Annotated[DownloadAsk, Tag("download")],
    Discriminator(kind_of),
]
"""One request per kind, told apart by `kind`."""
EXAMPLES: Any = {
    "smallest": {"summary": "A preset as it is", "value": {"preset": "pocket"}},
    "own": {
        "summary": "Own prompts, rewards and settings",
        "value": {
            "preset": "pocket",
            "name": "bigger subjects",
            "prompts": ["a red circle moves to the left", "a blue square grows"],
            "rewards": {"subject_size": 1.0, "sharpness": 0.0},
            "overrides": {"updates": 50},
            "idempotency_key": "my-first-job",
        },
    },
    "preview": {
        "summary": "Videos of a prompt before and after alignment",
        "value": {"kind": "preview", "job_id": "0123456789abcdef", "prompts": ["a red circle"], "seeds": [0, 1]},
    },
}


class JobEdit(Strict):
    """What to change; fields that are left out stay."""

    name: str = Field("", min_length=1, max_length=200)
    shared: bool = False
    priority: int = Field(0, ge=-1000, le=1000)
    budget: float | None = Field(None, gt=0, description="Device-minutes; null takes the limit away.")
    max_retries: int = Field(3, ge=0, le=100)
    overrides: dict[str, Any] = Field({}, description="Configuration keys and their values, of a job at rest.")


class JobConfig(BaseModel):
    """The configuration of an alignment."""

    config: dict[str, Any]
    yaml: str = Field(description="The same, as `flash-grpo train --config FILE` reads it.")


class JobSpec(BaseModel):
    """What was asked for, whole."""

    kind: Kind
    ask: dict[str, Any]
    task: dict[str, Any] | None = Field(None, description="What a worker is given, for kinds other than alignment.")


@router.post(
    "/jobs",
    status_code=201,
    response_model=JobView,
    responses=SUBMITTED,
    summary="Submit a job",
)
def submit_job(
    studio: Parts, actor: Writer, response: Response, ask: Annotated[AskBody, Body(openapi_examples=EXAMPLES)]
) -> JobView:
    """Queue a job of any kind. For an alignment, the default, only `preset` is needed."""
    job, new = studio.jobs.submit(actor, ask)
    if not new:
        response.status_code = 200
    with studio.store.reading() as session:
        return view(session, actor, job)


@router.get("/jobs", response_model=JobPage, summary="List jobs")
def list_jobs(
    studio: Parts,
    actor: Reader,
    state: Annotated[list[State] | None, Query(description="Only these states; may be repeated.")] = None,
    kind: Annotated[list[Kind] | None, Query(description="Only these kinds; may be repeated.")] = None,
    owner: Annotated[str | None, Query(max_length=64, description="Name or id of the owner; `me` for oneself.")] = None,
    text: Annotated[str | None, Query(max_length=200, description="Part of the name, or the whole id.")] = None,
    parent: Annotated[str | None, Query(max_length=32, description="Jobs made from this alignment.")] = None,
    sort: Literal["-created", "created", "-changed", "changed", "name", "-name", "state", "queue"] = "-created",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> JobPage:
    """The jobs one may see, page by page."""
    wanted = JobFilter(state or (), kind or (), actor.user_id if owner == "me" else owner, text, parent)
    with studio.store.reading() as session:
        seen = visible(actor, Job)
        page = jobs_page(session, seen, wanted, sort, limit, cursor)
        shown = views(session, actor, page.rows)
        return JobPage(jobs=shown, total=page.total, next=page.next, states=state_counts(session, seen))


@router.get("/jobs/{job_id}", response_model=JobDetail, responses=problems(404), summary="A job")
def get_job(studio: Parts, actor: Reader, job_id: JobId) -> JobDetail:
    """State, progress, attempts, newest metrics, and what may be done with it."""
    with studio.store.reading() as session:
        return detail(session, actor, fetch(session, actor, Job, job_id))


@router.get("/jobs/{job_id}/config", response_model=JobConfig, responses=problems(404, 409), summary="Configuration")
def get_job_config(studio: Parts, actor: Reader, job_id: JobId) -> JobConfig:
    """The configuration an alignment runs with, every key written out."""
    with studio.store.reading() as session:
        job = fetch(session, actor, Job, job_id)
        if "config" not in job.spec:
            raise Refused(409, "no_configuration", f"a job of kind {job.kind} has no configuration")
        config = RunConfig(**job.spec["config"])
    return JobConfig(config=config.model_dump(mode="json"), yaml=dump_config(config))


@router.get("/jobs/{job_id}/spec", response_model=JobSpec, responses=problems(404), summary="What was asked for")
def get_job_spec(studio: Parts, actor: Reader, job_id: JobId) -> JobSpec:
    """The request as it was submitted, by which it can be submitted again."""
    with studio.store.reading() as session:
        job = fetch(session, actor, Job, job_id)
        return JobSpec(kind=job.kind, ask=job.spec["ask"], task=job.spec.get("task"))


@router.get("/jobs/{job_id}/plan", response_model=PlanView, responses=problems(404, 409), summary="What it needs")
def get_job_plan(studio: Parts, actor: Reader, job_id: JobId) -> PlanView:
    """What an alignment needs and spends, as planned from its configuration."""
    with studio.store.reading() as session:
        job = fetch(session, actor, Job, job_id)
        if "config" not in job.spec:
            raise Refused(409, "no_configuration", f"a job of kind {job.kind} has no plan")
        spec, preset, rate = job.spec, job.preset, read_rate(session)
        machine = Machine(job.devices, paces=own_paces(session, actor, preset or "", job.devices))
    return plan_of_job(studio.workspace, spec, preset, machine, rate)


@router.patch("/jobs/{job_id}", response_model=JobView, responses=problems(404, 409, 507), summary="Change a job")
def edit_job(studio: Parts, actor: Writer, job_id: JobId, edits: JobEdit) -> JobView:
    """Name, sharing, priority, budget and retries at any time; `overrides` while nobody works on it."""
    job = studio.jobs.edit(actor, job_id, edits.model_dump(exclude_unset=True))
    with studio.store.reading() as session:
        return view(session, actor, job)


@router.delete("/jobs/{job_id}", response_model=Done, responses=problems(404, 409), summary="Delete a job")
def delete_job(studio: Parts, actor: Writer, job_id: JobId) -> Done:
    """Remove a job with its files for good; one that runs must be cancelled first."""
    studio.jobs.delete(actor, job_id)
    return Done()
