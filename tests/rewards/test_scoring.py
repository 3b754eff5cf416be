"""Sets of rewards: groups, watch-only weights, and answers that are no answers."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

from flash_grpo.errors import InputError
from flash_grpo.rewards.base import VideoBatch
from flash_grpo.rewards.scoring import RewardSet


def mean(videos: VideoBatch) -> torch.Tensor:
    return videos.frames.mean((1, 2, 3, 4))


def centered(videos: VideoBatch) -> torch.Tensor:
    """Needs to see its whole group and nothing else."""
    assert len(set(videos.prompts)) == 1
    values = mean(videos)
    return values - values.mean()


centered.groupwise = True  # type: ignore[attr-defined]


def short(videos: VideoBatch) -> torch.Tensor:
    return mean(videos)[:-1]


def broken(videos: VideoBatch) -> torch.Tensor:
    values = mean(videos).clone()
    values[1] = float("nan")
    return values


class Lists:
    groupwise = False

    def score(self, videos: VideoBatch) -> list[float]:
        return [0.0] * len(videos)


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_scoring")
    vars(module).update(mean=mean, centered=centered, short=short, broken=broken, Lists=Lists)
    monkeypatch.setitem(sys.modules, "own_scoring", module)


def batch() -> VideoBatch:
    frames = torch.linspace(0, 1, 6)[:, None, None, None, None].expand(6, 3, 3, 8, 8)
    return VideoBatch(frames, ["a", "a", "a", "b", "b", "b"], [{}] * 6, 8.0)


def test_scores_are_raw_and_watched_rewards_are_scored_too() -> None:
    rewards = RewardSet({"own_scoring:mean": 2.0, "sharpness": 0, "subject_size": 1}, {"subject_size": {"low": 0.1}})
    scores = rewards.score(batch(), group_size=3)
    assert rewards.weights == {"own_scoring:mean": 2.0, "sharpness": 0.0, "subject_size": 1.0}
    assert list(scores) == list(rewards.weights)
    torch.testing.assert_close(scores["own_scoring:mean"], torch.linspace(0, 1, 6))
    assert scores["sharpness"].tolist() == [0.0] * 6


def test_groupwise_rewards_see_one_group_at_a_time() -> None:
    rewards = RewardSet({"own_scoring:centered": 1.0})
    scores = rewards.score(batch(), group_size=3)["own_scoring:centered"]
    torch.testing.assert_close(scores, torch.tensor([-0.2, 0, 0.2, -0.2, 0, 0.2]))
    with pytest.raises(InputError, match="no group size"):
        rewards.score(batch(), group_size=None)
    with pytest.raises(InputError, match="do not divide into groups of 4"):
        rewards.score(batch(), group_size=4)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("short", r"'own_scoring:short' answered with shape \[5\] for 6 videos"),
        ("broken", r"'own_scoring:broken' gave nan for video 1 \('a'\), 1 of 6"),
        ("Lists", "'own_scoring:Lists' answered with a list"),
    ],
)
def test_answers_that_are_none_name_the_reward(name: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        RewardSet({f"own_scoring:{name}": 1.0}).score(batch(), group_size=None)


def test_bad_sets_get_a_sentence() -> None:
    with pytest.raises(InputError, match="must be a finite number, got nan"):
        RewardSet({"flicker": float("nan")})
    with pytest.raises(InputError, match="options given for sharpness"):
        RewardSet({"flicker": 1.0}, {"sharpness": {}})
    with pytest.raises(InputError, match="unknown reward"):
        RewardSet({"flickr": 1.0})


def test_batches_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(InputError, match=r"got \[3, 8, 8\]"):
        VideoBatch(torch.zeros(3, 8, 8), [], [], 8.0)
    with pytest.raises(InputError, match="each of 2 videos, got 1"):
        VideoBatch(torch.zeros(2, 3, 3, 8, 8), ["p"], [{}, {}], 8.0)
