"""Self-tests of the built-in rewards: for each, two synthetic clips whose order is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from flash_grpo.models.pocket import world
from flash_grpo.rewards.base import VideoBatch
from flash_grpo.rewards.registry import load_card
from flash_grpo.rewards.scoring import RewardSet

FRAMES, SIZE = 9, 32
CAPTION = "a large red square standing still on a black background"
Options = Mapping[str, object]
Pair = tuple[torch.Tensor, torch.Tensor]
"""The worse and the better clip, each [F, 3, H, W] in 0..1."""


def self_test(rewards: RewardSet, name: str, options: Options) -> str | None:
    """What is wrong with one built-in reward, or None; None too for rewards that have no self-test.

    `options` are the reward's own from the configuration. Whatever the reward raises becomes part of the sentence.
    """
    if name not in PAIRS:
        return None
    clips = torch.stack(PAIRS[name]({**_defaults(name), **options}))
    try:
        worse, better = rewards.score_one(name, VideoBatch(clips, [CAPTION] * 2, [{"text": "STOP"}] * 2, 8.0)).tolist()
    except Exception as error:  # whatever breaks a reward is its self-test's finding
        return f"reward {name!r} failed on its own test clips ({error}); mend its installation or leave it out"
    if better > worse:
        return None
    return (
        f"reward {name!r} gave {better:.4g} to the better and {worse:.4g} to the worse of its two test clips; expected "
        "the better one to score higher; mend its installation or its options, or leave it out"
    )


def _defaults(name: str) -> dict[str, object]:
    return {key: option.default for key, option in load_card(name).options.items()}


def _plain(colour: tuple[float, float, float] = (0.5, 0.5, 0.5)) -> torch.Tensor:
    return torch.tensor(colour).view(1, 3, 1, 1).expand(FRAMES, 3, SIZE, SIZE).clone()


def _with_square(colour: tuple[float, float, float], side: int, path: Callable[[int], int]) -> torch.Tensor:
    """A square on black whose left edge at each frame is `path`."""
    clip = _plain((0.0, 0.0, 0.0))
    top = (SIZE - side) // 2
    for frame in range(FRAMES):
        left = path(frame)
        clip[frame, :, top : top + side, left : left + side] = torch.tensor(colour).view(3, 1, 1)
    return clip


def _checkered() -> torch.Tensor:
    clip = _plain((0.0, 0.0, 0.0))
    clip[..., ::2, ::2] = clip[..., 1::2, 1::2] = 1.0
    return clip


def _flickering() -> torch.Tensor:
    clip = _plain()
    clip[::2] = 0.8
    return clip


def _still() -> torch.Tensor:
    return _with_square((1.0, 1.0, 0.0), 10, lambda frame: 11)


def _steady() -> torch.Tensor:
    return _with_square((1.0, 1.0, 0.0), 10, lambda frame: 6 + frame)


def _jittering() -> torch.Tensor:
    return _with_square((1.0, 1.0, 0.0), 10, lambda frame: 9 + 3 * (frame % 2))


def _of_size(options: Options) -> Pair:
    """Nothing, and a square in the middle of the range that counts as best."""
    low, high = float(str(options["low"])), float(str(options["high"]))
    side = max(2, min(SIZE - 2, round(SIZE * ((low + high) / 2) ** 0.5)))
    return _plain((0.0, 0.0, 0.0)), _with_square((1.0, 1.0, 1.0), side, lambda frame: (SIZE - side) // 2)


def _told(options: Options) -> Pair:
    """Another colour than the caption's, and what the caption says."""
    del options
    clips = []
    for colour in ("blue", "red"):
        track = world.Track("square", colour, world.RADIUS["large"][0], (SIZE / 2, SIZE / 2), (0.0, 0.0))
        clips.append(torch.from_numpy(np.asarray(world.render([track], "black"), np.float32)))
    return clips[0], clips[1]


def _written(options: Options) -> Pair:
    """Nothing, and the word that is looked for; a single frame, as reading is slow."""
    del options
    image = Image.new("RGB", (192, 96), "white")
    ImageDraw.Draw(image).text((24, 20), "STOP", fill="black", font=ImageFont.load_default(size=48))
    written = torch.from_numpy(np.asarray(image, np.float32) / 255).permute(2, 0, 1)[None]
    return torch.ones_like(written), written


PAIRS: dict[str, Callable[[Options], Pair]] = {
    "colorfulness": lambda options: (_plain(), _plain((0.9, 0.1, 0.1))),
    "dynamic_degree": lambda options: (_still(), _steady()),
    "flicker": lambda options: (_flickering(), _plain()),
    "jpeg_compressibility": lambda options: (_checkered(), _plain()),
    "motion_smoothness": lambda options: (_jittering(), _steady()),
    "prompt_following": _told,
    "sharpness": lambda options: (_plain(), _checkered()),
    "subject_size": _of_size,
    "text_rendering": _written,
}
