"""What a run will need and spend, from configurations alone: cost, memory, disk and time. Imports no torch."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from flash_grpo.config import RunConfig
from flash_grpo.errors import InputError
from flash_grpo.planning.architecture import Pipeline, load_pipeline
from flash_grpo.planning.disk import Disk, disk_of_run
from flash_grpo.planning.footprint import Footprint, Kind, footprint, trained_parameters
from flash_grpo.planning.speed import SURE, Speed, as_json, assumed_speed, cpu_speed, gpu_named, speed_named
from flash_grpo.planning.workload import (
    Spending,
    Workload,
    evaluated_videos,
    evaluation_spending,
    run_spending,
    workload,
)
from flash_grpo.prompts import load_prompts
from flash_grpo.rewards.registry import Card, load_card

GB = 1e9

HOST_THREADS = 8
"""CPU threads assumed beside a GPU."""

STARTING = (5.0, 40.0)
"""Seconds, at least and at most, of what no speed tells: processes that begin, and the report at the end."""

POCKET_PIXELS, VIDEO_PIXELS = 9 * 32 * 32, 81 * 832 * 480
"""Pixels of the two clips that reward cards tell their costs for."""


@dataclass(frozen=True)
class PromptSets:
    """How many prompts a run trains on and evaluates, and the texts it encodes; `guessed` names files not found."""

    training: int
    validation: int
    heldout: int
    texts: tuple[str, ...]
    guessed: tuple[str, ...]


@dataclass(frozen=True)
class Duration:
    """Seconds per update and of the run by phase, all devices working side by side."""

    update: Mapping[str, float]
    run: Mapping[str, float]
    speed: Speed
    minutes: float | None = None

    @property
    def per_update(self) -> float:
        """Seconds of one update, evaluations aside."""
        return sum(self.update.values())

    @property
    def update_range(self) -> tuple[float, float]:
        """Seconds between which an update is expected."""
        factor = SURE[self.speed.basis]
        return self.per_update / factor, self.per_update * factor

    @property
    def total(self) -> float:
        """Seconds of the run, should it go through all its updates."""
        return sum(self.run.values())

    @property
    def range(self) -> tuple[float, float]:
        """Seconds between which the run's end is expected, by what the speed rests on; its minutes end it, too."""
        factor = SURE[self.speed.basis]
        most = math.inf if self.minutes is None else self.minutes * 60 + self.run["evaluate"] * factor
        return min(self.total / factor, most) + STARTING[0], min(self.total * factor, most) + STARTING[1]


@dataclass(frozen=True)
class Plan:
    """The plan of a run; memory is of one device, cost and NFE are of all devices together."""

    config: RunConfig
    pipeline: Pipeline
    work: Workload
    prompts: PromptSets
    devices: int
    kind: Kind
    memory_gb: float | None
    footprint: Footprint
    spending: Mapping[str, Spending]
    disk: Disk
    duration: Duration | None
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool | None:
        """Whether the peak stays below the memory there is; None if that was not said."""
        return None if self.memory_gb is None else self.footprint.highest() <= self.memory_gb * GB

    @property
    def total(self) -> Spending:
        """The run's evaluations."""
        return sum(self.spending.values(), Spending(0, 0.0))


def plan(
    config: RunConfig,
    devices: int = 1,
    memory_gb: float | None = None,
    speed: Speed | None = None,
    kind: Kind | None = None,
    pipeline: Pipeline | None = None,
    prompts: PromptSets | None = None,
) -> Plan:
    """Plan a run on `devices` devices of `memory_gb` GB (1e9 bytes) each.

    Without `kind`, `device: cpu` and the built-in models are planned for a CPU, all else for GPUs. `pipeline` and
    `prompts` save reading them again. Raises InputError: unknown model or reward, sizes that do not fit together.
    """
    if devices < 1:
        raise InputError(f"expected at least 1 device, got {devices}")
    if memory_gb is not None and memory_gb <= 0:
        raise InputError(f"expected a memory above 0 GB, got {memory_gb:g}")
    pipeline = pipeline or load_pipeline(config.model)
    prompts = prompts or prompt_sets(config)
    kind = kind or ("cpu" if config.device == "cpu" or (config.device == "auto" and pipeline.built_in) else "gpu")
    if speed is None and kind == "cpu":
        speed = cpu_speed(config.threads or os.cpu_count() or 1)
    work = workload(config, pipeline, devices, max(prompts.validation, prompts.heldout))
    cards = _cards(config)
    needed = footprint(config, pipeline, work, prompts.texts, _reward_bytes(cards, work), kind)
    return Plan(
        config=config,
        pipeline=pipeline,
        work=work,
        prompts=prompts,
        devices=devices,
        kind=kind,
        memory_gb=memory_gb,
        footprint=needed,
        spending=run_spending(config, prompts.validation, prompts.heldout),
        disk=disk_of_run(config, trained_parameters(config, pipeline.denoiser), prompts.validation, prompts.heldout),
        duration=_duration(config, pipeline, work, prompts, cards, speed, devices) if speed else None,
        notes=tuple(_notes(config, prompts, cards, kind)),
    )


def with_speed(planned: Plan, speed: Speed) -> Plan:
    """The same plan at another speed."""
    config, cards = planned.config, _cards(planned.config)
    duration = _duration(config, planned.pipeline, planned.work, planned.prompts, cards, speed, planned.devices)
    return replace(planned, duration=duration)


def plan_for(
    config: RunConfig,
    devices: int = 1,
    memory_gb: float | None = None,
    gpu: str | None = None,
    speed: str | None = None,
) -> Plan:
    """Plan with a device named as on the command line: a known GPU lends its memory and assumed speed.

    `speed` is a number in TFLOP/s, or `measure`, and goes before the GPU's; so does `memory_gb`.
    """
    pipeline = load_pipeline(config.model)
    reached: Speed | None = None
    if gpu is not None:
        memory_gb = gpu_named(gpu).memory if memory_gb is None else memory_gb
        reached = assumed_speed(gpu, config.dtype)
    if speed is not None:
        reached = speed_named(speed, config, pipeline)
    return plan(config, devices, memory_gb, reached, "gpu" if gpu is not None else None, pipeline)


def prompt_sets(config: RunConfig) -> PromptSets:
    """Read the prompts; of a file that is not here yet, the configured number is assumed."""
    guessed = []

    def read(source: str, limit: int | None, otherwise: int) -> tuple[int, tuple[str, ...]]:
        try:
            texts = tuple(prompt.text for prompt in load_prompts(source, limit))
        except InputError as error:
            if "does not exist" not in str(error):
                raise
            guessed.append(source)
            return otherwise, ("word " * 60,) * otherwise
        return len(texts), texts

    drawn = config.updates * config.prompts_per_update
    training, train_texts = read(config.prompts, None, min(drawn, 1000))
    validation, validation_texts = read(config.validation_prompts, config.validation_limit, config.validation_limit)
    heldout, heldout_texts = read(config.heldout_prompts, config.heldout_limit, config.heldout_limit)
    texts = (*train_texts[:drawn], *validation_texts, *heldout_texts)
    return PromptSets(training, validation, heldout, texts, tuple(guessed))


def _cards(config: RunConfig) -> dict[str, Card | None]:
    """Cards of the rewards; None for one behind an import path, which has none."""
    return {name: None if ":" in name else load_card(name) for name in config.rewards}


def _reward_bytes(cards: Mapping[str, Card | None], work: Workload) -> float:
    """Memory of the hungriest reward by its card, scaled from the clip it was measured on; they run one by one."""
    most = 0.0
    for card in cards.values():
        if card is not None and card.cost.memory_mb is not None:
            measured_on = VIDEO_PIXELS if card.cost.video_seconds is not None else POCKET_PIXELS
            most = max(most, card.cost.memory_mb * 2**20 * work.frames * work.pixels / measured_on)
    return most


def _reward_seconds(cards: Mapping[str, Card | None], work: Workload) -> float:
    """Seconds to score one video by the cards: between their two clips, in proportion to the pixels."""
    pixels, total = work.frames * work.pixels, 0.0
    for card in cards.values():
        small, large = (card.cost.pocket_seconds, card.cost.video_seconds) if card else (None, None)
        if small is not None and large is not None:
            share = max(0.0, (pixels - POCKET_PIXELS) / (VIDEO_PIXELS - POCKET_PIXELS))
            total += small + share * (large - small)
        elif small is not None or large is not None:
            total += small * pixels / POCKET_PIXELS if small is not None else (large or 0.0) * pixels / VIDEO_PIXELS
    return total


def _duration(
    config: RunConfig,
    pipeline: Pipeline,
    work: Workload,
    prompts: PromptSets,
    cards: Mapping[str, Card | None],
    speed: Speed,
    devices: int,
) -> Duration:
    """Time by phase; rewards run beside rollout and decoding, so only what is left of them counts."""
    forward = pipeline.denoiser.flops(work.tokens, work.text_tokens) / speed.denoiser / devices
    _, latent_frames, *sides = work.latent_shape
    decode = pipeline.autoencoder.decode_flops(latent_frames, prod(sides)) / speed.decoder / devices
    score = _reward_seconds(cards, work) / devices
    spent = run_spending(config, prompts.validation, prompts.heldout)
    videos = config.prompts_per_update * config.group_size
    update = {
        "rollout": spent["rollout"].cost / config.updates * forward,
        "decode": videos * decode,
        "replay": spent["replay"].cost / config.updates * forward,
    }
    update["reward"] = max(0.0, videos * score - update["rollout"] - update["decode"])
    judged = evaluated_videos(config, prompts.validation, prompts.heldout)
    encoder = cpu_speed(HOST_THREADS) if config.text_encoder_device == "cpu" else speed
    encoding = len(prompts.texts) * pipeline.text_encoder.flops(config.max_sequence_length) / encoder.denoiser
    run = {phase: seconds * config.updates for phase, seconds in update.items()}
    run["evaluate"] = evaluation_spending(config, judged).cost * forward + judged * (decode + score)
    return Duration(update, {"setup": encoding, **run}, speed, config.minutes)


def _notes(config: RunConfig, prompts: PromptSets, cards: Mapping[str, Card | None], kind: Kind) -> list[str]:
    notes = []
    if kind == "cpu":
        notes.append("planned is what tensors need; the C library may hold up to 2.3 times as much for later use")
    if prompts.guessed:
        notes.append(
            f"{', '.join(prompts.guessed)} not found: planned with {prompts.validation} validation and "
            f"{prompts.heldout} held-out prompts, as the limits say"
        )
    unknown = [name for name, card in cards.items() if card is None or card.cost.memory_mb is None]
    if unknown:
        notes.append(f"time and memory of {', '.join(unknown)} are not known and not counted")
    if config.early_stop_patience or config.decline_patience:
        notes.append("the run may stop early; planned are all its updates")
    return notes


def plain(planned: Plan) -> dict[str, Any]:
    """The plan as JSON types; memory in GB (1e9 bytes), time in seconds."""
    needed, duration, disk = planned.footprint, planned.duration, planned.disk
    peaks = needed.peaks()
    return {
        "model": planned.config.model,
        "devices": planned.devices,
        "kind": planned.kind,
        "parameters": {
            "denoiser": planned.pipeline.denoiser.parameters(),
            "autoencoder": planned.pipeline.autoencoder.parameters(),
            "text_encoder": planned.pipeline.text_encoder.parameters(),
            "trained": trained_parameters(planned.config, planned.pipeline.denoiser),
        },
        "memory": {
            "available_gb": planned.memory_gb,
            "peak_gb": needed.highest() / GB,
            "peak_phase": max(peaks, key=lambda phase: peaks[phase]),
            "fits": planned.fits,
            "phases_gb": {phase: peak / GB for phase, peak in peaks.items()},
            "parts_gb": {phase: {k: v / GB for k, v in parts.items()} for phase, parts in needed.phases.items()},
            "host_gb": {phase: {k: v / GB for k, v in parts.items()} for phase, parts in needed.host.items()},
        },
        "cost": {
            "nfe": planned.total.nfe,
            "cost": planned.total.cost,
            "phases": {phase: {"nfe": s.nfe, "cost": s.cost} for phase, s in planned.spending.items()},
            "tflop_per_evaluation": planned.pipeline.denoiser.flops(planned.work.tokens, planned.work.text_tokens)
            / 1e12,
        },
        "disk": {
            "checkpoint_gb": disk.checkpoint / GB,
            "checkpoints_gb": disk.checkpoints / GB,
            "videos_gb": disk.videos / GB,
            "report_gb": disk.report / GB,
            "events_gb": disk.events / GB,
            "most_gb": disk.most / GB,
        },
        "time": None
        if duration is None
        else {
            "update_seconds": dict(duration.update),
            "update_low_seconds": duration.update_range[0],
            "update_high_seconds": duration.update_range[1],
            "run_seconds": dict(duration.run),
            "total_seconds": duration.total,
            "low_seconds": duration.range[0],
            "high_seconds": duration.range[1],
            "speed": as_json(duration.speed),
        },
        "notes": list(planned.notes),
    }
