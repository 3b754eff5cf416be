"""Everything a run works with: folder, events, model, prompts, rewards, sampler, requests from outside, summary."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from flash_grpo.checkpoint import Restored
from flash_grpo.config import RunConfig
from flash_grpo.control import Requests
from flash_grpo.distributed import Runtime
from flash_grpo.errors import InputError
from flash_grpo.evaluate import (
    EVALUATION_SEED,
    EvaluationResult,
    EvaluationSet,
    compare,
    evaluate,
    evaluation_noise,
    save_videos,
    video_name,
)
from flash_grpo.events import (
    Event,
    EventLog,
    Finished,
    Progress,
    Samples,
    Warning_,
)
from flash_grpo.files import write_atomic
from flash_grpo.models.registry import load_model
from flash_grpo.ownership import Ownership
from flash_grpo.prompts import Prompt, cut_warning, duplicate_warning, load_prompts
from flash_grpo.report import chart, contact_sheet
from flash_grpo.rewards.scoring import RewardSet
from flash_grpo.rollout import Meter, build_sampler
from flash_grpo.schedule import draw_prompts
from flash_grpo.scores import Scores, write_scores
from flash_grpo.training_state import Course, restored_course
from flash_grpo.video import read_mp4

PACKAGES = ("torch", "diffusers", "transformers", "accelerate", "peft", "safetensors")


class Run:
    """One run's surroundings; made by `open_run`. Only the main process has a log and the folder's ownership."""

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        preset: str | None,
        runtime: Runtime,
        requests: Requests,
        log: EventLog | None = None,
        ownership: Ownership | None = None,
        restored: Restored | None = None,
    ) -> None:
        self.config, self.folder, self.preset = config, folder, preset
        self.runtime, self.requests, self.log, self.ownership = runtime, requests, log, ownership
        self.restored = restored
        self.course = restored_course(restored.document) if restored else Course()
        self.started = time.monotonic() - self.course.seconds
        self.meter = Meter(self.between_forwards, runtime.world)
        self.meter.nfe, self.meter.cost = self.course.nfe, self.course.cost
        self.rewards = RewardSet(config.rewards, config.reward_options, config.reward_timeout)
        train, validation, heldout = _load_prompt_sets(config)
        self.train_prompts = train
        self.model = load_model(config, self.runtime.device)
        self.sampler = build_sampler(config, self.model)
        used = _prompts_used(config, len(train))
        self.train_embedding = {prompt: row for row, prompt in enumerate(used)}
        self.prompt_of_embedding: Sequence[Prompt] = [train[index] for index in used] + validation + heldout
        self.validation = EvaluationSet("validation", validation, len(used))
        self.heldout = EvaluationSet("heldout", heldout, len(used) + len(validation))
        self.emit(Progress("setup", self.course.update, config.updates, self.seconds()))
        texts = [prompt.text for prompt in self.prompt_of_embedding]
        self._warn_of_prompts(texts)
        self.embeddings = self.model.encode_prompts(texts, config.negative_prompt)
        self.model.free_text_encoder()
        self._make_trainable()

    def _warn_of_prompts(self, texts: Sequence[str]) -> None:
        """Tell of prompts that repeat, and of those longer than the text encoder will see."""
        sets = {
            "prompts": self.train_prompts,
            "validation_prompts": self.validation.prompts,
            "heldout_prompts": self.heldout.prompts,
        }
        for key, prompts in sets.items():
            if repeated := duplicate_warning(key, prompts):
                self.emit(Warning_(repeated, "repeated_prompts"))
        limit = self.config.max_sequence_length
        if cut := cut_warning(texts, self.model.token_counts(texts), limit):
            self.emit(Warning_(cut, "cut_prompts"))

    def _make_trainable(self) -> None:
        config = self.config
        torch.manual_seed(config.seed)
        if config.adapter == "lora":
            self.model.add_adapter(config.lora_rank, config.lora_alpha, config.lora_targets, config.lora_init)
        else:
            self.model.train_all(keep_base=config.kl_weight > 0)
        if config.gradient_checkpointing:
            self.model.enable_gradient_checkpointing()

    def emit(self, event: Event) -> None:
        """Write an event; only the main process speaks."""
        if self.log is not None:
            self.log.emit(event)

    def guard(self) -> None:
        """Called before this process writes into the folder: raises OwnershipLost if it must not any more."""
        if self.ownership is not None:
            self.ownership.check()

    def seconds(self) -> float:
        """Seconds this run has taken, over all attempts as far as they were kept."""
        return time.monotonic() - self.started

    def out_of_time(self) -> bool:
        """Whether the run's minutes are spent; the main process's clock decides."""
        spent = self.config.minutes is not None and self.seconds() > self.config.minutes * 60
        return self.runtime.broadcast(spent)

    def pending_requests(self) -> list[str]:
        """What was asked from outside since the last look, the same on every process."""
        return self.runtime.broadcast(self.requests.pending() if self.runtime.is_main else [])

    def keep_count(self) -> None:
        """Note the time and network evaluations spent; what an interrupted update spent beyond is not kept."""
        self.course.seconds, self.course.nfe, self.course.cost = self.seconds(), self.meter.nfe, self.meter.cost

    def spent(self) -> Course:
        """The course with all that was spent up to now."""
        return replace(self.course, seconds=self.seconds(), nfe=self.meter.nfe, cost=self.meter.cost)

    def between_forwards(self) -> None:
        """Raise Interrupted if the run shall end; the weights are those of the last complete update."""
        self.runtime.check_peers()
        self.requests.interruption_point(alone=self.runtime.world == 1)

    def finish(
        self, shown: int, before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]
    ) -> dict[str, Any]:
        """Write contact sheet, chart and summary.json; returns the summary."""
        summary = self.summary("done", **self.compared(shown, before, after))
        updates, minutes = self.course.update, summary["minutes"]
        self.emit(Finished("done", f"Trained {updates} updates in {minutes:.1f} minutes."))
        return summary

    def compared(
        self, shown: int, before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]
    ) -> dict[str, Any]:
        """Write contact sheet and chart; returns the summary's part that says what checkpoint `shown` reached."""
        files = {
            "chart": "chart.png",
            "contact_sheet": "contact_sheet.png",
            "adapter": f"checkpoints/{shown:06d}",
            "videos_before": "videos/000000",
            "videos_after": f"videos/{shown:06d}",
        }
        if self.runtime.is_main:
            self.guard()
            self._contact_sheet(files)
            chart(self.folder, self.folder / files["chart"])
        return {"heldout": compare(before, after), "best_update": shown, "files": files}

    def _contact_sheet(self, files: Mapping[str, str]) -> None:
        """From the files, as a resumed run no longer has the videos of before in memory."""
        pairs = []
        for prompt in self.heldout.prompts[: self.config.videos_saved]:
            name = video_name(prompt)
            old, new = (self.folder / files[key] / name for key in ("videos_before", "videos_after"))
            if old.is_file() and new.is_file():  # videos_saved may have grown when the run was resumed
                pairs.append((prompt.text, read_mp4(old), read_mp4(new)))
        if pairs:
            contact_sheet(pairs, self.folder / files["contact_sheet"])

    def summary(self, status: str, **more: Any) -> dict[str, Any]:
        """Write summary.json with what is known, and return it."""
        content = {**summary_content(self.config, self.preset, status, self.spent()), **more}
        if self.runtime.is_main:
            self.guard()
            write_atomic(self.folder / "summary.json", json.dumps(content, indent=1))
        return content

    def evaluate(
        self, chosen: EvaluationSet, videos: int, done: Callable[[int], None] = lambda videos: None
    ) -> EvaluationResult:
        """Generate and score one evaluation set with the present weights, keeping the first `videos` videos.

        `done` is told how many videos of this process's share are done.
        """
        with self.requests.at_once():
            parts = self.model, self.config, self.rewards, self.embeddings
            return evaluate(*parts, chosen, self.meter, videos, self.runtime, done)

    def keep_evaluation(self, update: int, chosen: EvaluationSet, result: EvaluationResult, nfe: int = 0) -> None:
        """Write an evaluation's videos and per-prompt scores into the folder."""
        if not self.runtime.is_main:
            return
        self.guard()
        files = save_videos(self.folder, update, chosen.prompts, result.videos, self.config.fps)
        noise = [evaluation_noise(EVALUATION_SEED, place) for place in range(len(chosen.prompts))]
        scores = Scores(result.scores, nfe)
        write_scores(self.folder, update, chosen.split, chosen.prompts, EVALUATION_SEED, noise, scores)
        self.emit(Samples(update, files))


def summary_content(config: RunConfig, preset: str | None, status: str, course: Course) -> dict[str, Any]:
    """What summary.json says of every run, however it ended."""
    return {
        "status": status,
        "preset": preset,
        "seed": config.seed,
        "updates": course.update,
        "nfe": course.nfe,
        "cost": course.cost,
        "minutes": course.seconds / 60,
        "rewards": config.rewards,
    }


def _load_prompt_sets(config: RunConfig) -> tuple[list[Prompt], list[Prompt], list[Prompt]]:
    train = load_prompts(config.prompts, None)
    validation = load_prompts(config.validation_prompts, config.validation_limit)
    heldout = load_prompts(config.heldout_prompts, config.heldout_limit)
    texts = {p.text for p in train}
    for key, prompts in (("validation_prompts", validation), ("heldout_prompts", heldout)):
        shared = [p.text for p in prompts if p.text in texts]
        if shared:
            raise InputError(
                f"{key} holds {len(shared)} prompts that are trained on, such as {shared[0]!r}; remove them"
            )
        texts.update(p.text for p in prompts)
    return train, validation, heldout


def _prompts_used(config: RunConfig, available: int) -> list[int]:
    """Indices of the training prompts that this run will draw, each once."""
    drawn: dict[int, None] = {}
    for update in range(config.updates):
        drawn.update(dict.fromkeys(draw_prompts(config.seed, update, config.prompts_per_update, available)))
        if len(drawn) == available:
            break
    return list(drawn)


def read_summary(folder: Path) -> dict[str, Any] | None:
    """The summary of a run that has ended, else None."""
    file = folder / "summary.json"
    summary: dict[str, Any] | None = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    return summary
