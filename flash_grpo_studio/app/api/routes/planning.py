"""Before a job: whether a configuration holds, and what it needs."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, ValidationError

from flash_grpo.config import RunConfig, build_config
from flash_grpo.errors import InputError, unknown_name
from flash_grpo_studio.app.api.base import subject
from flash_grpo_studio.app.api.errors import FieldProblem, problems
from flash_grpo_studio.app.api.plans import Machine, PlanView, make_plan
from flash_grpo_studio.app.api.studio import Studio
from flash_grpo_studio.app.api.who import Parts, Reader
from flash_grpo_studio.app.jobs.access import Actor
from flash_grpo_studio.app.jobs.change import NotFound
from flash_grpo_studio.app.jobs.prepare import Prepared, prepare
from flash_grpo_studio.app.jobs.spec import AlignmentAsk

router = subject("planning")


class PlanAsk(AlignmentAsk):
    """An alignment as it would be submitted, and the device to plan it for."""

    memory_gb: float | None = Field(None, gt=0, le=100_000, description="Memory of a device, GB of 1e9 bytes.")
    gpu: str | None = Field(None, max_length=100, description="Take memory and assumed speed of a known GPU.")
    tflops: float | None = Field(None, gt=0, le=1e6, description="Speed a device reaches, in TFLOP/s.")


class Verdict(BaseModel):
    """Whether an alignment could be submitted as it is."""

    valid: bool
    problems: list[FieldProblem] = Field(description="One for each field that does not fit; `field` may be empty.")
    config: dict[str, Any] | None = Field(None, description="The whole configuration, where every field fits.")


def _prepared(studio: Studio, actor: Actor, ask: AlignmentAsk) -> Prepared:
    with studio.store.reading() as session:
        return prepare(session, studio.workspace, actor, ask)


@router.post("/plan", response_model=PlanView, responses=problems(404), summary="What a run would need and spend")
def plan_run(studio: Parts, actor: Reader, asked: PlanAsk) -> PlanView:
    """Memory, cost, disk and time, from the configuration alone; and what to change where it does not fit."""
    spec = _prepared(studio, actor, asked).spec
    machine = Machine(asked.devices, asked.memory_gb, asked.gpu, asked.tflops)
    return make_plan(studio.workspace, RunConfig(**spec["config"]), spec["files"], asked.preset, machine)


@router.post("/validate", response_model=Verdict, summary="Whether a configuration holds")
def validate_run(studio: Parts, actor: Reader, asked: AlignmentAsk) -> Verdict:
    """Check an alignment field by field without submitting it."""
    found = field_by_field(asked)
    if found:
        return Verdict(valid=False, problems=found)
    try:
        prepared = _prepared(studio, actor, asked)
    except (InputError, NotFound) as error:
        return Verdict(valid=False, problems=[_of_sentence(str(error))])
    return Verdict(valid=True, problems=[], config=prepared.spec["config"])


def field_by_field(asked: AlignmentAsk) -> list[FieldProblem]:
    """What is wrong with the configuration keys of a request; an unknown one does not hide the others."""
    overrides = dict(asked.overrides)
    if asked.rewards is not None:
        overrides["rewards"] = asked.rewards
    found = []
    for key in [key for key in overrides if key.partition(".")[0] not in RunConfig.model_fields]:
        overrides.pop(key)
        sentence = str(unknown_name("configuration key", key, RunConfig.model_fields))
        found.append(FieldProblem(field=key[:300], message=sentence))
    try:
        build_config(asked.preset, overrides)
    except InputError as error:
        cause = error.__cause__
        if isinstance(cause, ValidationError):
            found += [_of_problem(entry) for entry in cause.errors()]
        else:
            found.append(_of_sentence(str(error)))
    return found


def _of_problem(entry: Any) -> FieldProblem:
    message = str(entry["msg"]).removeprefix("Value error, ")
    if not entry["loc"]:
        return _of_sentence(message)
    return FieldProblem(field=".".join(map(str, entry["loc"]))[:300], message=message[:1000])


def _of_sentence(sentence: str) -> FieldProblem:
    """Sentences about one field begin with its name."""
    head, separator, rest = sentence.partition(": ")
    if separator and head in RunConfig.model_fields:
        return FieldProblem(field=head, message=rest[:1000])
    return FieldProblem(field="preset" if "preset" in head[:20] else "", message=sentence[:1000])
