"""The demo's promise, at half its length: the reward rises on prompts never trained on, and not by chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flash_grpo.config import build_config
from flash_grpo.trainer import train

pytestmark = pytest.mark.slow

SHORT = {"updates": 40, "evaluate_every": 40, "early_stop_patience": 0, "heldout_limit": 64, "videos_saved": 0}


def heldout(folder: Path, **changes: Any) -> dict[str, dict[str, Any]]:
    summary = train(build_config("pocket", {**SHORT, **changes}), folder, preset="pocket")
    figures: dict[str, dict[str, Any]] = summary["heldout"]
    return figures


def test_the_demo_gains_and_keeps_following_its_prompts(tmp_path: Path) -> None:
    figures = heldout(tmp_path / "run")
    assert figures["subject_size"]["ci95"][0] > 0.05
    assert figures["subject_size"]["win_rate"] > 0.75
    assert figures["prompt_following"]["gain"] > -0.05


def test_shuffled_advantages_gain_nothing(tmp_path: Path) -> None:
    figures = heldout(tmp_path / "run", shuffle_advantages=True)
    assert abs(figures["subject_size"]["gain"]) < 0.05
