"""Rewards are found by name or path, their cards are complete, and nothing of it imports torch."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flash_grpo.errors import InputError
from flash_grpo.rewards import registry
from flash_grpo.rewards.base import Reward, VideoBatch

ELSEWHERE = {"vlm_judge"}
"""Rewards that ask another server, which was never run here; their own tests have one that stands in."""
READY = sorted(name for name, card in registry.available().items() if card.available and name not in ELSEWHERE)

MODULE = """
import torch

class Bright:
    groupwise = False
    def __init__(self, scale=1.0):
        self.scale = scale
    def score(self, videos):
        return videos.frames.mean((1, 2, 3, 4)) * self.scale

def bright(videos, scale=1.0):
    return [float(clip.mean()) * scale for clip in videos.frames]

def make(scale=1.0):
    return Bright(scale)

ready = Bright(3.0)
number = 5

def rank(videos):
    return videos.frames.mean((1, 2, 3, 4)).argsort().argsort().float()
rank.groupwise = True

class Mute:
    pass
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_rewards_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    return name


def videos(count: int = 2) -> VideoBatch:
    frames = torch.linspace(0, 1, count)[:, None, None, None, None].expand(count, 3, 3, 8, 8)
    return VideoBatch(frames, ["p"] * count, [{}] * count, 8.0)


def test_the_issue_s_rewards_are_there() -> None:
    assert set(READY) == {
        "prompt_following", "subject_size", "motion_smoothness", "dynamic_degree", "flicker", "sharpness",
        "colorfulness", "jpeg_compressibility", "text_rendering",
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(registry.available()))
def test_every_card_is_complete(name: str) -> None:
    card = registry.load_card(name)
    assert all((card.title, card.measures, card.licence, card.exploits))
    assert card.badge in ("motion", "aesthetic", "text", "composition")
    assert len(card.range) == 2
    assert all(option.help for option in card.options.values())
    assert card.available == (card.implementation is not None)
    for told in (card.upstream_equality, card.real_weights):
        assert told is None or told.partition(":")[0] in ("verified", "unverified")
    assert not card.weights or card.real_weights, "it has weights, so it must say whether they were run"
    if name in READY:
        assert card.verified
        assert card.cost.pocket_seconds is not None


@pytest.mark.parametrize("name", READY)
def test_every_reward_agrees_with_its_card(name: str) -> None:
    card = registry.load_card(name)
    reward = registry.create(name)
    assert isinstance(reward, Reward)
    assert reward.groupwise == card.groupwise
    parameters = inspect.signature(type(reward)).parameters if card.options else {}
    assert {key: p.default for key, p in parameters.items()} == {k: o.default for k, o in card.options.items()}


@pytest.mark.parametrize("name", READY)
def test_scores_stay_in_the_card_s_range(name: str) -> None:
    low, high = registry.load_card(name).range
    generator = torch.Generator().manual_seed(0)
    frames = torch.stack(
        [torch.rand(9, 3, 32, 32, generator=generator), torch.zeros(9, 3, 32, 32), torch.ones(9, 3, 32, 32)]
    )
    caption = "a red circle standing still on a black background"
    scores = registry.create(name).score(VideoBatch(frames, [caption] * 3, [{"text": "open"}] * 3, 8.0))
    assert scores.shape == (3,)
    assert scores.dtype == torch.float32
    assert torch.isfinite(scores).all()
    assert low is None or scores.min() >= low
    assert high is None or scores.max() <= high


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
def test_rewards_of_other_servers_agree_with_their_cards_and_say_what_they_need(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = registry.load_card(name)
    assert card.available
    assert not card.verified
    assert card.implementation
    module, attribute = card.implementation.split(":")
    parameters = inspect.signature(getattr(importlib.import_module(module), attribute)).parameters
    assert {key: p.default for key, p in parameters.items()} == {k: o.default for k, o in card.options.items()}
    monkeypatch.delenv("FLASH_GRPO_JUDGE_SERVER", raising=False)
    with pytest.raises(InputError, match="needs a server and a model"):
        registry.create(name)


def test_cards_need_no_torch() -> None:
    code = (
        "import sys; from flash_grpo.rewards import registry; assert len(registry.available()) > 5; "
        "heavy = {'torch', 'numpy', 'cv2', 'PIL'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_names_suggest_the_nearest() -> None:
    with pytest.raises(InputError, match="'subject_size'"):
        registry.create("subjct_size")
    with pytest.raises(InputError, match="did you mean 'low'"):
        registry.create("subject_size", {"lowe": 0.1})
    with pytest.raises(InputError, match="has no options"):
        registry.create("flicker", {"low": 0.1})
    with pytest.raises(InputError, match="expects float, got 'big'"):
        registry.create("subject_size", {"high": "big"})
    with pytest.raises(InputError, match="low < high|low <= high"):
        registry.create("subject_size", {"low": 0.5, "high": 0.2})


def test_a_reward_still_to_come_refuses_in_one_sentence() -> None:
    assert not registry.load_card("hpsv3").verified
    with pytest.raises(InputError, match="later release; choose another one or override `rewards`"):
        registry.create("hpsv3")


def test_import_paths_take_classes_factories_functions_and_instances(module: str) -> None:
    for target, options, expected in [
        ("Bright", {"scale": 2.0}, 2.0),
        ("bright", {"scale": 2.0}, 2.0),
        ("make", {}, 1.0),
        ("ready", {}, 3.0),
    ]:
        reward = registry.create(f"{module}:{target}", options)
        assert not reward.groupwise
        torch.testing.assert_close(reward.score(videos()), torch.tensor([0.0, expected]))
    assert registry.create(f"{module}:rank").groupwise


@pytest.mark.parametrize(
    ("target", "options", "sentence"),
    [
        ("brigth", {}, "did you mean 'bright'"),
        ("Bright", {"size": 1}, "does not accept the options"),
        ("bright", {"size": 1}, "does not accept the options"),
        ("ready", {"scale": 1}, "takes no options"),
        ("number", {}, "expected a reward class"),
        ("Mute", {}, "without a method `score"),
        ("", {}, "expected an import path"),
    ],
)
def test_bad_import_paths_get_a_sentence(module: str, target: str, options: dict[str, object], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        registry.create(f"{module}:{target}", options)


def test_a_missing_module_is_told_from_a_broken_one(module: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no module 'nowhere_to_be_found'"):
        registry.create("nowhere_to_be_found:reward")
    (tmp_path / "broken_reward.py").write_text("import nowhere_to_be_found_either\n")
    with pytest.raises(
        InputError,
        match="cannot be imported .*No module named 'nowhere_to_be_found_either', at broken_reward.py line 1",
    ):
        registry.create("broken_reward:reward")
