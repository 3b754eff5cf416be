"""Whole runs on a tiny pipeline: what they write, repeat, learn and say when they end early."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from flash_grpo.attempt import evaluate_run
from flash_grpo.checkpoint import load_weights, put_weights, read_pointer
from flash_grpo.config import load_config
from flash_grpo.errors import InputError
from flash_grpo.evaluate import EvaluationSet, evaluate
from flash_grpo.events import read_events
from flash_grpo.prompts import load_prompts
from flash_grpo.rewards.scoring import RewardSet
from flash_grpo.rollout import Meter
from flash_grpo.video import read_mp4
from tests.runs import BRIGHT, QUICK, of_type, run, summary_of
from tests.tiny import NEGATIVE, config_for, open_model


@pytest.fixture(scope="module")
def finished(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that ended well."""
    output = tmp_path_factory.mktemp("runs") / "finished"
    run(tiny_folder, output)
    return output


def test_events_tell_the_run_in_order(finished: Path) -> None:
    told = [record.type for record in read_events(finished) if record.type not in ("progress", "warning")]
    before = ["evaluation", "samples"] * 2
    middle = ["metrics", "checkpoint", "metrics", "evaluation", "samples", "checkpoint"]
    last = ["metrics", "evaluation", "samples", "checkpoint"]
    assert told == ["run_started", *before, *middle, *last, "evaluation", "samples", "finished"]
    evaluations = [(r.update, r.data["split"]) for r in of_type(finished, "evaluation")]
    splits = [(0, "validation"), (0, "heldout"), (2, "validation"), (3, "validation")]
    assert evaluations[:-1] == splits  # the held-out set is looked at before and at the end alone
    assert evaluations[-1][1] == "heldout"
    started = of_type(finished, "run_started")[0].data
    assert started["preset"] == "micro" and started["config"]["rewards"] == QUICK["rewards"]
    assert {"python", "torch", "diffusers"} <= started["versions"].keys()
    assert [record.seq for record in read_events(finished)] == list(range(1, len(read_events(finished)) + 1))


def test_progress_knows_phase_cost_and_time_left(finished: Path) -> None:
    reports = [record.data for record in of_type(finished, "progress")]
    assert {report["phase"] for report in reports} >= {"setup", "rollout", "evaluate"}
    assert [report["cost"] for report in reports] == sorted(report["cost"] for report in reports)
    assert reports[0]["eta_seconds"] is None
    for report in reports:
        if report["update"]:
            assert 0 <= report["eta_low_seconds"] <= report["eta_seconds"] <= report["eta_high_seconds"]
    assert all(report["updates"] == 3 for report in reports)


def test_metrics_hold_every_figure(finished: Path) -> None:
    records = of_type(finished, "metrics")
    assert [record.update for record in records] == [1, 2, 3]
    for record in records:
        data = record.data
        for name in (BRIGHT, "colorfulness"):
            figures = data["rewards"][name]
            assert figures["min"] <= figures["mean"] <= figures["max"]
            assert figures["std"] > 0 and figures["group_spread"] > 0
        assert sum(step["groups"] for step in data["branch"].values()) == data["groups"] == 3
        assert set(data["branch"]) <= {"0", "1"}
        assert data["grad_norm"] > 0 and math.isfinite(data["loss"])
        assert data["drift"] < 1e-5 and data["clip_fraction"] == 0.0 and data["kl"] is None
        assert data["dead_groups"] == 0 and data["learning_rate"] == pytest.approx(3e-4)
        assert {"rollout", "decode", "reward", "replay", "other"} == set(data["seconds"])
        assert all(seconds >= -1e-6 for seconds in data["seconds"].values())
        assert data["peak_memory_mb"] > 50
    # Both steps of three groups over three updates: the deal goes on, so each was drawn four or five times.
    drawn = [sum(r.data["branch"].get(step, {"groups": 0})["groups"] for r in records) for step in ("0", "1")]
    assert sorted(drawn) == [4, 5]


def test_cost_follows_the_formula(finished: Path) -> None:
    rollouts = replays = 0.0
    for record in of_type(finished, "metrics"):
        groups = {int(step): figures["groups"] for step, figures in record.data["branch"].items()}
        rollout = 2 * sum(count * (k + 1 + 4 * (4 - k - 1)) for k, count in groups.items())
        assert record.data["cost"]["rollout"] == pytest.approx(rollout)
        # A pair, three groups, a forward and a LoRA's backward.
        assert record.data["cost"]["replay"] == pytest.approx(2 * 3 * 1.7)
        rollouts, replays = rollouts + rollout, replays + 2 * 3
    evaluated = 2 * 3 * (3 * 3 + 2 * 5)  # a pair, three steps; validation three times, held-out twice
    summary = summary_of(finished)
    assert summary["nfe"] == rollouts + replays + evaluated
    assert summary["cost"] == pytest.approx(rollouts + 1.7 * replays + evaluated)


def test_the_summary_has_the_promised_shape(finished: Path) -> None:
    summary = summary_of(finished)
    assert {"status", "preset", "seed", "updates", "nfe", "cost", "minutes", "heldout", "files"} <= summary.keys()
    assert (summary["status"], summary["preset"], summary["seed"], summary["updates"]) == ("done", "micro", 0, 3)
    assert 0 < summary["minutes"] < 5
    assert set(summary["heldout"]) == {BRIGHT, "colorfulness"}
    for figures in summary["heldout"].values():
        assert set(figures) == {"before", "after", "gain", "ci95", "win_rate"}
        assert figures["gain"] == pytest.approx(figures["after"] - figures["before"], abs=1e-6)
        low, high = figures["ci95"]
        assert low <= figures["gain"] <= high and 0 <= figures["win_rate"] <= 1


def test_the_promised_files_exist(finished: Path) -> None:
    summary = summary_of(finished)
    for file in summary["files"].values():
        assert (finished / file).exists(), file
    for name in ("chart", "contact_sheet"):
        with Image.open(finished / summary["files"][name]) as image:
            assert image.format == "PNG"
    for update in (0, summary["best_update"]):
        names = {path.name for path in (finished / "videos" / f"{update:06d}").iterdir()}
        wanted = {"pocket-single-heldout-000000-0.mp4", "pocket-single-heldout-000001-0.mp4"}
        assert wanted <= names
        assert len(read_mp4(finished / "videos" / f"{update:06d}" / min(wanted))) == 5
    for record in of_type(finished, "samples"):
        assert all((finished / file).is_file() for file in record.data["files"])
    assert load_config(finished / "config.yaml").rewards == QUICK["rewards"]
    latest = read_pointer(finished, "latest")
    assert latest is not None and latest.name == "000003"
    kept = {path.name for path in (finished / "checkpoints").iterdir()}
    best = read_pointer(finished, "best")
    assert kept == {"000002", "000003"} | ({best.name} if best else set())  # the newest two and the best
    assert (finished / "log.txt").is_file()


def figures(output: Path) -> list[Mapping[str, Any]]:
    """All that a run measured, without times and memory."""
    dropped = ("seconds", "peak_memory_mb")
    return [{k: v for k, v in r.data.items() if k not in dropped} for r in of_type(output, "metrics")]


def test_a_seed_decides_all(finished: Path, tiny_folder: Path, tmp_path: Path) -> None:
    summary = run(tiny_folder, tmp_path / "again")
    assert figures(tmp_path / "again") == figures(finished)
    assert summary["heldout"] == summary_of(finished)["heldout"]
    run(tiny_folder, tmp_path / "other", seed=1, updates=1)
    other, one = figures(tmp_path / "other")[0], figures(finished)[0]
    assert other["rewards"] != one["rewards"] and other["grad_norm"] != one["grad_norm"]
    # The base is judged on fixed prompts and noise, whatever the seed.
    bases = [of_type(folder, "evaluation")[:2] for folder in (finished, tmp_path / "other")]
    assert [record.data for record in bases[0]] == [record.data for record in bases[1]]


def test_the_comparison_can_be_repeated(finished: Path) -> None:
    old = summary_of(finished)
    assert evaluate_run(finished) == old == summary_of(finished)


def test_diverged_weights_are_named_as_the_cause(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    with pytest.raises(FloatingPointError, match="the videos of update 2 are not finite: the weights have diverged"):
        run(tiny_folder, output, optimizer="sgd", learning_rate=1e38, max_grad_norm=1e30, evaluate_every=0)
    assert summary_of(output)["status"] == "failed"


def test_a_clip_within_numeric_drift_is_refused_unless_told_otherwise(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected 3 x drift or more"):
        run(tiny_folder, tmp_path / "refused", updates=1, clip=1e-12)
    run(tiny_folder, tmp_path / "run", updates=1, clip=1e-12, ignore_checks=["drift"])
    assert "drift" in {record.data["code"] for record in of_type(tmp_path / "run", "warning")}


def test_prompts_that_are_trained_on_cannot_judge(tiny_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="heldout_prompts holds 5 prompts that are trained on"):
        run(tiny_folder, tmp_path / "run", heldout_prompts="pocket-single:train")
    assert read_events(tmp_path / "run")[-1].type == "failed"


def test_little_time_still_ends_with_a_report(tiny_folder: Path, tmp_path: Path) -> None:
    summary = run(tiny_folder, tmp_path / "run", minutes=1e-6, updates=50)
    assert (summary["status"], summary["updates"]) == ("done", 1)
    assert set(summary["heldout"]) == {BRIGHT, "colorfulness"}


def test_without_gain_the_run_stops_early_and_says_so(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    changes: dict[str, Any] = {"updates": 50, "evaluate_every": 1, "early_stop_patience": 2, "checks": False}
    summary = run(tiny_folder, output, rewards={"tests.tiny:constant": 1.0}, **changes)
    assert summary["updates"] == 2
    assert [record.data["code"] for record in of_type(output, "warning")] == ["early_stop", "no_gain"]
    assert [record.data["dead_groups"] for record in of_type(output, "metrics")] == [3, 3]
    assert summary["heldout"]["tests.tiny:constant"]["win_rate"] == 0.5


def test_the_report_shows_the_best_checkpoint_not_the_last(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    summary = run(tiny_folder, output, rewards={"tests.tiny:Waning": 1.0}, evaluate_every=1, learning_rate=0.01)
    assert (summary["updates"], summary["best_update"]) == (3, 1)
    validations = [r.data["best"] for r in of_type(output, "evaluation") if r.data["split"] == "validation"]
    assert validations == [False, True, False, False]
    assert [r.data["best"] for r in of_type(output, "checkpoint")] == [True, False, False]
    best, latest = read_pointer(output, "best"), read_pointer(output, "latest")
    assert best is not None and latest is not None and (best.name, latest.name) == ("000001", "000003")
    assert best.is_dir() and latest.is_dir()  # neither is pruned
    assert evaluate_run(output)["heldout"] == summary["heldout"]
    # Negative control: the last weights would have given another report.
    pointers = output / "pointers.json"
    pointers.write_text(pointers.read_text(encoding="utf-8").replace("000001", "000003"), encoding="utf-8")
    assert evaluate_run(output)["heldout"] != summary["heldout"]


def test_what_is_validated_are_the_averaged_weights(tiny_folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    changes = {**QUICK, "ema_decay": 0.9, "updates": 3, "learning_rate": 0.01, "evaluate_every": 0}
    run(tiny_folder, output, **changes)
    told = of_type(output, "evaluation")[2]
    assert (told.update, told.data["split"]) == (3, "validation")
    prompts = load_prompts("pocket-single:validation", 3)
    model = open_model(tiny_folder)
    text = model.encode_prompts([prompt.text for prompt in prompts], NEGATIVE)
    config = config_for(tiny_folder, **changes)
    model.add_adapter(config.lora_rank, config.lora_alpha, config.lora_targets, "gaussian")
    means = []
    for name in ("ema", "adapter"):
        weights = load_file(output / "checkpoints" / "000003" / f"{name}.safetensors")
        put_weights(dict(model.trainable()), weights)
        judged = evaluate(model, config, RewardSet({BRIGHT: 1.0}), text, EvaluationSet("v", prompts, 0), Meter())
        means.append(float(judged.scores[BRIGHT].mean()))
    assert told.data["rewards"][BRIGHT]["mean"] == pytest.approx(means[0], abs=1e-7)
    assert told.data["rewards"][BRIGHT]["mean"] != pytest.approx(means[1], abs=1e-6)


def gain(tiny_folder: Path, output: Path, **changes: Any) -> tuple[float, float]:
    """Held-out gain in brightness, and win rate, of a short training of single frames at a large rate.

    Plain SGD, whose steps are as small as the mean gradient: without a signal it hardly moves, where Adam would wander.
    """
    values: dict[str, Any] = {
        "seed": 2, "rewards": {BRIGHT: 1.0}, "prompts_per_update": 8, "group_size": 16, "guidance_scale": 1.0,
        "frames": 1, "optimizer": "sgd", "learning_rate": 80.0, "max_grad_norm": 100.0, "reward_std": "pooled",
        "clip": 0.5, "updates": 16, "evaluate_every": 0, "checkpoint_every": 100, "evaluation_steps": 4,
        "heldout_limit": 24, "videos_saved": 0,
    }  # fmt: skip
    result = run(tiny_folder, output, **{**values, **changes})["heldout"][BRIGHT]
    return result["gain"], result["win_rate"]


def test_training_raises_what_it_optimises_and_nothing_else_does(tiny_folder: Path, tmp_path: Path) -> None:
    risen, wins = gain(tiny_folder, tmp_path / "bright")
    assert risen > 2e-3 and wins > 0.9
    # Negative controls: permuted advantages teach nothing, a negative weight teaches the contrary.
    shuffled, _ = gain(tiny_folder, tmp_path / "shuffled", shuffle_advantages=True)
    assert abs(shuffled) < risen / 2
    fallen, wins = gain(tiny_folder, tmp_path / "dark", rewards={BRIGHT: -1.0})
    assert fallen < -2e-3 and wins < 0.1


@pytest.mark.parametrize(
    "changes",
    [
        {"adapter": "full", "kl_weight": 0.01, "learning_rate": 1e-4},
        {"initial_noise": "independent", "solver": "adams2", "noise_level": "flash", "replay_batch": 3},
        {"branch_noise": "lowpass", "lowpass_block": 4, "noise_level": "cps", "lora_init": "kaiming"},
        {"ema_decay": 0.9, "ema_every": 2, "inner_updates": 2, "optimizer": "sgd", "noise_level": "dance"},
        {"dtype": "bfloat16", "gradient_checkpointing": True, "kl_weight": 0.01, "reward_std": "group", "clip": 0.1},
        {"rectify": False, "guidance_scale": 1.0, "warmup_updates": 2, "learning_rate_schedule": "cosine"},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_every_option_trains_from_start_to_finish(tiny_folder: Path, tmp_path: Path, changes: dict[str, Any]) -> None:
    output = tmp_path / "run"
    assert run(tiny_folder, output, **changes, updates=2)["status"] == "done"
    metrics = of_type(output, "metrics")
    assert len(metrics) == 2 and all(record.data["grad_norm"] > 0 for record in metrics)
    latest = read_pointer(output, "latest")
    assert latest is not None
    weights = load_weights(latest)
    assert all(bool(torch.isfinite(weight).all()) for weight in weights.values())
    if changes.get("adapter") == "full":
        base = dict(open_model(tiny_folder).denoiser.named_parameters())
        assert {f"transformer.{name}" for name in base} == set(weights)
        assert any(not torch.equal(weights[f"transformer.{name}"], value) for name, value in base.items())
    if "kl_weight" in changes:
        # At the first update the model is the base itself; after an optimiser step it is not.
        assert metrics[0].data["kl"] == pytest.approx(0, abs=1e-9) and metrics[1].data["kl"] > 0
    assert (latest / "ema.safetensors").is_file() == ("ema_decay" in changes)
