"""The presets of large models run their whole path on the tiny pipeline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from flash_grpo import cli
from flash_grpo.checkpoint import load_weights
from flash_grpo.config import build_config
from flash_grpo.trainer import train
from tests.runs import BRIGHT, of_type

PRESETS = ("flash-grpo-paper", "wan2.1-1.3b", "wan2.1-14b")


@pytest.fixture
def prompt_files(tmp_path: Path) -> dict[str, str]:
    files = {}
    for key, words in (("prompts", "dog"), ("validation_prompts", "cat"), ("heldout_prompts", "cow")):
        file = tmp_path / f"{key}.txt"
        file.write_text("".join(f"a {words} number {index}\n" for index in range(4)), encoding="utf-8")
        files[key] = str(file)
    return files


@pytest.mark.parametrize("preset", PRESETS)
def test_the_presets_of_large_models_run_their_whole_path(
    preset: str, tiny_folder: Path, tmp_path: Path, prompt_files: dict[str, str]
) -> None:
    changes: dict[str, Any] = {
        "model": str(tiny_folder), "device": "cpu", "threads": 1, "height": 32, "width": 32, "frames": 5,
        "sampling_steps": 6, "candidate_steps": [0, 1, 2], "updates": 1, "evaluation_steps": 3,
        "prompts_per_update": 2, "rewards": {BRIGHT: 1.0}, "reward_options": {}, "videos_saved": 1, **prompt_files,
    }  # fmt: skip
    summary = train(build_config(preset, changes), tmp_path / "run", preset=preset)
    assert (summary["status"], summary["preset"], summary["updates"]) == ("done", preset, 1)
    assert of_type(tmp_path / "run", "metrics")[0].data["grad_norm"] > 0
    config = build_config(preset)
    weights = load_weights(tmp_path / "run" / summary["files"]["adapter"])
    assert {min(weight.shape) for weight in weights.values()} == {min(config.lora_rank, 24)}  # 24 is the tiny width


def test_the_paper_preset_refuses_until_its_reward_comes(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "--preset", "flash-grpo-paper", "--output", str(tmp_path / "run"), f"--set=model={tiny_folder}"]
    monkeypatch.setattr(sys, "argv", ["flash-grpo", *command])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("flash-grpo: reward 'hpsv3' comes with a later release; choose another one")
    assert error.count("\n") == 1
