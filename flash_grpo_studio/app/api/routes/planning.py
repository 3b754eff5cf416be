"""Before a job: whether a configuration holds, and what it needs."""

from __future__ import annotations

import json
from typing import Any

import yaml
from pydantic import BaseModel, Field, ValidationError

from flash_grpo.config import RunConfig, build_config
from flash_grpo.errors import InputError, unknown_name
from flash_grpo_studio.app.api.base import Strict, subject
from flash_grpo_studio.app.api.checked import parse_json
from flash_grpo_studio.app.api.errors import FieldProblem, problems
from flash_grpo_studio.app.api.limits import Limits
from flash_grpo_studio.app.api.own_pace import own_paces
from flash_grpo_studio.app.api.plans import Machine, PlanView, make_plan
from flash_grpo_studio.app.api.who import Parts, Reader
from flash_grpo_studio.app.jobs.change import NotFound
from flash_grpo_studio.app.jobs.prepare import prepare
from flash_grpo_studio.app.jobs.spec import AlignmentAsk
from flash_grpo_studio.app.store.rates import read_rate

router = subject("planning")
LARGEST_YAML = 500_000
"""Signs; reading more would take seconds."""


class PlanAsk(AlignmentAsk):
    """An alignment as it would be submitted, and the device to plan it for."""

    memory_gb: float | None = Field(None, gt=0, le=100_000, description="Memory of a device, GB of 1e9 bytes.")
    gpu: str | None = Field(None, max_length=100, description="Take memory and assumed speed of a known GPU.")
    tflops: float | None = Field(None, gt=0, le=1e6, description="Speed a device reaches, in TFLOP/s.")
    own: bool = Field(
        False, description="Plan for this studio's own devices: at the pace of an earlier run of the preset, if any."
    )


class Verdict(BaseModel):
    """Whether an alignment could be submitted as it is."""

    valid: bool
    problems: list[FieldProblem] = Field(description="One for each field that does not fit; `field` may be empty.")
    config: dict[str, Any] | None = Field(None, description="The whole configuration, where every field fits.")


class ConfigurationText(Strict):
    """A file as text."""

    text: str = Field(max_length=20_000_000, description="YAML or JSON.")


class ConfigurationRead(BaseModel):
    """What a file holds: a request that was saved, or a configuration. Nothing of it is checked yet."""

    ask: dict[str, Any] | None = Field(None, description="A request, known by its `preset`.")
    config: dict[str, Any] | None = Field(None, description="A configuration; keys the file lacks take their defaults.")


@router.post("/plan", response_model=PlanView, responses=problems(404), summary="What a run would need and spend")
def plan_run(studio: Parts, actor: Reader, asked: PlanAsk) -> PlanView:
    """Memory, cost, disk and time, from the configuration alone; and what to change where it does not fit."""
    with studio.store.reading() as session:
        spec = prepare(session, studio.workspace, actor, asked).spec
        paces = own_paces(session, actor, asked.preset, asked.devices) if asked.own else []
        rate = read_rate(session)
    machine = Machine(asked.devices, asked.memory_gb, asked.gpu, asked.tflops, paces)
    return make_plan(studio.workspace, RunConfig(**spec["config"]), spec["files"], asked.preset, machine, rate)


@router.post("/validate", response_model=Verdict, summary="Whether a configuration holds")
def validate_run(studio: Parts, actor: Reader, asked: AlignmentAsk) -> Verdict:
    """Check an alignment field by field without submitting it."""
    found = field_by_field(asked)
    if found:
        return Verdict(valid=False, problems=found)
    try:
        with studio.store.reading() as session:
            prepared = prepare(session, studio.workspace, actor, asked)
    except (InputError, NotFound) as error:
        return Verdict(valid=False, problems=[_of_sentence(str(error))])
    return Verdict(valid=True, problems=[], config=prepared.spec["config"])


@router.post("/configurations/read", response_model=ConfigurationRead, summary="Read a configuration file")
def read_configuration(actor: Reader, asked: ConfigurationText) -> ConfigurationRead:
    """Understand a configuration as `flash-grpo train --config FILE` does, or a saved request, from YAML or JSON."""
    values = _plain_values(asked.text)
    if not isinstance(values, dict):
        raise InputError("expected a mapping of configuration keys in the file, such as `updates: 20`")
    if "preset" in values:
        return ConfigurationRead(ask=values)
    return ConfigurationRead(config={**RunConfig().model_dump(mode="json"), **values})


def _plain_values(text: str) -> Any:
    """What JSON can hold, from JSON of any size or from YAML of a size that people write."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        if len(text) > LARGEST_YAML:
            raise InputError(f"expected at most {LARGEST_YAML} signs of YAML, got {len(text)}") from None
        try:
            values = yaml.load(text, Loader=_Loader)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())[:300]
            raise InputError(f"the file is neither YAML nor JSON: {reason}; mend it or choose another") from error
    try:
        return parse_json(json.dumps(values).encode(), Limits().depth)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError("the file holds a kind of value that no configuration has; mend it") from error


class _Loader(yaml.SafeLoader):
    """YAML without references, by which a small file can unfold to a huge value, and without dates."""

    def compose_node(self, parent: Any, index: int) -> Any:
        """The next node, unless it refers to another one."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("references (*name) are not taken; write the value out")
        return super().compose_node(parent, index)


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


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
