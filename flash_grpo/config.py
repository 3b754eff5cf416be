"""`RunConfig`: the one schema of a run, shared by command line, API, form and documentation. Imports no torch."""

from __future__ import annotations

import types
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from flash_grpo.errors import InputError, unknown_name

Check = Literal[
    "rollouts", "disk", "self_tests", "drift", "determinism", "groups", "rewards", "dead_groups", "gradients", "ranks"
]
GROUPS = ("model", "prompts", "rewards", "rollout", "objective", "optimizer", "evaluation", "run")


def _field(default: Any, group: str, help_text: str, may_change: bool = False, **bounds: Any) -> Any:
    """`may_change` marks what a resumed run may be given anew, as it leaves the meaning of what was trained alone."""
    extra: dict[str, Any] = {"group": group, "may_change": may_change}
    if callable(default):
        return Field(default_factory=default, description=help_text, json_schema_extra=extra, **bounds)
    return Field(default=default, description=help_text, json_schema_extra=extra, **bounds)


class RunConfig(BaseModel):
    """Everything that decides a run; a key here is the `--set` key, the form field id and the database column."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True, allow_inf_nan=False)

    # model
    model: str = _field("pocket", "model", "Built-in model name, folder of a diffusers pipeline, or hub id.")
    revision: str | None = _field(None, "model", "Revision of a hub model; none takes the default branch.")
    dtype: Literal["float32", "bfloat16"] = _field(
        "float32", "model", "Precision of the networks; kernel maths is always float32."
    )
    device: str = _field("auto", "model", "Device to train on: auto, cpu, cuda or cuda:N.", may_change=True)
    height: int = _field(32, "model", "Height of the video in pixels.", ge=16, le=4096)
    width: int = _field(32, "model", "Width of the video in pixels.", ge=16, le=4096)
    frames: int = _field(9, "model", "Frames per video, 4n+1.", ge=1, le=1025)
    fps: float = _field(8.0, "model", "Frames per second of saved videos.", gt=0, le=240)
    max_sequence_length: int = _field(24, "model", "Text tokens per prompt; longer prompts are cut.", ge=4, le=512)
    text_encoder_device: Literal["same", "cpu"] = _field(
        "same", "model", "Where prompts are encoded: the training device, or the CPU, slower but sparing its memory."
    )
    adapter: Literal["lora", "full"] = _field("lora", "model", "Train a LoRA adapter or all weights of the denoiser.")
    lora_rank: int = _field(16, "model", "Rank of the LoRA matrices.", ge=1, le=1024)
    lora_alpha: float = _field(32.0, "model", "LoRA scale numerator: the update is multiplied by alpha / rank.", gt=0)
    lora_targets: list[str] = _field(
        lambda: ["to_q", "to_k", "to_v", "to_out.0"], "model", "Names of the linear layers that get an adapter."
    )
    lora_init: Literal["gaussian", "kaiming"] = _field(
        "gaussian", "model", "Initialisation of LoRA A; B starts at zero."
    )
    gradient_checkpointing: bool = _field(
        False, "model", "Recompute activations in the backward pass to save memory.", may_change=True
    )

    # prompts
    prompts: str = _field(
        "pocket:train",
        "prompts",
        "Training prompts: a built-in set, categories of one such as studio:train:food+text, or a .txt, .csv or .jsonl "
        "file.",
    )
    validation_prompts: str = _field("pocket:validation", "prompts", "Prompts that choose the best checkpoint.")
    heldout_prompts: str = _field("pocket:heldout", "prompts", "Prompts looked at for the report alone.")
    negative_prompt: str = _field("", "prompts", "Prompt of the unconditional branch of guidance.")

    # rewards
    rewards: dict[str, float] = _field(
        lambda: {"subject_size": 1.0}, "rewards", "Reward name to weight; weight 0 records it without optimising it."
    )
    reward_options: dict[str, dict[str, Any]] = _field(dict, "rewards", "Options per reward, as listed on its card.")
    reward_timeout: float | None = _field(
        600.0,
        "rewards",
        "Longest one call of a reward may take in seconds before the run fails; none waits for ever.",
        may_change=True,
        gt=0,
    )
    reward_std: Literal["batch", "pooled", "group"] = _field(
        "batch",
        "rewards",
        "Divide by the spread of the whole batch, of all groups pooled, or of the prompt's own group.",
    )
    advantage_clamp: float = _field(5.0, "rewards", "Advantages are clamped to this magnitude.", gt=0)

    # rollout
    prompts_per_update: int = _field(8, "rollout", "Groups (prompts) per update, over all devices.", ge=1)
    group_size: int = _field(12, "rollout", "Rollouts per prompt, scored against each other.", ge=2, le=1024)
    sampling_steps: int = _field(6, "rollout", "Denoising steps of a rollout.", ge=2, le=1000)
    shift: float | None = _field(None, "rollout", "Flow shift of the sigma grid; none keeps the pipeline's own.", gt=0)
    solver: Literal["euler", "adams2"] = _field(
        "euler", "rollout", "ODE solver outside the branch: Euler, or two-step Adams."
    )
    noise_level: Literal["flash", "flow", "dance", "cps"] = _field(
        "flow", "rollout", "Rule for the noise of the branch step."
    )
    eta: float | None = _field(
        None, "rollout", "Strength of the noise rule; none takes the rule's default.", gt=0, le=4
    )
    candidate_steps: list[int] | None = _field(
        None, "rollout", "Steps that may become stochastic; none takes the first half of the schedule."
    )
    initial_noise: Literal["shared", "independent"] = _field(
        "shared", "rollout", "One initial noise per group (the prefix is computed once) or one per rollout."
    )
    branch_noise: Literal["white", "lowpass"] = _field(
        "white", "rollout", "Noise of the branch step: white, or constant over space blocks and all of time."
    )
    lowpass_block: int = _field(2, "rollout", "Latent pixels per side of a low-pass block.", ge=1, le=64)
    guidance_scale: float = _field(
        3.0, "rollout", "Classifier-free guidance in rollout and training; 1 turns it off.", ge=1, le=30
    )
    rollout_batch: int = _field(96, "rollout", "Most videos in one forward of the denoiser.", may_change=True, ge=1)
    decode_batch: int = _field(16, "rollout", "Most videos decoded at once.", may_change=True, ge=1)

    # objective
    rectify: bool = _field(True, "objective", "Divide each group's loss by the gradient scale of its branch step.")
    clip: float = _field(1e-3, "objective", "Clip range of the probability ratio.", gt=0, lt=1)
    kl_weight: float = _field(0.0, "objective", "Weight of the KL divergence to the base model.", ge=0)
    inner_updates: int = _field(
        1, "objective", "Optimiser steps per batch of rollouts; more than 1 is off-policy.", ge=1, le=64
    )
    shuffle_advantages: bool = _field(
        False, "objective", "Control experiment: permute advantages; such a run must gain nothing."
    )

    # optimizer
    optimizer: Literal["adamw", "sgd"] = _field("adamw", "optimizer", "Optimiser.")
    learning_rate: float = _field(3e-4, "optimizer", "Peak learning rate.", gt=0)
    learning_rate_schedule: Literal["constant", "cosine"] = _field(
        "constant", "optimizer", "Course of the rate after warm-up."
    )
    beta1: float = _field(0.9, "optimizer", "AdamW first-moment decay.", ge=0, lt=1)
    beta2: float = _field(0.999, "optimizer", "AdamW second-moment decay.", ge=0, lt=1)
    weight_decay: float = _field(1e-4, "optimizer", "Decoupled weight decay.", ge=0)
    max_grad_norm: float = _field(1.0, "optimizer", "Gradients are clipped to this norm.", gt=0)
    warmup_updates: int = _field(0, "optimizer", "Updates of linear warm-up.", ge=0)
    replay_batch: int = _field(
        8,
        "optimizer",
        "Most states in one forward and backward; gradients accumulate over the rest.",
        may_change=True,
        ge=1,
    )
    ema_decay: float = _field(0.0, "optimizer", "Decay of the averaged weights; 0 turns averaging off.", ge=0, lt=1)
    ema_every: int = _field(1, "optimizer", "Updates between two averaging steps.", ge=1)

    # evaluation
    evaluate_every: int = _field(
        20, "evaluation", "Updates between validations; 0 validates at start and end only.", may_change=True, ge=0
    )
    evaluation_steps: int = _field(20, "evaluation", "Denoising steps of the deployment sampler.", ge=1, le=1000)
    evaluation_guidance_scale: float | None = _field(
        None, "evaluation", "Guidance in evaluation; none takes guidance_scale.", ge=1
    )
    validation_limit: int = _field(32, "evaluation", "Validation prompts used.", ge=1)
    heldout_limit: int = _field(64, "evaluation", "Held-out prompts used in the report.", ge=1)
    early_stop_patience: int = _field(
        0, "evaluation", "Stop after this many validations without a new best; 0 never stops.", may_change=True, ge=0
    )
    decline_patience: int = _field(
        4,
        "evaluation",
        "Stop after the validation reward declined this many times in a row; 0 never stops.",
        may_change=True,
        ge=0,
    )
    videos_saved: int = _field(
        12, "evaluation", "Held-out prompts whose videos are saved before and after.", may_change=True, ge=0
    )

    # run
    seed: int = _field(0, "run", "Seed of everything random.", ge=0, lt=2**31)
    updates: int = _field(100, "run", "Updates to train.", may_change=True, ge=1)
    minutes: float | None = _field(
        None, "run", "Stop starting new updates after this many minutes; none has no limit.", may_change=True, gt=0
    )
    checkpoint_every: int = _field(20, "run", "Updates between checkpoints.", may_change=True, ge=1)
    keep_checkpoints: int = _field(
        2, "run", "Newest checkpoints kept beside the best one.", may_change=True, ge=1, le=1000
    )
    checks: bool = _field(
        True, "run", "Check rewards, disk, drift, gradients and sampling before the first step.", may_change=True
    )
    ignore_checks: list[Check] = _field(
        list, "run", "Checks by name whose refusals only warn, and whose warnings are silent.", may_change=True
    )
    threads: int | None = _field(None, "run", "CPU threads; none leaves it to torch.", may_change=True, ge=1)
    trackers: list[Literal["tensorboard", "wandb", "trackio"]] = _field(
        list, "run", "Experiment trackers, through accelerate.", may_change=True
    )

    @field_validator("frames")
    @classmethod
    def _frames_fit(cls, value: int) -> int:
        if value % 4 != 1:
            below, above = (value - 1) // 4 * 4 + 1, (value - 1) // 4 * 4 + 5
            raise ValueError(f"must be 4n+1, got {value}; the nearest are {below} and {above}")
        return value

    @field_validator("height", "width")
    @classmethod
    def _even_patches(cls, value: int) -> int:
        if value % 16:
            raise ValueError(
                f"must be a multiple of 16, got {value}; the nearest are {value // 16 * 16} and {value // 16 * 16 + 16}"
            )
        return value

    @field_validator("candidate_steps")
    @classmethod
    def _steps_distinct(cls, value: list[int] | None) -> list[int] | None:
        if value is not None and (not value or len(set(value)) != len(value) or min(value) < 0):
            raise ValueError(f"must be distinct step numbers from 0, at least one, got {value}")
        return value

    @field_validator("rewards")
    @classmethod
    def _some_reward(cls, value: dict[str, float]) -> dict[str, float]:
        if not any(value.values()):
            raise ValueError("needs at least one reward with a weight other than 0, such as {subject_size: 1}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> RunConfig:
        for step in self.candidate_steps or ():
            if step >= self.sampling_steps - 1:
                raise ValueError(
                    f"candidate_steps: step {step} is outside 0..{self.sampling_steps - 2}; "
                    f"with sampling_steps {self.sampling_steps} the last step is always deterministic"
                )
        return self

    def candidates(self) -> tuple[int, ...]:
        """The candidate steps in ascending order; the first half of the schedule unless named."""
        return (
            tuple(sorted(self.candidate_steps))
            if self.candidate_steps
            else tuple(range(max(1, self.sampling_steps // 2)))
        )

    def deployment_guidance(self) -> float:
        """Guidance scale of evaluation."""
        return self.guidance_scale if self.evaluation_guidance_scale is None else self.evaluation_guidance_scale


@lru_cache(maxsize=1)
def presets() -> Mapping[str, Mapping[str, Any]]:
    """Presets by name: `description`, `verified` and `config` of each, read from the data files beside this module."""
    found = {}
    for file in sorted((resources.files("flash_grpo") / "presets").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".yaml"):
            found[file.name.removesuffix(".yaml")] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return types.MappingProxyType(found)


def preset_config(name: str) -> dict[str, Any]:
    """The raw configuration of a preset; a preset may extend another one."""
    known = presets()
    if name not in known:
        raise unknown_name("preset", name, known)
    base = preset_config(known[name]["extends"]) if "extends" in known[name] else {}
    return {**base, **known[name]["config"]}


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """Turn `key=value` strings into overrides; values are YAML, and `rewards.NAME=1` reaches into a mapping."""
    overrides: dict[str, Any] = {}
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        key = key.strip()
        if not separator:
            raise InputError(f"expected key=value, got {assignment!r}; for example --set updates=20")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InputError(
                f"the value of {key!r} is not valid YAML: {text!r}; quote it or check its brackets"
            ) from error
        if isinstance(value, str):
            value = _number(value)
        overrides[key] = value
    return overrides


def _number(text: str) -> str | float:
    """YAML 1.1 reads 1e-4 as text; a user means the number."""
    try:
        return float(text)
    except ValueError:
        return text


def build_config(preset: str, overrides: Mapping[str, Any] | None = None) -> RunConfig:
    """The configuration of a preset with overrides applied.

    Raises InputError: unknown preset or key (the nearest names are suggested), or a value that does not fit.
    """
    return validate_config(_merged(preset_config(preset), overrides or {}))


def with_overrides(config: RunConfig, overrides: Mapping[str, Any]) -> RunConfig:
    """A configuration with some keys changed; errors as `build_config`."""
    return validate_config(_merged(config.model_dump(), overrides))


def _merged(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(values)
    for key, value in overrides.items():
        head, _, rest = key.partition(".")
        if head not in RunConfig.model_fields:
            raise unknown_name("configuration key", head, RunConfig.model_fields)
        if rest:
            if head not in ("rewards", "reward_options"):
                raise InputError(f"{head!r} has no parts, got {key!r}; set {head} itself")
            merged[head] = _with_part(head, merged.get(head, {}), rest, value)
        else:
            merged[head] = value
    if "rewards" in overrides and "reward_options" not in overrides:
        options = merged.get("reward_options", {})
        merged["reward_options"] = {name: value for name, value in options.items() if name in merged["rewards"]}
    return merged


def _with_part(head: str, mapping: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Set one reward's weight, or one of its options; a reward may be a dotted import path."""
    if head == "rewards":
        return {**mapping, path: value}
    reward, separator, option = path.rpartition(".")
    if not separator:
        return {**mapping, path: value}
    return {**mapping, reward: {**mapping.get(reward, {}), option: value}}


def validate_config(values: Mapping[str, Any]) -> RunConfig:
    """Validate raw values; InputError holds one sentence per problem."""
    try:
        return RunConfig(**values)
    except ValidationError as error:
        raise InputError("; ".join(_sentence(problem) for problem in error.errors())) from error


def _sentence(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    message = problem["msg"].removeprefix("Value error, ")
    if problem["type"] == "value_error":
        return f"{where}: {message}" if where else message
    if problem["type"] == "extra_forbidden":
        return str(unknown_name("configuration key", where, RunConfig.model_fields))
    field = RunConfig.model_fields.get(str(problem["loc"][0])) if problem["loc"] else None
    meaning = f" ({_lowered(field.description)})" if field and field.description else ""
    return f"{where}: {_lowered(message)}, got {problem['input']!r}{meaning}"


def _lowered(sentence: str) -> str:
    """A sentence as part of another one."""
    word = sentence.partition(" ")[0]
    plain = word[1:].islower() or len(word) == 1  # neither LoRA nor CPU
    return (f"{sentence[0].lower()}{sentence[1:]}" if plain else sentence).rstrip(".")


def load_config(path: Path) -> RunConfig:
    """Read a configuration file (YAML, as written into a run folder); keys it lacks take their defaults."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"cannot read the configuration {path}: {reason}; mend the file or name another") from error
    if not isinstance(values, dict):
        raise InputError(f"expected a mapping of configuration keys in {path}, got {type(values).__name__}")
    strange = [str(key) for key in values if key not in RunConfig.model_fields]
    if strange:
        raise InputError(
            f"{path} holds {', '.join(strange)}, which this version of flash-grpo does not know; use the version that "
            "wrote the file, or remove these keys from it"
        )
    return validate_config(values)


def dump_config(config: RunConfig) -> str:
    """The configuration as YAML, every key written out."""
    return yaml.safe_dump(config.model_dump(), sort_keys=False, allow_unicode=True)
