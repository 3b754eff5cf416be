"""Every built-in reward knows better from worse on its own clips, and a broken one is found out."""

from __future__ import annotations

import pytest
import torch

from flash_grpo.rewards.base import VideoBatch
from flash_grpo.rewards.registry import available
from flash_grpo.rewards.scoring import RewardSet
from flash_grpo.rewards.self_test import PAIRS, self_test

BUILT_IN = sorted(name for name, card in available().items() if card.available)


def test_every_reward_that_can_be_had_has_a_self_test() -> None:
    assert sorted(PAIRS) == BUILT_IN


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_sound_reward_passes_and_one_turned_round_does_not(name: str) -> None:
    rewards = RewardSet({name: 1.0})
    assert self_test(rewards, name, {}) is None
    sound = rewards.score_one

    def turned(reward: str, videos: VideoBatch) -> torch.Tensor:
        return -sound(reward, videos)

    rewards.score_one = turned  # type: ignore[method-assign]
    problem = self_test(rewards, name, {})
    assert problem is not None and problem.startswith(f"reward {name!r} gave ")
    assert "expected the better one to score higher; mend its installation" in problem


@pytest.mark.parametrize(
    "options", [{"low": 0.2, "high": 0.26}, {"low": 0.01, "high": 0.02}, {"low": 0.9, "high": 0.95}]
)
def test_the_clips_follow_the_options(options: dict[str, object]) -> None:
    assert self_test(RewardSet({"subject_size": 1.0}, {"subject_size": options}), "subject_size", options) is None


def test_options_that_blind_a_reward_are_found_out() -> None:
    options: dict[str, object] = {"tolerance": 10.0}  # no colour is that far from another
    problem = self_test(RewardSet({"subject_size": 1.0}, {"subject_size": options}), "subject_size", options)
    assert problem is not None and "gave 0 to the better and 0 to the worse" in problem


def test_a_reward_that_raises_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(self: object, videos: VideoBatch) -> torch.Tensor:
        raise ImportError("its library is gone")

    monkeypatch.setattr("flash_grpo.rewards.sharpness.Sharpness.score", lost)
    problem = self_test(RewardSet({"sharpness": 1.0}), "sharpness", {})
    assert problem is not None and "failed on its own test clips" in problem and "its library is gone" in problem


def test_a_reward_of_ones_own_has_none() -> None:
    assert self_test(RewardSet({"tests.tiny:broken": 1.0}), "tests.tiny:broken", {}) is None
