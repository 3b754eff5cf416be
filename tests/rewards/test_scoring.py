"""Sets of rewards: groups, watch-only weights, and answers that are no answers."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch

from flash_grpo.errors import InputError
from flash_grpo.rewards import scoring
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


def words(videos: VideoBatch) -> list[str]:
    return ["good"] * len(videos)


def nothing(videos: VideoBatch) -> None:
    del videos


def complex_(videos: VideoBatch) -> torch.Tensor:
    return mean(videos) * 1j


def square(videos: VideoBatch) -> torch.Tensor:
    return mean(videos)[:, None]


def too_large(videos: VideoBatch) -> torch.Tensor:
    return mean(videos).double() + 1e300


def raising(videos: VideoBatch) -> torch.Tensor:
    raise ValueError(f"cannot judge\n{len(videos)} videos")


def leaving(videos: VideoBatch) -> torch.Tensor:
    sys.exit(0)


def whole_numbers(videos: VideoBatch) -> list[int]:
    return list(range(len(videos)))


let_go = threading.Event()


def hanging(videos: VideoBatch) -> torch.Tensor:
    assert let_go.wait(60)
    return mean(videos)


OWN = (
    mean,
    centered,
    short,
    broken,
    Lists,
    words,
    nothing,
    complex_,
    square,
    too_large,
    raising,
    leaving,
    whole_numbers,
)


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("own_scoring")
    vars(module).update({target.__name__: target for target in (*OWN, hanging)})
    monkeypatch.setitem(sys.modules, "own_scoring", module)


@pytest.fixture
def hang() -> Iterator[None]:
    """Lets the calls that a test left hanging end with it."""
    let_go.clear()
    yield
    let_go.set()
    deadline = time.monotonic() + 60
    while scoring.hanging() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not scoring.hanging()


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
        ("words", "'words' answered with a list that is no list of numbers; return one float per video"),
        ("nothing", "'nothing' answered with a NoneType that is no list of numbers"),
        ("complex_", "'own_scoring:complex_' answered with torch.complex64 numbers; return one real float"),
        ("square", r"'own_scoring:square' answered with shape \[6, 1\] for 6 videos"),
        ("too_large", r"'own_scoring:too_large' gave inf for video 0"),
    ],
)
def test_answers_that_are_none_name_the_reward(name: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        RewardSet({f"own_scoring:{name}": 1.0}).score(batch(), group_size=None)


def test_whole_numbers_are_numbers() -> None:
    scores = RewardSet({"own_scoring:whole_numbers": 1.0}).score(batch(), group_size=None)
    assert scores["own_scoring:whole_numbers"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert scores["own_scoring:whole_numbers"].dtype == torch.float32


@pytest.mark.parametrize(
    ("name", "raised"), [("raising", "ValueError (cannot judge 6 videos)"), ("leaving", "SystemExit (0)")]
)
def test_a_reward_that_raises_is_named_and_its_error_kept(name: str, raised: str) -> None:
    with pytest.raises(RuntimeError) as caught:
        RewardSet({f"own_scoring:{name}": 1.0}).score(batch(), group_size=None)
    assert not isinstance(caught.value, InputError)
    assert str(caught.value) == f"reward 'own_scoring:{name}' raised {raised}; mend it or take it out of rewards"
    assert caught.value.__cause__ is not None and caught.value.__cause__.__traceback__ is not None


def test_a_reward_that_hangs_is_left_behind_and_nothing_waits_for_it_again(hang: None) -> None:
    rewards = RewardSet({"own_scoring:mean": 1.0, "own_scoring:hanging": 0.0}, timeout=0.05)
    sentence = (
        r"reward 'own_scoring:hanging' did not answer for 6 videos within 0\.05 seconds; "
        "mend the reward, or raise reward_timeout"
    )
    with pytest.raises(RuntimeError, match=sentence):
        rewards.score(batch(), group_size=None)
    assert scoring.hanging()
    with pytest.raises(RuntimeError, match=sentence):  # even of a reward that would answer
        rewards.score_one("own_scoring:mean", batch())
    # Negative control: with time enough the same reward answers.
    let_go.set()
    patient = RewardSet({"own_scoring:hanging": 0.0}, timeout=60)
    assert len(patient.score_one("own_scoring:hanging", batch())) == 6


def test_a_run_that_ends_need_not_wait_for_its_rewards(hang: None) -> None:
    rewards = RewardSet({"own_scoring:hanging": 1.0}, timeout=None)
    threading.Timer(0.05, rewards.give_up).start()
    with pytest.raises(RuntimeError, match="given up because the run ends"):
        rewards.score(batch(), group_size=None)
    rewards.give_up()  # once more changes nothing


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
