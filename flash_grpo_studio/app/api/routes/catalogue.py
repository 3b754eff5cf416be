"""What there is to choose from: presets, models, rewards and the configuration's schema, as the command line has it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any, Literal

import yaml
from fastapi import Request, Response
from pydantic import BaseModel, Field, TypeAdapter

from flash_grpo.config import RunConfig, build_config, preset_config, presets
from flash_grpo.planning.speed import gpus
from flash_grpo.prompts import BUILT_IN, SETS, built_in_set
from flash_grpo.rewards.registry import available
from flash_grpo.rewards.status import described
from flash_grpo_studio.app.api.base import subject
from flash_grpo_studio.app.api.who import Reader

router = subject("catalogue")
UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "Not changed since the ETag sent."}}


class Preset(BaseModel):
    """A preset; `config` holds what it sets, `whole` every key."""

    name: str
    description: str
    verified: bool
    model: str
    config: dict[str, Any]
    whole: dict[str, Any]


class ModelCard(BaseModel):
    """A model that is known to work."""

    name: str
    title: str
    description: str
    source: str
    family: str
    parameters: str
    licence: str
    verified: bool
    presets: list[str] = Field([])


class RewardOption(BaseModel):
    """An option of a reward."""

    default: bool | int | float | str
    help: str


class RewardCost(BaseModel):
    """Measured on one CPU core."""

    pocket_seconds: float | None
    video_seconds: float | None
    memory_mb: int | None


class RewardWeightFile(BaseModel):
    """A file of weights; `becomes` is what `flash-grpo rewards convert` makes of it."""

    name: str
    size: int | None
    sha256: str | None
    becomes: str | None


class RewardWeights(BaseModel):
    """Weights that a reward loads."""

    repo: str
    revision: str | None
    files: list[RewardWeightFile]


class RewardStatus(BaseModel):
    """What stands between a reward and its use on this machine."""

    state: Literal["ready", "download", "server", "later"]
    bytes: int = Field(description="To download, as far as it is known.")
    missing: list[str]


class RewardCard(BaseModel):
    """What is to be known about a reward before choosing it.

    `upstream_equality` and `real_weights` begin with verified or unverified; null where there is nothing to compare.
    """

    name: str
    title: str
    measures: str
    badge: str
    range: list[float | None] = Field(min_length=2, max_length=2)
    per: Literal["frame", "video"]
    higher_is_better: bool
    groupwise: bool
    cost: RewardCost
    exploits: list[str]
    options: dict[str, RewardOption]
    licence: str
    verified: bool
    available: bool
    requires: str | None
    paper: str | None
    weights: list[RewardWeights]
    memory_mb: int | None
    device: Literal["cpu", "gpu"]
    environment: str | None
    asks_server: bool
    tested_versions: dict[str, str]
    upstream_equality: str | None
    real_weights: str | None
    status: RewardStatus


class Sizes(BaseModel):
    """How many prompts there are by split."""

    train: int
    validation: int
    heldout: int


class CategorySizes(Sizes):
    """A category of a built-in prompt set."""

    name: str


class BuiltInSizes(Sizes):
    """A built-in prompt set; `studio:train` names its training prompts, `studio:train:people+food` two categories."""

    name: str
    categories: list[CategorySizes] = Field(description="In order; sets of the pocket world have none.")


class Choices(BaseModel):
    """Built-in prompt sets and GPUs the planner knows."""

    prompt_sets: list[str] = Field(description="Names with their split, as a configuration uses them.")
    built_in_prompts: list[BuiltInSizes]
    gpus: list[str]


@cache
def _presets() -> list[Preset]:
    return [
        Preset(
            name=name,
            description=entry["description"],
            verified=entry["verified"],
            model=preset_config(name)["model"],
            config=preset_config(name),
            whole=build_config(name).model_dump(mode="json"),
        )
        for name, entry in sorted(presets().items())
    ]


@cache
def _models() -> list[ModelCard]:
    folder = resources.files("flash_grpo") / "models" / "cards"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    return [ModelCard(**yaml.safe_load(file.read_text(encoding="utf-8"))) for file in files]


def _rewards() -> list[RewardCard]:
    cards = sorted(available().values(), key=lambda card: card.name)
    return [RewardCard(**described(card)) for card in cards]


@cache
def _built_in_prompts() -> list[BuiltInSizes]:
    found = []
    for name in SETS:
        known = built_in_set(name)
        categories = [CategorySizes(name=category, **sizes) for category, sizes in known.categories.items()]
        found.append(BuiltInSizes(name=name, categories=categories, **known.counts))
    return found


@cache
def _schema() -> dict[str, Any]:
    return RunConfig.model_json_schema()


@cache
def _choices() -> Choices:
    return Choices(prompt_sets=list(BUILT_IN), built_in_prompts=_built_in_prompts(), gpus=sorted(gpus()))


@cache
def _written(read: Callable[[], Any]) -> tuple[bytes, str]:
    """The answer that never changes while the server runs, as it is sent, and its ETag."""
    return _written_now(read)


def _written_now(read: Callable[[], Any]) -> tuple[bytes, str]:
    content: bytes = TypeAdapter(Any).dump_json(read())
    return content, f'"{sha256(content).hexdigest()[:32]}"'


def _answer(
    request: Request, read: Callable[[], Any], written: Callable[..., tuple[bytes, str]] = _written
) -> Response:
    content, etag = written(read)
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="application/json", headers=headers)


@router.get("/presets", response_model=list[Preset], responses=UNCHANGED, summary="Presets")
def list_presets(request: Request, actor: Reader) -> Response:
    """All presets by name."""
    return _answer(request, _presets)


@router.get("/models", response_model=list[ModelCard], responses=UNCHANGED, summary="Models")
def list_models(request: Request, actor: Reader) -> Response:
    """Cards of the models that are known to work."""
    return _answer(request, _models)


@router.get("/rewards", response_model=list[RewardCard], responses=UNCHANGED, summary="Rewards")
def list_rewards(request: Request, actor: Reader) -> Response:
    """Cards of all rewards; those not `available` come with a later release. `status` is as of now."""
    return _answer(request, _rewards, _written_now)


@router.get("/schema", response_model=dict[str, Any], responses=UNCHANGED, summary="Schema of the configuration")
def get_schema(request: Request, actor: Reader) -> Response:
    """JSON schema of a run's configuration; `group` and `may_change` tell where a key belongs."""
    return _answer(request, _schema)


@router.get("/choices", response_model=Choices, responses=UNCHANGED, summary="Built-in prompt sets and known GPUs")
def list_choices(request: Request, actor: Reader) -> Response:
    """Names that a configuration or a plan may use."""
    return _answer(request, _choices)
