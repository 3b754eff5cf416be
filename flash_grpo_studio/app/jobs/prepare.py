"""From what was asked to what a worker runs: configuration and references checked, prompts copied, paths inside."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from flash_grpo.config import RunConfig, build_config, preset_config, validate_config, with_overrides
from flash_grpo.errors import InputError, unknown_name
from flash_grpo.planning.architecture import BUILT_IN as BUILT_IN_MODELS
from flash_grpo.prompts import BUILT_IN as BUILT_IN_PROMPTS
from flash_grpo.prompts import is_built_in
from flash_grpo.rewards.registry import load_card
from flash_grpo_studio.app.jobs import prepare_media
from flash_grpo_studio.app.jobs.access import Actor, fetch
from flash_grpo_studio.app.jobs.change import IllegalTransition
from flash_grpo_studio.app.jobs.prepared import Prepared
from flash_grpo_studio.app.jobs.spec import (
    ASKS,
    AlignmentAsk,
    AnyAsk,
    CompositionAsk,
    ContactSheetAsk,
    DownloadAsk,
    EvaluationAsk,
    ExportAsk,
    NormalisationAsk,
    PreviewAsk,
    PushAsk,
    ScoringAsk,
)
from flash_grpo_studio.app.jobs.states import ACTIVE
from flash_grpo_studio.app.store.tables import BaseModelEntry, Checkpoint, File, Job, PromptSet, Video
from flash_grpo_studio.app.workspace import Workspace

PROMPTS_FILE, VALIDATION_FILE, HELDOUT_FILE = "prompts.jsonl", "validation.jsonl", "heldout.jsonl"
"""In the job's folder, where its processes run; the configuration names them relative to it."""
PROMPT_KEYS = ("prompts", "validation_prompts", "heldout_prompts")
MAX_UPDATES = 2**31 - 1
"""What the store can count."""
SPLIT_FROM = 8
"""From this many held-out prompts on, a set replaces the preset's validation and held-out prompts, half each."""


@dataclass
class _Prompts:
    overrides: dict[str, Any] = field(default_factory=dict)
    files: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def without(self, overrides: Mapping[str, Any]) -> _Prompts:
        """These prompts beside what `overrides` say of validation and held-out ones, which goes first."""
        if "prompts" in overrides and self.overrides:
            raise InputError("prompts came twice, as `prompts` and in `overrides`; give them once")
        kept = {key: file for key, file in self.overrides.items() if key not in overrides}
        return _Prompts(kept, {file: lines for file, lines in self.files.items() if file in kept.values()})


def parse_ask(values: Mapping[str, Any]) -> AnyAsk:
    """Check a request; InputError with one sentence per problem."""
    kind = values.get("kind", "alignment")
    if kind not in ASKS:
        raise unknown_name("kind", str(kind), ASKS)
    try:
        ask: Any = ASKS[kind](**values)
    except ValidationError as error:
        problems = (f"{'.'.join(map(str, p['loc'])) or kind}: {p['msg']}" for p in error.errors())
        raise InputError("; ".join(problems)) from error
    parsed: AnyAsk = ask
    return parsed


def prepare(session: Session, workspace: Workspace, actor: Actor, ask: AnyAsk) -> Prepared:
    """Check everything a request names. Raises InputError, NotFound, Forbidden or IllegalTransition (of a parent)."""
    asked = ask.model_dump(mode="json")
    if isinstance(ask, AlignmentAsk):
        return _alignment(session, workspace, actor, ask, asked)
    if isinstance(ask, DownloadAsk):
        wanted = {"repo": ask.repo, "revision": ask.revision, "what": ask.what}
        return Prepared(f"download {ask.repo}", {"ask": asked, "task": wanted}, devices=0)
    if isinstance(ask, NormalisationAsk):
        upload = fetch(session, actor, File, ask.file_id)
        if upload.kind != "upload":
            raise InputError(f"expected the id of an uploaded file, got a {upload.kind}; upload the video first")
        task: dict[str, Any] = {"path": upload.path, "fps": ask.fps, "max_side": ask.max_side, "prompt": ask.prompt}
        return Prepared(f"normalise {upload.name}", {"ask": asked, "task": task}, devices=0)
    if isinstance(ask, ScoringAsk):
        return _scoring(session, actor, ask, asked)
    if isinstance(ask, CompositionAsk):
        return prepare_media.composition(session, actor, ask, asked)
    if isinstance(ask, ContactSheetAsk):
        return prepare_media.contact_sheet(session, actor, ask, asked)
    if isinstance(ask, PushAsk):
        return prepare_media.push(session, workspace, actor, ask, asked)
    return _of_a_run(session, workspace, actor, ask, asked)


def _of_a_run(
    session: Session, workspace: Workspace, actor: Actor, ask: EvaluationAsk | PreviewAsk | ExportAsk, asked: Any
) -> Prepared:
    parent = fetch(session, actor, Job, ask.job_id)
    if parent.kind != "alignment":
        raise InputError(f"expected the id of an alignment, got one of kind {parent.kind}")
    if not session.scalar(select(func.count()).select_from(Checkpoint).where(Checkpoint.job_id == parent.id)):
        raise InputError(f"the alignment {parent.name!r} has no checkpoint yet; wait for its first one")
    if ask.kind == "evaluation" and parent.state in ACTIVE:
        raise IllegalTransition(parent.state, "be evaluated beside its training", "pause it or wait for its end")
    task: dict[str, Any] = {"run": workspace.relative(workspace.run(parent.id))}
    devices = 1
    if isinstance(ask, PreviewAsk):
        keys = ("prompts", "seeds", "checkpoint", "strength", "side")
        task |= {key: asked[key] for key in keys}
    if isinstance(ask, ExportAsk):
        task |= {"format": ask.format, "checkpoint": ask.checkpoint, "name": _file_name(parent)}
        devices = 0
    return Prepared(f"{ask.kind} of {parent.name}", {"ask": asked, "task": task}, None, parent.id, devices)


def _file_name(job: Job) -> str:
    """By which an alignment's exports are told apart where many lie in one folder."""
    words = re.sub(r"[^a-z0-9]+", "-", job.name.lower()).strip("-")[:40].rstrip("-")
    return f"{words or job.kind}-{job.id[:6]}"


def _scoring(session: Session, actor: Actor, ask: ScoringAsk, asked: Any) -> Prepared:
    for reward in ask.rewards:
        _check_reward(actor, reward, ask.reward_options)
    videos = []
    for video_id in ask.video_ids:
        video = fetch(session, actor, Video, video_id)
        videos.append({"id": video.id, "path": video.path, "prompt": ask.prompt or video.prompt or ""})
    task = {"videos": videos, "rewards": ask.rewards, "reward_options": ask.reward_options}
    plural = "video" if len(videos) == 1 else "videos"
    return Prepared(f"score {len(videos)} {plural}", {"ask": asked, "task": task})


def _alignment(session: Session, workspace: Workspace, actor: Actor, ask: AlignmentAsk, asked: Any) -> Prepared:
    overrides = dict(ask.overrides)
    if ask.rewards is not None:
        if "rewards" in overrides:
            raise InputError("rewards came twice, as `rewards` and in `overrides`; give them once")
        overrides["rewards"] = dict(ask.rewards)
    if ask.heldout and overrides.keys() >= {"validation_prompts", "heldout_prompts"}:
        raise InputError("heldout came twice, as `heldout` and in `overrides`; give it once")
    own = _own_prompts(session, actor, ask).without(overrides)
    base = preset_config(ask.preset)
    config = build_config(ask.preset, {**overrides, **own.overrides})
    config = _checked(session, workspace, actor, config, str(base["model"]), own.files)
    _check_share(config, ask.devices * ask.machines)
    if ask.machines > 1:
        raise InputError(f"expected machines 1, got {ask.machines}: one job over several machines comes later")
    name = f"{ask.preset}: {', '.join(reward for reward, weight in config.rewards.items() if weight)}"
    spec = {"ask": asked, "config": config.model_dump(mode="json"), "files": own.files}
    return Prepared(name[:200], spec, ask.preset, None, ask.devices, ask.machines, ask.budget, updates=config.updates)


def _check_share(config: RunConfig, devices: int) -> None:
    if config.prompts_per_update % devices:
        raise InputError(
            f"prompts_per_update {config.prompts_per_update} does not divide among {devices} devices; change either"
        )


def _own_prompts(session: Session, actor: Actor, ask: AlignmentAsk) -> _Prompts:
    if ask.heldout and not isinstance(ask.prompts, list):
        raise InputError("heldout: expected only beside `prompts` as a list; a prompt set has held-out prompts itself")
    if ask.prompts is None:
        return _Prompts()
    if isinstance(ask.prompts, list):
        return _split([{"prompt": text} for text in ask.prompts], [{"prompt": text} for text in ask.heldout or ()])
    chosen = fetch(session, actor, PromptSet, ask.prompts)
    if not chosen.prompts:
        raise InputError(f"the prompt set {chosen.name!r} is empty; add prompts to it first")
    return _split(_as_lines(chosen.prompts), _as_lines(chosen.heldout))


def _split(training: list[dict[str, Any]], heldout: list[dict[str, Any]]) -> _Prompts:
    """The files of a job for prompts that are not built in."""
    found = _Prompts({"prompts": PROMPTS_FILE}, {PROMPTS_FILE: training})
    if len(heldout) >= SPLIT_FROM:
        half = len(heldout) // 2
        found.overrides |= {"validation_prompts": VALIDATION_FILE, "heldout_prompts": HELDOUT_FILE}
        found.files |= {VALIDATION_FILE: heldout[:half], HELDOUT_FILE: heldout[half:]}
    return found


def _as_lines(prompts: list[Any]) -> list[dict[str, Any]]:
    return [{"id": prompt["id"], "prompt": prompt["text"]} for prompt in prompts]


def _checked(
    session: Session, workspace: Workspace, actor: Actor, config: RunConfig, preset_model: str, files: Mapping[str, Any]
) -> RunConfig:
    """The configuration with its model resolved; only administrators may name files of the server or modules."""
    for key in PROMPT_KEYS:
        value = getattr(config, key)
        if not _built_in(key, value) and value not in files and not actor.admin:
            raise InputError(
                f"{key}: expected one of the built-in sets ({', '.join(BUILT_IN_PROMPTS)}), got {value!r}; give your "
                "own prompts as `prompts`, as a list or as the id of a prompt set"
            )
    if config.updates > MAX_UPDATES:
        raise InputError(f"updates: expected at most {MAX_UPDATES}, got {config.updates}")
    for reward in config.rewards:
        _check_reward(actor, reward, config.reward_options)
    model = config.model
    entry = session.scalar(select(BaseModelEntry).where((BaseModelEntry.id == model) | (BaseModelEntry.name == model)))
    if entry is not None:
        # Relative to the job's folder, so that a workspace may lie elsewhere on another machine.
        return validate_config({**config.model_dump(), "model": f"../../{entry.path}"})
    if model not in BUILT_IN_MODELS and model != preset_model and not actor.admin:
        raise InputError(
            f"model: expected a built-in model ({', '.join(BUILT_IN_MODELS)}) or one of the downloaded base models, "
            f"got {model!r}; download it first, by a job of kind download"
        )
    return config


def _built_in(key: str, source: str) -> bool:
    try:
        return is_built_in(source)
    except InputError as error:  # a form shows the sentence beside the field that it begins with
        raise InputError(f"{key}: {error}") from error


def _check_reward(actor: Actor, name: str, options: Mapping[str, Mapping[str, Any]]) -> None:
    if ":" in name:
        if not actor.admin:
            raise InputError(f"the reward {name!r} is code on the server; only an administrator may name it")
        return
    card = load_card(name)
    if not card.available:
        raise InputError(f"the reward {name!r} comes with a later release; choose another one")
    if options.get(name, {}).get("server") and not actor.admin:  # the worker reaches what its user may not
        raise InputError(
            f"the reward {name!r} would ask a server that is named here; only an administrator may name one"
        )


def edited_spec(
    session: Session, workspace: Workspace, actor: Actor, job: Job, overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """The job's spec with other overrides; once it has trained, InputError names the keys that must stay."""
    if job.kind != "alignment":
        raise InputError(f"a job of kind {job.kind} has no configuration; clone it with other fields")
    before = RunConfig(**job.spec["config"])
    changed = with_overrides(before, overrides)
    changed = _checked(session, workspace, actor, changed, before.model, job.spec["files"])
    _check_share(changed, job.devices * job.machines)
    fixed = [
        key
        for key, known in RunConfig.model_fields.items()
        if getattr(before, key) != getattr(changed, key) and not dict(known.json_schema_extra or {})["may_change"]  # type: ignore[arg-type]
    ]
    trained = (workspace.run(job.id) / "config.yaml").exists()
    if trained and fixed:
        raise InputError(f"{', '.join(fixed)} cannot change once the job has trained; clone it instead")
    asked = _asked_now(job.spec["ask"], overrides, changed)
    return {**job.spec, "ask": asked, "config": changed.model_dump(mode="json")}


def _asked_now(asked: Mapping[str, Any], overrides: Mapping[str, Any], changed: RunConfig) -> dict[str, Any]:
    """The request that would have led here, by which the job can be cloned: what was edited is given once."""
    found = {**asked, "overrides": {**asked["overrides"], **overrides}}
    heads = {key.partition(".")[0] for key in overrides}
    if "rewards" in heads:
        kept = {key: value for key, value in found["overrides"].items() if not key.startswith("rewards.")}
        found |= {"rewards": None, "overrides": {**kept, "rewards": dict(changed.rewards)}}
    if "prompts" in heads:
        found |= {"prompts": None, "heldout": None}
    if found["overrides"].keys() >= {"validation_prompts", "heldout_prompts"}:
        found["heldout"] = None
    return found
