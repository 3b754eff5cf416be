"""Each reward that needs no prompt: it goes up with what it measures, and not with what it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import torch

from flash_grpo.errors import InputError
from flash_grpo.models.pocket import world
from flash_grpo.rewards import registry
from flash_grpo.rewards.base import VideoBatch

Array = npt.NDArray[np.float32]

DISC = world.Track("circle", "red", 6.0, (16.0, 16.0), (0.0, 0.0))


def score(name: str, clips: Sequence[Array], fps: float = world.FPS, **options: object) -> list[float]:
    frames = torch.from_numpy(np.stack(clips).astype(np.float32))
    batch = VideoBatch(frames, [""] * len(clips), [{}] * len(clips), fps)
    return [float(value) for value in registry.create(name, options).score(batch)]


def moving(pace: float, background: str = "black") -> Array:
    start = 16 - pace * (world.FRAMES - 1) / 2
    return world.render([replace(DISC, start=(start, 16.0), velocity=(pace, 0.0))], background)


def frames_at(places: Sequence[tuple[float, float]]) -> Array:
    return np.stack([world.render([replace(DISC, start=place)], "black")[0] for place in places])


def blur(clip: Array, sigma: float) -> Array:
    planes = clip.reshape(-1, *clip.shape[-2:])
    return np.stack([cv2.GaussianBlur(plane, (0, 0), sigma) for plane in planes]).reshape(clip.shape)


def noise(seed: int = 0) -> Array:
    return np.random.default_rng(seed).random((world.FRAMES, 3, world.SIZE, world.SIZE), dtype=np.float32)


@pytest.mark.parametrize("background", list(world.BACKGROUND_COLORS))
def test_subject_size_is_best_inside_its_range(background: str) -> None:
    radii = [1.5, 3.0, 4.5, 7.2, 9.5, 12.0]
    clips = [world.render([replace(DISC, radius=radius)], background) for radius in radii]
    none, small, medium, right, large, huge = score("subject_size", clips, low=0.12, high=0.2)
    assert none < small < medium < right == 1.0
    assert right > large > huge
    # Half the low end scores half, and an empty frame nothing.
    half = world.render([], background)
    half[:, :, 12:20, 12:20] = np.array(world.SUBJECT_COLORS["red"], np.float32)[:, None, None]
    assert score("subject_size", [half], low=2 * 64 / 1024)[0] == pytest.approx(0.5, abs=1e-5)
    assert score("subject_size", [np.zeros_like(half)])[0] == 0.0


def test_subject_size_holds_where_the_subject_moves_and_the_video_is_wide() -> None:
    still, quick = score("subject_size", [moving(0.0), moving(2.0)], low=0.4, high=0.5)
    assert quick == pytest.approx(still, abs=0.02)
    wide = np.full((5, 3, 60, 104), 0.3, np.float32)
    wide[..., 15:45, 26:78] = 0.9
    assert score("subject_size", [wide], low=0.25, high=0.25)[0] == pytest.approx(1.0, abs=0.02)


def test_motion_smoothness_tells_steady_from_jittering() -> None:
    rng = np.random.default_rng(0)
    jitter = frames_at([(16 + float(x), 16 + float(y)) for x, y in rng.normal(0, 1.2, (world.FRAMES, 2))])
    back_and_forth = frames_at([(15.0 + 2 * (i % 2), 16.0) for i in range(world.FRAMES)])
    slow, quick, still, *rough = score(
        "motion_smoothness", [moving(0.9), moving(1.9), moving(0.0), jitter, back_and_forth]
    )
    assert min(slow, quick, still) > 0.85
    assert max(rough) < 0.4


def test_dynamic_degree_rises_with_speed() -> None:
    still, slow, quick = score("dynamic_degree", [moving(0.0), moving(0.9), moving(1.9)])
    assert still < 0.05
    assert 0.25 < slow < quick - 0.25
    # 0.9 pixels of 32 per frame at 8 frames per second are 0.225 short sides per second.
    assert slow * 0.6 == pytest.approx(0.225, rel=0.3)
    assert score("dynamic_degree", [moving(0.9)], fps=16)[0] == pytest.approx(2 * slow, rel=0.01)


def test_flow_rewards_read_large_and_wide_videos() -> None:
    def wide(pace: float) -> Array:
        clip = np.full((5, 3, 160, 280), 0.1, np.float32)
        for index in range(5):
            left = 80 + round(pace * index)
            clip[index, :, 50:110, left : left + 60] = 0.8
        return blur(clip, 1.5)

    still, moved = score("dynamic_degree", [wide(0.0), wide(5.0)])
    assert still < 0.05 < 0.3 < moved
    assert score("motion_smoothness", [wide(5.0)])[0] > 0.8


def test_flicker_sees_jumping_light_and_lets_motion_pass() -> None:
    waver = 1 + 0.2 * np.array([(-1) ** i for i in range(world.FRAMES)], np.float32)[:, None, None, None]
    fade = np.linspace(0.6, 1, world.FRAMES, dtype=np.float32)[:, None, None, None]
    white = moving(0.9, "white")
    still, slow, quick, faded, flickering = score(
        "flicker", [moving(0.0), moving(0.9), moving(1.9), white * fade, white * waver / 1.2]
    )
    assert still == 1.0
    assert min(slow, faded) > 0.9
    assert quick > 0.7
    assert flickering < 0.1


def test_sharpness_falls_with_every_blur() -> None:
    clip = moving(0.9)
    sharp, soft, softer, flat = score("sharpness", [clip, blur(clip, 0.8), blur(clip, 2.0), clip * 0 + 0.5])
    assert sharp > soft + 0.5 > softer + 1.0
    assert flat == 0.0
    assert score("sharpness", [np.roll(clip, 3, axis=-1)])[0] == pytest.approx(sharp, abs=0.05)


def test_colorfulness_follows_the_published_measure() -> None:
    clip = moving(0.0)
    gray = clip.mean(1, keepdims=True)
    grays = [gray + (clip - gray) * share for share in (0.0, 0.4, 1.0)]
    values = score("colorfulness", [np.broadcast_to(g, clip.shape) for g in grays])
    assert values[0] == pytest.approx(0.0, abs=1e-5)
    assert values[1] < values[2]
    # Halves of pure red and pure blue: rg = 255 or 0, yb = 127.5 or -255, by hand.
    halves = np.zeros((2, 3, 8, 8), np.float32)
    halves[:, 0, :, :4] = halves[:, 2, :, 4:] = 1
    expected = np.hypot(127.5, 191.25) + 0.3 * np.hypot(127.5, 63.75)
    assert score("colorfulness", [halves])[0] == pytest.approx(expected / 100, rel=1e-4)


def test_jpeg_compressibility_prefers_plain_frames() -> None:
    clip = moving(0.0)
    flat, shape, noisy = score("jpeg_compressibility", [clip * 0 + 0.5, clip, noise()])
    assert 0 > flat > shape > noisy
    assert score("jpeg_compressibility", [clip], quality=50)[0] > shape


@pytest.mark.parametrize(("name", "least"), [("flicker", 3), ("motion_smoothness", 3), ("dynamic_degree", 2)])
def test_too_few_frames_get_a_sentence(name: str, least: int) -> None:
    with pytest.raises(InputError, match=f"'{name}' needs at least {least} frames, got {least - 1}"):
        score(name, [noise()[: least - 1]])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("subject_size", {"tolerance": 0.0}),
        ("dynamic_degree", {"full": 0.0}),
        ("jpeg_compressibility", {"quality": 101}),
        ("text_rendering", {"frames": 0}),
    ],
)
def test_options_out_of_range_get_a_sentence(name: str, options: dict[str, object]) -> None:
    with pytest.raises(InputError, match=f"{name} expects"):
        registry.create(name, options)
