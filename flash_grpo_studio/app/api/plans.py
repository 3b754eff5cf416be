"""Plans as clients see them: what a configuration needs and spends, what to change, and how to run it elsewhere."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from pydantic import BaseModel, Field

from flash_grpo.config import RunConfig, build_config, dump_config, presets
from flash_grpo.errors import InputError
from flash_grpo.plan import Plan, PromptSets, plain, plan, with_speed
from flash_grpo.planning.advice import advise
from flash_grpo.planning.architecture import load_pipeline
from flash_grpo.planning.footprint import Kind
from flash_grpo.planning.speed import assumed_speed, gpu_named, speed_named
from flash_grpo.prompts import load_prompts
from flash_grpo_studio.app.api.estimates import Between
from flash_grpo_studio.app.api.own_pace import OwnPace
from flash_grpo_studio.app.jobs.spec import MAX_PROMPTS
from flash_grpo_studio.app.store.rates import Rate
from flash_grpo_studio.app.workspace import Workspace

_planning = threading.Semaphore(2)
"""Plans are arithmetic: more of them at once would only take the other requests' time."""
LARGEST_COUNT = 10**9


class PlanPrice(Between):
    """What a run is expected to cost by the studio's rate, for all its devices."""

    currency: str


class PlanView(BaseModel):
    """A plan. `plan` is what `flash-grpo plan --json` prints."""

    plan: dict[str, Any]
    price: PlanPrice | None = Field(None, description="Null where no rate is set or the time is not known.")
    advice: dict[str, Any] = Field(description="Single changes and combinations that would need less memory.")
    command: str = Field(description="The command line that trains the same.", examples=["flash-grpo train --preset x"])
    config: dict[str, Any]
    yaml: str = Field(description="The configuration as `flash-grpo train --config FILE` reads it.")


@dataclass(frozen=True)
class Machine:
    """What the plan is for: memory of a device in GB, a known GPU by name, its speed in TFLOP/s, or earlier paces."""

    devices: int = 1
    memory: float | None = None
    gpu: str | None = None
    tflops: float | None = None
    paces: Sequence[OwnPace] = ()


def make_plan(
    workspace: Workspace,
    config: RunConfig,
    files: Mapping[str, Any],
    preset: str | None,
    machine: Machine,
    rate: Rate | None = None,
) -> PlanView:
    """Plan a configuration whose prompts may be `files` of the request. Raises InputError."""
    for key in ("updates", "prompts_per_update", "rollout_batch", "decode_batch", "replay_batch", "videos_saved"):
        if getattr(config, key) > LARGEST_COUNT:
            raise InputError(f"{key}: expected at most {LARGEST_COUNT}, got {getattr(config, key)}")
    with _planning:
        planned = _planned(config.model_copy(update={"model": _model(workspace, config.model)}), files, machine)
        paced = (pace.speed(config, planned) for pace in machine.paces)
        if (speed := next(filter(None, paced), None)) is not None:
            planned = with_speed(planned, speed)
        advice = advise(planned).plain()
    return PlanView(
        plan={**plain(planned), "model": config.model},
        price=_price(planned, rate),
        advice=advice,
        command=command_line(config, preset),
        config=config.model_dump(mode="json"),
        yaml=dump_config(config),
    )


def _planned(config: RunConfig, files: Mapping[str, Any], machine: Machine) -> Plan:
    pipeline = load_pipeline(config.model)
    memory, speed = machine.memory, None
    if machine.gpu is not None:
        memory = gpu_named(machine.gpu).memory if memory is None else memory
        speed = assumed_speed(machine.gpu, config.dtype)
    if machine.tflops is not None:
        speed = speed_named(f"{machine.tflops:g}", config, pipeline)
    kind: Kind | None = "gpu" if machine.gpu is not None else None
    prompts = _prompts(config, files) if files else None
    return plan(config, machine.devices, memory, speed, kind, pipeline, prompts)


def _price(planned: Plan, rate: Rate | None) -> PlanPrice | None:
    if rate is None or planned.duration is None:
        return None
    low, high = (rate.price(seconds * planned.devices) for seconds in planned.duration.range)
    return PlanPrice(low=low, high=high, currency=rate.currency)


def _model(workspace: Workspace, model: str) -> str:
    """A downloaded model is named relative to the folder of a job."""
    return str(workspace.inside(model.removeprefix("../../"))) if model.startswith("../../") else model


def _prompts(config: RunConfig, files: Mapping[str, Any]) -> PromptSets:
    def texts(source: str, limit: int) -> list[str]:
        if source in files:
            return [str(entry["prompt"]) for entry in files[source][:limit]]
        return [prompt.text for prompt in load_prompts(source, limit)]

    drawn = min(config.updates * config.prompts_per_update, MAX_PROMPTS)
    training = texts(config.prompts, MAX_PROMPTS)
    validation = texts(config.validation_prompts, config.validation_limit)
    heldout = texts(config.heldout_prompts, config.heldout_limit)
    seen = (*training[:drawn], *validation, *heldout)
    return PromptSets(len(training), len(validation), len(heldout), seen, ())


def plan_of_job(
    workspace: Workspace, spec: Mapping[str, Any], preset: str | None, machine: Machine, rate: Rate | None
) -> PlanView:
    """The plan of a job as it was submitted."""
    return make_plan(workspace, RunConfig(**spec["config"]), spec["files"], preset, machine, rate)


def command_line(config: RunConfig, preset: str | None) -> str:
    """The command that trains the same: the preset and what differs from it."""
    if preset is None or preset not in presets():
        return "flash-grpo train --config config.yaml"
    base, values = build_config(preset).model_dump(mode="json"), config.model_dump(mode="json")
    words = ["flash-grpo", "train", "--preset", preset]
    for key, value in values.items():
        if value != base[key]:
            words += ["--set", f"{key}={_written(value)}"]
    return shlex.join(words)


def _written(value: Any) -> str:
    """A value as `--set` reads it, on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True)
    return text.removesuffix("...\n").strip()
