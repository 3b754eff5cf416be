"""Text is read from rendered frames by the real reader, whose models lie in its package."""

from __future__ import annotations

from collections.abc import Mapping

import cv2
import numpy as np
import pytest
import torch

from flash_grpo.errors import InputError
from flash_grpo.rewards.base import VideoBatch
from flash_grpo.rewards.text_rendering import TextRendering


def sign(text: str, height: int = 128, width: int = 256) -> torch.Tensor:
    picture = np.full((128, 256, 3), 235, np.uint8)
    cv2.putText(picture, text, (20, 79), cv2.FONT_HERSHEY_SIMPLEX, 1.5, (20, 20, 90), 3)
    picture = cv2.resize(picture, (width, height), interpolation=cv2.INTER_AREA)
    return torch.from_numpy(picture).float().div(255).permute(2, 0, 1)[None].expand(3, -1, -1, -1)


@pytest.fixture(scope="module")
def reward() -> TextRendering:
    return TextRendering(frames=1)


def score(
    reward: TextRendering,
    clips: list[torch.Tensor],
    prompt: str = 'a sign that says "OPEN" in the rain',
    metadata: Mapping[str, object] | None = None,
) -> list[float]:
    batch = VideoBatch(torch.stack(clips), [prompt] * len(clips), [metadata or {}] * len(clips), 8.0)
    return [float(value) for value in reward.score(batch)]


def test_the_right_word_beats_a_near_one_beats_a_wrong_one(reward: TextRendering) -> None:
    right, near, longer, wrong, empty = score(
        reward, [sign("OPEN"), sign("OPEM"), sign("open late"), sign("SHUT"), sign("")]
    )
    assert right == 1.0
    assert near == pytest.approx(0.75)
    assert longer == pytest.approx(0.5)
    assert wrong <= 0.25
    assert empty == 0.0


def test_small_frames_can_be_read(reward: TextRendering) -> None:
    right, wrong = score(reward, [sign("OPEN", 48, 96), sign("SHUT", 48, 96)])
    assert right == 1.0
    assert wrong <= 0.25


@pytest.mark.parametrize(
    ("prompt", "metadata"),
    [
        ("a neon sign reading “Open”", {}),
        ("the baker's door says 'open', it's raining", {}),
        ("a shop door", {"text": "OPEN"}),
        ('a door that says "shut"', {"text": "open"}),
    ],
)
def test_the_text_comes_from_quotes_or_metadata(
    reward: TextRendering, prompt: str, metadata: Mapping[str, object]
) -> None:
    assert score(reward, [sign("OPEN")], prompt, metadata) == [1.0]


def test_the_mean_over_frames_counts() -> None:
    clip = torch.cat([sign("OPEN")[:1], sign("OPEN")[:1], sign("SHUT")[:1], sign("SHUT")[:1]])
    value = score(TextRendering(frames=2), [clip])[0]
    assert 0.5 <= value < 0.7


def test_a_prompt_without_text_gets_a_sentence(reward: TextRendering) -> None:
    with pytest.raises(InputError, match=r"no text to look for in \"the baker's door\"; put it in quotes"):
        score(reward, [sign("OPEN")], "the baker's door")
