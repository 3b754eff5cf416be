"""Renderings of a run: any prompt and seed, before and after, as its evaluation samples, writes and scores videos."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from flash_grpo.checkpoint import PREFIX, choose_checkpoint, load_weights, put_weights
from flash_grpo.config import RunConfig, load_config
from flash_grpo.errors import InputError, unknown_name
from flash_grpo.evaluate import deploy, evaluation_noise, to_uint8
from flash_grpo.files import make_folder, write_atomic
from flash_grpo.models.base import TextEmbeddings, VideoModel
from flash_grpo.models.registry import load_model
from flash_grpo.noise import gaussian
from flash_grpo.prompts import Prompt, cut_warning, load_prompts
from flash_grpo.rewards.base import VideoBatch
from flash_grpo.rewards.scoring import RewardSet
from flash_grpo.rollout import Meter
from flash_grpo.task import RESULT, Task
from flash_grpo.video import display_scale, write_mp4

Side = Literal["before", "after"]
SIDES: tuple[Side, ...] = ("before", "after")
STRONGEST = 4.0


@dataclass(frozen=True)
class Order:
    """What shall be rendered: sides, checkpoint and strength of its adapter, prompts, seeds; and scored or not."""

    prompts: Sequence[Prompt]
    seeds: Sequence[int] = (0,)
    sides: Sequence[Side] = SIDES
    checkpoint: str = "best"
    strength: float = 1.0
    scores: bool = True

    def __post_init__(self) -> None:
        if not self.prompts:
            raise InputError("expected at least one prompt, got none; give --prompt TEXT or --prompts FILE")
        if not math.isfinite(self.strength) or not 0 <= self.strength <= STRONGEST:
            raise InputError(
                f"expected a strength from 0 (the base model) to {STRONGEST:g}, got {self.strength:g}; "
                "1 is the adapter as it was trained"
            )
        wrong = [seed for seed in self.seeds if not 0 <= seed < 2**31]
        if wrong:
            raise InputError(f"expected seeds from 0 to {2**31 - 1}, got {wrong[0]}; choose another")


@dataclass(frozen=True)
class Shot:
    """One video to render: its prompt, the row of the prompt's embedding, its seed and the seed of its noise."""

    prompt: Prompt
    row: int
    seed: int
    noise: int

    def name(self, side: Side) -> str:
        """Path within the output folder; the file is named as evaluation names its own."""
        return f"{side}/{self.prompt.id}-{self.seed}.mp4"


def sides_of(text: str) -> tuple[Side, ...]:
    """`before`, `after` or `both` as a tuple of sides."""
    known: dict[str, tuple[Side, ...]] = {"before": ("before",), "after": ("after",), "both": SIDES}
    if text not in known:
        raise unknown_name("side", text, known)
    return known[text]


def prompts_of(texts: Iterable[str], source: str | None) -> list[Prompt]:
    """Prompts given as texts, then those of a file or built-in set; InputError for an empty one."""
    prompts = []
    for index, text in enumerate(texts):
        if not text.strip():
            raise InputError("expected the text of a prompt, got an empty one; leave it out")
        prompts.append(Prompt(f"prompt-{index:03d}", " ".join(text.split())))
    return prompts + (load_prompts(source) if source is not None else [])


def render_run(run: Path, order: Order, output: Path, task: Task) -> dict[str, Any]:
    """Render videos into OUTPUT/SIDE/PROMPT_ID-SEED.mp4 with the run's deployment sampler; returns their description.

    Both sides of a prompt and seed start from the same noise; at seed 0, a prompt of the run's held-out set has the
    noise its evaluation gave it, so its videos are those of the evaluation. Strength scales a LoRA
    adapter; of a run that trained all weights it interpolates between the base model's and the checkpoint's. Scores
    are the run's rewards of each video by itself, as in evaluation. The description is also OUTPUT/result.json.
    """
    if not (run / "config.yaml").is_file():
        raise InputError(f"{run} is no run folder: it holds no config.yaml; name the folder that train wrote")
    config = load_config(run / "config.yaml")
    checkpoint = choose_checkpoint(run, order.checkpoint) if "after" in order.sides else None
    prompts, shots = _shots(config, order)
    total = len(shots) * len(order.sides)
    make_folder(output)
    task.progress("setup", 0, total)
    with task.at_once():
        if config.threads:
            torch.set_num_threads(config.threads)
        weights = load_weights(checkpoint) if checkpoint else {}
        rewards = RewardSet(config.rewards, config.reward_options, config.reward_timeout) if order.scores else None
        model, embeddings = _prepared(config, prompts, task)
    studio = _Studio(config, model, embeddings, rewards, output, task, total)
    videos = []
    for side in SIDES:
        if side in order.sides:
            if side == "after":
                named = dict(model.trainable())
                put_weights(named, scaled(named, weights, order.strength, config.adapter))
            facts = _facts(side, checkpoint, order.strength)
            videos += [{**video, **facts} for video in studio.render(side, shots)]
    task.result = {
        "run": str(run.resolve()),
        "folder": str(output.resolve()),
        "checkpoint": int(checkpoint.name) if checkpoint else None,
        **_sampler(config, model),
        "videos": videos,
    }
    write_atomic(output / RESULT, json.dumps(task.result, indent=1, ensure_ascii=False))
    task.message = f"Rendered {total} videos."
    return task.result


def _facts(side: Side, checkpoint: Path | None, strength: float) -> dict[str, Any]:
    """Which weights made a video."""
    if side == "before" or checkpoint is None:
        return {"checkpoint": None, "strength": 0.0}
    return {"checkpoint": int(checkpoint.name), "strength": strength}


def _sampler(config: RunConfig, model: VideoModel) -> dict[str, Any]:
    return {
        "sampler": type(model.scheduler).__name__,
        "steps": config.evaluation_steps,
        "guidance_scale": config.deployment_guidance(),
        "shift": config.shift,
        "width": config.width,
        "height": config.height,
        "frames": config.frames,
        "fps": config.fps,
    }


def _shots(config: RunConfig, order: Order) -> tuple[list[Prompt], list[Shot]]:
    """The prompts, those of the held-out set with its metadata, and every video to render, prompt by prompt."""
    heldout = load_prompts(config.heldout_prompts, config.heldout_limit)
    place = {prompt.text: index for index, prompt in reversed(list(enumerate(heldout)))}
    prompts = [
        replace(prompt, metadata=heldout[place[prompt.text]].metadata) if prompt.text in place else prompt
        for prompt in order.prompts
    ]
    ids = [prompt.id.casefold() for prompt in prompts]
    twice = next((prompt.id for prompt in prompts if ids.count(prompt.id.casefold()) > 1), None)
    if twice is not None:
        raise InputError(f"expected each prompt once, got {twice!r} twice; leave one out or give it another id")
    shots = [
        Shot(prompt, row, seed, evaluation_noise(seed, place.get(prompt.text, 0)))
        for row, prompt in enumerate(prompts)
        for seed in dict.fromkeys(order.seeds)
    ]
    return prompts, shots


def _prepared(config: RunConfig, prompts: Sequence[Prompt], task: Task) -> tuple[VideoModel, TextEmbeddings]:
    """The base model with a fresh adapter, which changes nothing, as training starts from; and the prompts encoded."""
    model = load_model(config)
    texts = [prompt.text for prompt in prompts]
    if cut := cut_warning(texts, model.token_counts(texts), config.max_sequence_length):
        task.warn(cut, "cut_prompts")
    embeddings = model.encode_prompts(texts, config.negative_prompt)
    model.free_text_encoder()
    torch.manual_seed(config.seed)
    if config.adapter == "lora":
        model.add_adapter(config.lora_rank, config.lora_alpha, config.lora_targets, config.lora_init)
    else:
        model.train_all(keep_base=False)
    return model, embeddings


@torch.no_grad()
def scaled(
    named: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor], strength: float, adapter: str
) -> dict[str, torch.Tensor]:
    """A checkpoint's weights at a strength; `named` are the model's own, which under full fine-tuning are the base's.

    0 is the base model exactly and 1 the checkpoint exactly; the effect of a LoRA adapter is linear in its matrices B.
    """
    if strength == 1:
        return dict(weights)
    if adapter == "lora":
        return {name: value * strength if ".lora_B." in name else value for name, value in weights.items()}
    base = {PREFIX + name: value.detach().float().cpu() for name, value in named.items()}
    if base.keys() != weights.keys():
        return dict(weights)  # put_weights says what does not fit
    return {name: base[name] + strength * (value - base[name]) for name, value in weights.items()}


class _Studio:
    """Renders, writes and scores shots, and tells how far it is."""

    def __init__(
        self,
        config: RunConfig,
        model: VideoModel,
        embeddings: TextEmbeddings,
        rewards: RewardSet | None,
        output: Path,
        task: Task,
        total: int,
    ) -> None:
        self.config, self.model, self.embeddings, self.rewards = config, model, embeddings, rewards
        self.output, self.task, self.total = output, task, total
        self.done = 0
        self.shape = model.latent_shape(config.frames, config.height, config.width)

    def render(self, side: Side, shots: Sequence[Shot]) -> list[dict[str, Any]]:
        """Render one side; one description per video."""
        batch = min(self.config.rollout_batch, max(self.config.decode_batch, 1) * 4)
        found = []
        for start in range(0, len(shots), batch):
            part = shots[start : start + batch]
            with self.task.at_once():
                frames = self._sample(part)
                scores = self._scores(part, frames)
            for shot, video, figures in zip(part, frames, scores, strict=True):
                found.append(self._write(side, shot, to_uint8(video), figures))
                self.done += 1
                self.task.progress("render", self.done, self.total)
        return found

    def _sample(self, shots: Sequence[Shot]) -> torch.Tensor:
        noise = torch.stack([gaussian(self.shape, shot.noise) for shot in shots])
        rows = [shot.row for shot in shots]
        latents = deploy(self.model, self.config, self.embeddings, rows, noise, Meter(self.task.point))
        return torch.cat([self.model.decode(piece) for piece in latents.split(self.config.decode_batch)])

    def _scores(self, shots: Sequence[Shot], frames: torch.Tensor) -> list[dict[str, float]]:
        if self.rewards is None:
            return [{} for _ in shots]
        prompts = [shot.prompt for shot in shots]
        batch = VideoBatch(frames, [p.text for p in prompts], [p.metadata for p in prompts], self.config.fps)
        scores = self.rewards.score(batch, group_size=1)
        return [{name: float(values[index]) for name, values in scores.items()} for index in range(len(shots))]

    def _write(
        self, side: Side, shot: Shot, video: np.ndarray[Any, np.dtype[np.uint8]], scores: Mapping[str, float]
    ) -> dict[str, Any]:
        name = shot.name(side)
        write_mp4(self.output / name, video, self.config.fps, scale=display_scale(*video.shape[1:3]))
        found = {"path": name, "side": side, "prompt": shot.prompt.text, "id": shot.prompt.id, "seed": shot.seed}
        found["noise"] = shot.noise
        return {**found, "scores": dict(scores)} if self.rewards is not None else found
