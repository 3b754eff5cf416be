"""The reward models on Qwen2-VL answer as upstream's own code did, on weights and inputs drawn from seeds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2VLConfig

from flash_grpo.errors import InputError
from flash_grpo.rewards.qwen2_vl import Qwen2VLReward, dimension_head, preference_head
from tests.rewards.golden import qwen2_vl_reward as golden

RECORDED: dict[str, Any] = json.loads(Path(golden.__file__).with_suffix(".json").read_text())
KINDS = {
    "hpsv3": (preference_head, golden.HPSV3["special_token_ids"], golden.IMAGE),
    "videoalign": (dimension_head, golden.VIDEOALIGN["special_token_ids"], golden.VIDEO),
}


def weights(kind: str) -> dict[str, torch.Tensor]:
    shapes = RECORDED[kind]["shapes"]
    return {name: torch.from_numpy(golden.weight(name, tuple(shape))) for name, shape in shapes.items()}


def model(kind: str) -> Qwen2VLReward:
    rope = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": golden.TEXT["rope_theta"]}
    text = {key: value for key, value in golden.TEXT.items() if key != "rope_theta"}
    config = Qwen2VLConfig(
        text_config={**text, "rope_parameters": rope},
        vision_config=golden.VISION,
        image_token_id=golden.IMAGE,
        video_token_id=golden.VIDEO,
    )
    made = Qwen2VLReward(config, KINDS[kind][0](golden.TEXT["hidden_size"])).eval()
    made.load_upstream(weights(kind))
    return made


def given(kind: str) -> dict[str, Any]:
    _, tokens, place = KINDS[kind]
    drawn = {key: torch.from_numpy(value) for key, value in golden.inputs(7, tokens, place).items()}  # type: ignore[arg-type]
    return {**drawn, "reward_tokens": tokens}


def score(kind: str, **changed: Any) -> torch.Tensor:
    with torch.no_grad():
        answer: torch.Tensor = model(kind)(**{**given(kind), **changed})
    return answer


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_upstreams(kind: str) -> None:
    recorded = torch.tensor(RECORDED[kind]["logits"])
    torch.testing.assert_close(score(kind), recorded, atol=1e-4, rtol=0)
    other = score(kind, pixels=given(kind)["pixels"] + 0.5)
    assert (other - recorded).abs().max() > 1e-2, "the pictures do not count"


@pytest.mark.parametrize("kind", KINDS)
def test_permuting_videos_permutes_scores_and_swapping_pictures_does_not(kind: str) -> None:
    inputs, straight = given(kind), score(kind)
    swapped_pixels = inputs["pixels"].reshape(2, 16, -1).flip(0).reshape(32, -1)
    texts = {key: inputs[key].flip(0) for key in ("input_ids", "attention_mask")}
    torch.testing.assert_close(score(kind, pixels=swapped_pixels, **texts), straight.flip(0), atol=1e-5, rtol=0)
    mispaired = score(kind, pixels=swapped_pixels)
    assert (mispaired - straight).abs().max() > 1e-2
    assert (mispaired - straight.flip(0)).abs().max() > 1e-2


def test_what_follows_a_text_does_not_count() -> None:
    inputs = given("videoalign")
    ids = inputs["input_ids"].clone()
    ids[inputs["attention_mask"] == 0] = 33
    torch.testing.assert_close(score("videoalign", input_ids=ids), score("videoalign"), atol=1e-6, rtol=0)


def test_a_reward_token_in_a_prompt_is_refused() -> None:
    ids = given("hpsv3")["input_ids"].clone()
    ids[0, 0] = KINDS["hpsv3"][1][0]  # type: ignore[index]
    with pytest.raises(InputError, match="keep them out of prompts"):
        score("hpsv3", input_ids=ids)


def test_pictures_without_places_are_refused() -> None:
    ids = given("hpsv3")["input_ids"].clone()
    ids[ids == golden.IMAGE] = 5
    with pytest.raises(InputError, match="0 places for the 8 parts"):
        score("hpsv3", input_ids=ids)


@pytest.mark.parametrize("fault", ["missing", "shape", "unknown"])
def test_weights_that_do_not_fit_are_named(fault: str) -> None:
    state, name = weights("videoalign"), "model.norm.weight"
    if fault == "missing":
        del state[name]
    elif fault == "shape":
        state[name] = torch.ones(31)
    else:
        state["model.more.weight"] = torch.ones(2)
    with pytest.raises(InputError, match=r"expected model\.language_model\.(norm|more)\.weight of shape"):
        model("videoalign").load_upstream(state)
