"""Two videos that differ in length, rate or size are made comparable, and every change is told."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from custom_nodes.comfyui_flash_grpo.logic.comparison import caption, reward_rows, sameness
from custom_nodes.comfyui_flash_grpo.logic.frames import GAP, STRIP, Clip, aligned, as_bytes, side_by_side
from custom_nodes.comfyui_flash_grpo.logic.problem import Problem


def clip(frames: int = 9, height: int = 32, width: int = 48, fps: float = 8.0) -> Clip:
    """A clip whose frame n is n + 1 hundredths bright."""
    levels = (torch.arange(frames).float() + 1)[:, None, None, None] / 100
    return Clip(levels.expand(frames, height, width, 3).clone(), fps)


def levels(found: Clip) -> list[int]:
    height, width = found.frames.shape[1:3]
    return [round(100 * float(value)) for value in found.frames[:, height // 2, width // 2, 0]]


def test_equal_videos_stay_as_they_are() -> None:
    before, after, notices = aligned(clip(), clip())
    assert not notices and torch.equal(before.frames, clip().frames) and levels(after) == list(range(1, 10))


def test_the_longer_one_is_cut() -> None:
    before, after, notices = aligned(clip(9), clip(5))
    assert len(before.frames) == len(after.frames) == 5
    assert notices == ["lengths differ (9 and 5 frames): only the first 5 are compared"]


def test_another_rate_is_met_by_time() -> None:
    before, after, notices = aligned(clip(9, fps=8), clip(18, fps=16))
    assert after.fps == 8 and levels(after) == [2, 4, 6, 8, 10, 12, 14, 16, 18] and len(before.frames) == 9
    assert notices == ["rates differ (8 and 16 per second): after is shown at 8"]


def test_another_size_is_letterboxed() -> None:
    before, after, notices = aligned(clip(1, 32, 32), clip(1, 16, 32))
    assert before.frames.shape == after.frames.shape == (1, 32, 32, 3)
    assert float(after.frames[0, 4, 16, 0]) == 0 and levels(after) == [1]
    assert notices[-1] == "sizes differ (32x32 and 32x16): both are fitted into 32x32"
    assert "one frame" in notices[0]


def test_odd_sizes_become_even_without_being_scaled() -> None:
    before, _, notices = aligned(clip(2, 31, 47), clip(2, 31, 47))
    assert before.frames.shape == (2, 32, 48, 3) and not notices
    assert torch.equal(before.frames[:, :31, :47], clip(2, 31, 47).frames)


def test_side_by_side_shows_both_under_their_names() -> None:
    before, after, _ = aligned(clip(2, 32, 32), Clip(clip(2, 32, 32).frames + 0.5, 8.0))
    whole = side_by_side(before, after)
    assert whole.shape == (2, 256 + STRIP, 2 * 256 + GAP, 3)
    assert round(100 * float(whole[1, STRIP + 9, 9, 0])) == 2
    assert round(100 * float(whole[1, STRIP + 9, 256 + GAP + 9, 0])) == 52
    assert as_bytes(whole).shape == tuple(whole.shape) and float(whole[:, :STRIP].max()) == 1


@pytest.mark.parametrize("frames", [torch.zeros(0, 8, 8, 3), torch.zeros(8, 8, 3), torch.zeros(2, 8, 8, 1)])
def test_what_is_no_video_is_refused(frames: torch.Tensor) -> None:
    with pytest.raises(Problem, match="expected a video of frames"):
        Clip(frames, 8.0)


@pytest.mark.parametrize("fps", [0.0, -1.0, math.nan, math.inf, 1000.0])
def test_an_impossible_rate_is_refused(fps: float) -> None:
    with pytest.raises(Problem, match="frames per second"):
        Clip(torch.zeros(1, 8, 8, 3), fps)


def test_rewards_are_compared_where_both_sides_have_them() -> None:
    before: dict[str, Any] = {"sharpness": 1.0, "subject_size": 0.5, "only": 1.0, "broken": math.nan}
    rows = reward_rows(before, {"subject_size": 0.75, "sharpness": 2.0, "broken": 1.0}, ["subject_size"])
    assert [(row["name"], row["optimised"]) for row in rows] == [("subject_size", True), ("sharpness", False)]
    settings = {"seed": 3, "steps": 20, "cfg": 3.0, "sampler": "euler", "scheduler": "simple"}
    text = caption(rows, sameness(settings), ["lengths differ"])
    assert text.splitlines()[:3] == [
        "same prompt, seed 3, 20 steps, cfg 3, euler / simple",
        "lengths differ",
        "subject_size (optimised): 0.500 → 0.750 (+0.250)",
    ]
    assert reward_rows(None, None, ()) == [] and "not known" in caption([], sameness(None), [])
