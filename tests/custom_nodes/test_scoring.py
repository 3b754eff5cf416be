"""The node's rewards are the project's own."""

from __future__ import annotations

import pytest
import torch

from custom_nodes.comfyui_flash_grpo.logic.problem import Problem
from custom_nodes.comfyui_flash_grpo.logic.scoring import HERE, names_of, options_of, score_here
from flash_grpo.models.pocket import world
from flash_grpo.rewards.base import VideoBatch
from flash_grpo.rewards.registry import create

OPTIONS = {"subject_size": {"low": 0.2, "high": 0.26}}


def test_scores_equal_those_of_a_run() -> None:
    caption, pixels = next(iter(world.clips(3, 1)))
    frames = torch.from_numpy(pixels)
    rounded = (frames * 255).round() / 255
    found = score_here(list(HERE), frames.permute(0, 2, 3, 1), 8.0, caption, OPTIONS)
    for name, value in found.items():
        wanted = create(name, OPTIONS.get(name)).score(VideoBatch(rounded[None], [caption], [{}], 8.0))
        assert value == pytest.approx(float(wanted[0]), abs=1e-6), name
    assert found["prompt_following"] > 0.9 and set(found) == set(HERE)


def test_what_a_reward_refuses_is_the_node_s_sentence() -> None:
    frames = torch.rand(2, 32, 32, 3)
    with pytest.raises(Problem, match="'flicker' needs at least 3 frames, got 2"):
        score_here(["flicker"], frames, 8.0, "", {})
    with pytest.raises(Problem, match="reads captions of the pocket world only"):
        score_here(["prompt_following"], torch.rand(9, 32, 32, 3), 8.0, "a fox in the snow", {})
    with pytest.raises(Problem, match=r"subject_size does not take the options \['size'\]"):
        score_here(["subject_size"], frames, 8.0, "", {"subject_size": {"size": 1}})


def test_names_and_options_are_read_from_text() -> None:
    assert names_of(" sharpness,flicker\n sharpness ,") == ["sharpness", "flicker"]
    assert options_of("") == {} and options_of('{"flicker": {}}') == {"flicker": {}}
    with pytest.raises(Problem, match="at least one reward"):
        names_of(" , ")
    for text in ("{", "[]", '{"a": 1}'):
        with pytest.raises(Problem, match="options"):
            options_of(text)
