"""Evaluation: the deployment sampler, and the arithmetic of before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from diffusers import WanPipeline

from flash_grpo.config import RunConfig
from flash_grpo.evaluate import (
    EvaluationSet,
    bootstrap_interval,
    compare,
    deploy,
    evaluate,
    objective_gain,
    save_videos,
    summarize,
    to_uint8,
)
from flash_grpo.prompts import Prompt
from flash_grpo.rewards.scoring import RewardSet
from flash_grpo.rollout import Meter
from flash_grpo.video import read_mp4
from tests.tiny import CAPTIONS, NEGATIVE, config_for, embed, open_model

REWARD = "tests.tiny:brightness"
PROMPTS = [Prompt(f"p{index}", caption) for index, caption in enumerate(CAPTIONS)]


def config(folder: Path, **changes: Any) -> RunConfig:
    values = {"evaluation_steps": 5, "guidance_scale": 3.0, "rewards": {REWARD: 1.0}}
    return config_for(folder, **{**values, **changes})


@pytest.mark.parametrize("shift", [None, 5.0])
@pytest.mark.parametrize("guidance", [1.0, 3.0])
def test_the_deployment_sampler_is_the_pipeline(tiny_folder: Path, shift: float | None, guidance: float) -> None:
    model = open_model(tiny_folder)
    text = embed(model)
    pipeline = WanPipeline.from_pretrained(tiny_folder)
    pipeline.set_progress_bar_config(disable=True)
    if shift is not None:
        pipeline.scheduler = type(pipeline.scheduler).from_config(pipeline.scheduler.config, flow_shift=shift)
    noise = torch.randn((2, 16, 2, 4, 4), generator=torch.Generator().manual_seed(4))

    def theirs(guidance: float, output: str) -> torch.Tensor:
        result: torch.Tensor = pipeline(
            prompt=list(CAPTIONS[:2]), negative_prompt=[NEGATIVE] * 2, height=32, width=32, num_frames=5,
            num_inference_steps=5, guidance_scale=guidance, latents=noise.clone(), max_sequence_length=24,
            output_type=output,
        ).frames  # fmt: skip
        return result

    meter = Meter()
    settings = config(tiny_folder, shift=shift, evaluation_guidance_scale=guidance)
    latents = deploy(model, settings, text, [0, 1], noise, meter)
    assert float((latents - theirs(guidance, "latent")).abs().max()) < 1e-4
    assert float((model.decode(latents) - theirs(guidance, "pt")).abs().max()) < 1e-3
    assert meter.nfe == 2 * 5 * (2 if guidance > 1 else 1)
    # Negative control: another guidance.
    assert float((latents - theirs(guidance + 0.5, "latent")).abs().max()) > 1e-2


def test_evaluation_is_the_same_however_it_is_batched(tiny_folder: Path) -> None:
    model = open_model(tiny_folder, adapter=0.05)
    text, chosen = embed(model), EvaluationSet("validation", PROMPTS, 0)
    rewards = RewardSet({REWARD: 1.0, "colorfulness": 0.0})
    meter = Meter()
    whole = evaluate(model, config(tiny_folder), rewards, text, chosen, meter, keep_videos=3)
    assert meter.nfe == 4 * 5 * 2
    assert {name: len(values) for name, values in whole.scores.items()} == {REWARD: 4, "colorfulness": 4}
    assert len(whole.videos) == 3 and whole.videos[0].shape == (5, 32, 32, 3) and whole.videos[0].dtype == np.uint8
    narrow = config(tiny_folder, rollout_batch=3, decode_batch=1)
    parts = evaluate(model, narrow, rewards, text, chosen, Meter(), keep_videos=3)
    for name, values in whole.scores.items():
        assert torch.allclose(values, parts.scores[name], atol=1e-4)
    # Prompts have noise of their own, and a set that starts later in the embeddings finds its captions.
    assert len(set(whole.scores[REWARD].tolist())) == 4
    later = evaluate(model, config(tiny_folder), rewards, text, EvaluationSet("heldout", PROMPTS[1:2], 1), Meter())
    same = EvaluationSet("validation", PROMPTS[:1], 0)
    first = evaluate(model, config(tiny_folder), rewards, text, same, Meter())
    assert float(first.scores[REWARD]) == pytest.approx(float(whole.scores[REWARD][0]), abs=1e-5)
    assert float(later.scores[REWARD]) != pytest.approx(float(first.scores[REWARD]), abs=1e-5)


def test_evaluation_noise_does_not_depend_on_the_run(tiny_folder: Path) -> None:
    chosen = EvaluationSet("heldout", PROMPTS, 7)
    assert torch.equal(chosen.noise(2, (16, 2, 4, 4)), EvaluationSet("heldout", PROMPTS[:3], 0).noise(2, (16, 2, 4, 4)))
    assert not torch.equal(chosen.noise(2, (16, 2, 4, 4)), chosen.noise(3, (16, 2, 4, 4)))


def test_the_interval_covers_a_known_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    values = 2.0 + torch.randn(400, generator=generator)
    low, high = bootstrap_interval(values)
    mean, error = float(values.mean()), float(values.std()) / 20
    assert low == pytest.approx(mean - 1.96 * error, abs=0.02)
    assert high == pytest.approx(mean + 1.96 * error, abs=0.02)
    assert bootstrap_interval(values) == (low, high)
    assert bootstrap_interval(values, seed=1) != (low, high)
    wide_low, wide_high = bootstrap_interval(values[:40])
    assert wide_high - wide_low > 2 * (high - low)
    assert bootstrap_interval(torch.full((8,), 0.25)) == (0.25, 0.25)


def test_the_interval_misses_the_truth_one_time_in_twenty() -> None:
    generator = torch.Generator().manual_seed(1)
    missed = 0
    for _ in range(200):
        low, high = bootstrap_interval(torch.randn(64, generator=generator))
        missed += not low <= 0 <= high
    assert 2 <= missed <= 24


def test_before_and_after_by_hand() -> None:
    before = {"r": torch.tensor([0.0, 1.0, 2.0, 3.0]), "w": torch.ones(4)}
    after = {"r": torch.tensor([1.0, 1.0, 3.0, 2.0]), "w": torch.ones(4)}
    report = compare(before, after)
    figures = report["r"]
    assert (figures["before"], figures["after"], figures["gain"]) == (1.5, 1.75, 0.25)
    assert figures["win_rate"] == 0.625  # two wins and a tie, which counts half
    low, high = figures["ci95"]
    assert low < 0.25 < high and low >= -1 and high <= 1
    assert report["w"] == {"before": 1.0, "after": 1.0, "gain": 0.0, "ci95": [0.0, 0.0], "win_rate": 0.5}


def test_the_comparison_is_paired() -> None:
    """Prompts differ more than the gain: only their differences tell."""
    before = torch.linspace(0, 100, 64)
    after = before + 0.1 + 0.01 * torch.randn(64, generator=torch.Generator().manual_seed(0))
    low, high = compare({"r": before}, {"r": after})["r"]["ci95"]
    assert 0.09 < low < high < 0.11
    shuffled = after[torch.randperm(64, generator=torch.Generator().manual_seed(1))]
    low, high = compare({"r": before}, {"r": shuffled})["r"]["ci95"]
    assert low < 0 < high


def test_summaries_hold_mean_and_interval() -> None:
    values = torch.tensor([0.0, 1.0])
    assert summarize({"r": values}) == {"r": {"mean": 0.5, "ci95": list(bootstrap_interval(values))}}


def test_the_gain_that_chooses_the_best_counts_weighted_rewards_by_their_spread() -> None:
    before = {"a": torch.tensor([0.0, 2.0]), "b": torch.tensor([0.0, 200.0]), "w": torch.zeros(2)}
    after = {"a": before["a"] + 1, "b": before["b"] - 100, "w": torch.full((2,), 1e6)}
    spread = float(before["a"].std())
    one = objective_gain(before, after, {"a": 1.0, "b": 0.0, "w": 0.0})
    assert one == pytest.approx(1 / spread, rel=1e-3)
    assert objective_gain(before, after, {"a": 1.0, "b": 1.0, "w": 0.0}) == pytest.approx(0, abs=1e-3)
    assert objective_gain(before, after, {"a": 1.0, "b": -1.0, "w": 0.0}) == pytest.approx(2 * one, rel=1e-3)
    assert objective_gain(before, before, {"a": 1.0}) == 0.0


def test_videos_are_named_by_update_prompt_and_seed(tmp_path: Path) -> None:
    frames = [to_uint8(torch.full((5, 3, 32, 32), value)) for value in (0.0, 1.0)]
    assert frames[1].shape == (5, 32, 32, 3) and int(frames[1].max()) == 255
    files = save_videos(tmp_path, 20, PROMPTS, frames, 8.0)
    assert files == ["videos/000020/p0-0.mp4", "videos/000020/p1-0.mp4"]
    dark, light = (read_mp4(tmp_path / file)[0] for file in files)
    assert float(np.mean(np.asarray(dark))) < 10 and float(np.mean(np.asarray(light))) > 245
