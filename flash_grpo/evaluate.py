"""Evaluation: fixed prompts and seeds, the deployment sampler, paired comparison of before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flash_grpo.config import RunConfig
from flash_grpo.distributed import Runtime
from flash_grpo.models.base import TextEmbeddings, VideoModel, network_cost
from flash_grpo.noise import gaussian, noise_seed
from flash_grpo.prompts import Prompt
from flash_grpo.rewards.base import VideoBatch
from flash_grpo.rewards.scoring import RewardSet
from flash_grpo.rollout import Meter
from flash_grpo.schedule import scheduler_with_shift
from flash_grpo.video import display_scale, write_mp4

EVALUATION_SEED = 0
RESAMPLES = 10_000


@dataclass(frozen=True)
class EvaluationSet:
    """Prompts of one split and where their embeddings start."""

    split: str
    prompts: Sequence[Prompt]
    first_embedding: int

    def noise(self, index: int, shape: Sequence[int]) -> torch.Tensor:
        """The starting noise of one prompt, the same in every run."""
        return gaussian(shape, evaluation_noise(EVALUATION_SEED, index))


@dataclass(frozen=True)
class EvaluationResult:
    """Scores per reward [N], on every process, and on the main one the first videos as uint8 [F, H, W, 3]."""

    scores: Mapping[str, torch.Tensor]
    videos: Sequence[np.ndarray[Any, np.dtype[np.uint8]]]


def evaluation_noise(seed: int, place: int) -> int:
    """The seed of the starting noise of the prompt at a place of its set; equal ones make two videos comparable."""
    return noise_seed(seed, 0, place, 0, "evaluation")


@torch.no_grad()
def deploy(
    model: VideoModel,
    config: RunConfig,
    embeddings: TextEmbeddings,
    indices: Sequence[int],
    noise: torch.Tensor,
    meter: Meter,
) -> torch.Tensor:
    """Sample latents [B, ...] from starting noise with the pipeline's own scheduler, as a user would."""
    scheduler = scheduler_with_shift(model.scheduler, config.shift)
    scheduler.set_timesteps(config.evaluation_steps, device=model.device)
    latents = noise.to(model.device)
    text = embeddings.pick(indices)
    guidance = config.deployment_guidance()
    for timestep in scheduler.timesteps:
        steps = timestep.expand(len(latents))
        velocity = model.velocity(latents, steps, text, embeddings.negative, guidance)
        meter.forward(network_cost(len(latents), guidance))
        latents = scheduler.step(velocity, timestep, latents, return_dict=False)[0]
    return latents


def to_uint8(frames: torch.Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """[F, 3, H, W] in 0..1 -> [F, H, W, 3]."""
    array: np.ndarray[Any, np.dtype[np.uint8]] = (frames * 255).round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return array


def evaluate(
    model: VideoModel,
    config: RunConfig,
    rewards: RewardSet,
    embeddings: TextEmbeddings,
    chosen: EvaluationSet,
    meter: Meter,
    keep_videos: int = 0,
    runtime: Runtime | None = None,
    done: Callable[[int], None] = lambda videos: None,
) -> EvaluationResult:
    """Generate one video per prompt and score it with every reward.

    The prompts are shared out over the processes of `runtime`; the scores are those one process alone would find.
    `done` is told how many videos of this process's share are done.
    """
    everything = range(len(chosen.prompts))
    if runtime is None:
        return _evaluate_share(model, config, rewards, embeddings, chosen, everything, meter, keep_videos, done)
    start = meter.nfe
    share = runtime.own_groups(len(everything))
    own = _evaluate_share(model, config, rewards, embeddings, chosen, share, meter, keep_videos, done)
    _level(meter, start, runtime)
    parts = [part for part in runtime.gather_values(dict(own.scores)) if part]
    sent = runtime.gather_values([torch.from_numpy(frames) for frames in own.videos], to_main=True)
    videos = [frames.numpy() for part in sent for frames in part]
    return EvaluationResult({name: torch.cat([part[name] for part in parts]) for name in parts[0]}, videos)


def _level(meter: Meter, start: int, runtime: Runtime) -> None:
    """Meters count for all processes as if their shares were even; make them agree where they were not."""
    spent = meter.nfe - start
    uneven = sum(runtime.gather_values(spent)) // runtime.world - spent
    meter.nfe += uneven
    meter.cost += uneven


def _evaluate_share(
    model: VideoModel,
    config: RunConfig,
    rewards: RewardSet,
    embeddings: TextEmbeddings,
    chosen: EvaluationSet,
    share: range,
    meter: Meter,
    keep_videos: int,
    done: Callable[[int], None],
) -> EvaluationResult:
    """Scores of the prompts in `share`, and the videos of those among the set's first `keep_videos` prompts."""
    shape = model.latent_shape(config.frames, config.height, config.width)
    scores: dict[str, list[torch.Tensor]] = {}
    videos: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
    batch = min(config.rollout_batch, max(config.decode_batch, 1) * 4)
    for start in range(share.start, share.stop, batch):
        part = range(start, min(start + batch, share.stop))
        noise = torch.stack([chosen.noise(index, shape) for index in part])
        indices = [chosen.first_embedding + index for index in part]
        latents = deploy(model, config, embeddings, indices, noise, meter)
        frames = torch.cat([model.decode(piece) for piece in latents.split(config.decode_batch)])
        prompts = [chosen.prompts[index] for index in part]
        batch_ = VideoBatch(frames, [p.text for p in prompts], [p.metadata for p in prompts], config.fps)
        for name, values in rewards.score(batch_, group_size=1).items():
            scores.setdefault(name, []).append(values)
        videos.extend(to_uint8(f) for f in frames[: max(0, keep_videos - start)])
        done(part.stop - share.start)
    return EvaluationResult({name: torch.cat(parts) for name, parts in scores.items()}, videos)


def bootstrap_interval(values: torch.Tensor, seed: int = 0) -> tuple[float, float]:
    """95 % percentile interval of the mean of `values` [N], by seeded resampling."""
    generator = np.random.default_rng(seed)
    array = values.double().numpy()
    means = array[generator.integers(0, len(array), (RESAMPLES, len(array)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def compare(before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]) -> dict[str, dict[str, Any]]:
    """Paired comparison per reward: means, gain with its 95 % interval, win rate (a tie counts half)."""
    report: dict[str, dict[str, Any]] = {}
    for name, old in before.items():
        difference = (after[name] - old).double()
        report[name] = {
            "before": float(old.mean()),
            "after": float(after[name].mean()),
            "gain": float(difference.mean()),
            "ci95": list(bootstrap_interval(difference)),
            "win_rate": float(((difference > 0).double() + 0.5 * (difference == 0).double()).mean()),
        }
    return report


def summarize(scores: Mapping[str, torch.Tensor]) -> dict[str, dict[str, Any]]:
    """Mean and interval per reward, as the evaluation event carries them."""
    return {n: {"mean": float(v.mean()), "ci95": list(bootstrap_interval(v))} for n, v in scores.items()}


def objective_gain(
    before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor], weights: Mapping[str, float]
) -> float:
    """Weighted gain in units of each reward's spread before: the number that chooses the best checkpoint."""
    total = 0.0
    for name, weight in weights.items():
        if weight:
            spread = float(before[name].std()) + 1e-4
            total += weight * float((after[name] - before[name]).mean()) / spread
    return total


def video_name(prompt: Prompt) -> str:
    """File name of a prompt's evaluation video."""
    return f"{prompt.id}-{EVALUATION_SEED}.mp4"


def save_videos(
    folder: Path,
    update: int,
    prompts: Sequence[Prompt],
    videos: Sequence[np.ndarray[Any, np.dtype[np.uint8]]],
    fps: float,
) -> list[str]:
    """Write RUN/videos/UPDATE/PROMPT_ID-SEED.mp4 for the first prompts; returns paths relative to the run folder."""
    files = []
    for prompt, frames in zip(prompts, videos, strict=False):
        name = f"videos/{update:06d}/{video_name(prompt)}"
        write_mp4(folder / name, frames, fps, scale=display_scale(*frames.shape[1:3]))
        files.append(name)
    return files
