"""The verifier against rendered truth, and against everything that must not pass for it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from flash_grpo.errors import InputError
from flash_grpo.models.pocket import world
from flash_grpo.rewards.base import VideoBatch
from flash_grpo.rewards.prompt_following import RIGHT, PromptFollowing, attributes, fully_right

WEIGHTS = Path(world.__file__).parent / "weights"


def scenes(count: int, pair_share: float = 0.5, seed: int = 0) -> list[world.Scene]:
    rng = np.random.default_rng(seed)
    return [world.sample_scene(rng, world.SceneMix(pair_share=pair_share)) for _ in range(count)]


def truth(scenes: list[world.Scene], seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.stack([world.render_scene(rng, scene) for scene in scenes])


def score(clips: np.ndarray, scenes: list[world.Scene]) -> np.ndarray:
    captions = [scene.caption() for scene in scenes]
    frames = torch.from_numpy(np.ascontiguousarray(clips, dtype=np.float32))
    return PromptFollowing().score(VideoBatch(frames, captions, [{}] * len(captions), world.FPS)).numpy()


def degrade(clips: np.ndarray, sigma: float, noise: float) -> np.ndarray:
    rng = np.random.default_rng(5)
    planes = clips.reshape(-1, world.SIZE, world.SIZE)
    blurred = np.stack([cv2.GaussianBlur(plane, (0, 0), sigma) for plane in planes]).reshape(clips.shape)
    return np.clip(blurred + rng.normal(0, noise, clips.shape), 0, 1).astype(np.float32)


def psnr(first: np.ndarray, second: np.ndarray) -> float:
    return float(10 * np.log10(1 / np.mean(np.square(first - second))))


@pytest.mark.parametrize("pair_share", [0.0, 1.0])
def test_rendered_truth_is_right(pair_share: float) -> None:
    wanted = scenes(200, pair_share)
    clips = truth(wanted)
    assert score(clips, wanted).mean() >= 0.97
    right = [fully_right(attributes(clip, scene.caption())) for clip, scene in zip(clips, wanted, strict=True)]
    assert np.mean(right) >= 0.97


def test_noise_and_the_opposite_score_low() -> None:
    wanted = scenes(120)
    rng = np.random.default_rng(3)
    shape = (len(wanted), world.FRAMES, 3, world.SIZE, world.SIZE)
    uniform = score(rng.random(shape), wanted)
    gaussian = score(np.clip(rng.normal(0.5, 0.5, shape), 0, 1), wanted)
    faint = score(np.clip(rng.normal(0.5, 0.1, shape), 0, 1), wanted)
    opposite = score(truth([world.opposite_scene(scene) for scene in wanted]), wanted)
    for scores in (uniform, gaussian, faint, opposite):
        assert scores.max() <= 0.25


def test_an_empty_stage_earns_the_background_alone() -> None:
    wanted = scenes(40)
    colors = np.array([world.BACKGROUND_COLORS[scene.background] for scene in wanted], np.float32)
    clips = np.broadcast_to(colors[:, None, :, None, None], (len(wanted), world.FRAMES, 3, world.SIZE, world.SIZE))
    expected = [1 / scene.attributes() for scene in wanted]
    np.testing.assert_allclose(score(clips, wanted), expected, atol=1e-6)


def test_survives_blur_and_noise_at_28_db() -> None:
    wanted = scenes(150)
    clips = truth(wanted)
    worn = degrade(clips, sigma=0.75, noise=0.037)
    assert psnr(clips, worn) < 28.5
    assert score(worn, wanted).mean() >= 0.95


def test_each_wrong_statement_costs_its_share() -> None:
    """Wrong one by one, the score falls at every step, from all to none."""
    rng = np.random.default_rng(7)
    for scene in scenes(60, pair_share=0.0, seed=9):
        other = world.opposite_scene(scene)
        subject, wrong = scene.subjects[0], other.subjects[0]
        steps: list[dict[str, str | None]] = [{"color": wrong.color}, {"shape": wrong.shape}]
        if subject.size:
            steps.append({"size": wrong.size})
        motion: dict[str, str | None] = {"direction": wrong.direction}
        if subject.direction is None:
            motion["speed"] = wrong.speed
        steps.append(motion)
        if subject.speed:
            steps.append({"speed": wrong.speed})
        order = rng.permutation(len(steps))
        scores = [score(truth([scene]), [scene])[0]]
        for index in order:
            subject = replace(subject, **steps[index])
            scores.append(score(truth([world.Scene((subject,), scene.background)]), [scene])[0])
        scores.append(score(truth([world.Scene((subject,), other.background)]), [scene])[0])
        expected = np.linspace(1, 0, scene.attributes() + 1)
        np.testing.assert_allclose(scores, expected, atol=0.08)


def test_pairs_are_told_apart_by_colour() -> None:
    first = world.Subject("red", "circle", "small", "left", None)
    second = world.Subject("blue", "square", "large", None, None)
    scene = world.Scene((first, second), "white")
    swapped = world.Scene((replace(second, color="red"), replace(first, color="blue")), "white")
    scores = attributes(truth([swapped])[0], scene.caption())
    assert min(scores["1.color"], scores["2.color"]) >= RIGHT
    assert max(scores[key] for key in ("1.shape", "2.shape", "1.motion", "2.motion")) < RIGHT
    # One colour wrong: the other still says which is which.
    bent = world.Scene((replace(first, color="green"), second), "white")
    wrong = [key for key, value in attributes(truth([bent])[0], scene.caption()).items() if value < RIGHT]
    assert wrong == ["1.color"]


def test_two_objects_of_one_colour_are_both_measured() -> None:
    tracks = (
        world.Track("circle", "red", 3.5, (8.0, 8.0), (1.9, 0.0)),
        world.Track("square", "red", 5.5, (22.0, 22.0), (0.0, 0.0)),
    )
    caption = "a small red circle moving quickly right and a large blue square standing still on a black background"
    scores = attributes(world.render(tracks, "black"), caption)
    assert [key for key, value in scores.items() if value < RIGHT] == ["2.color"]


def test_a_missing_subject_loses_its_statements() -> None:
    scene = world.Scene(
        (world.Subject("red", "circle", None, None, None), world.Subject("blue", "cross", None, "up", None)), "gray"
    )
    scores = attributes(truth([world.Scene(scene.subjects[1:], "gray")])[0], scene.caption())
    wrong = {key for key, value in scores.items() if value < RIGHT}
    assert wrong == {"1.color", "1.shape", "1.motion"}


def test_clutter_costs_the_background() -> None:
    caption = "a red circle standing still on a black background"
    circle = world.Track("circle", "red", 4.0, (8.0, 16.0), (0.0, 0.0))
    clean = attributes(world.render((circle,), "black"), caption)
    extra = (
        world.Track("square", "cyan", 3.9, (24.0, 8.0), (0.0, 0.0)),
        world.Track("square", "yellow", 3.9, (24.0, 24.0), (0.0, 0.0)),
    )
    messy = attributes(world.render((circle, *extra), "black"), caption)
    assert clean["background"] == 1.0
    assert messy["background"] < 0.8


def test_size_and_frame_rate_do_not_matter() -> None:
    """A clip shown enlarged is judged as the clip itself; velocity is per second, not per frame."""
    wanted = scenes(20)
    clips = truth(wanted)
    large = clips.repeat(2, axis=-1).repeat(2, axis=-2)
    np.testing.assert_allclose(score(large, wanted), score(clips, wanted), atol=0.02)
    slow = "a red circle moving slowly left on a black background"
    clip = world.render((world.Track("circle", "red", 4.0, (20.0, 16.0), (-0.65, 0.0)),), "black")
    assert attributes(clip, slow)["1.speed"] == 1.0
    assert attributes(clip, slow, fps=2 * world.FPS)["1.speed"] < RIGHT


def test_foreign_prompts_and_frames_get_a_sentence() -> None:
    clip = truth(scenes(1))[0]
    with pytest.raises(InputError, match="use another reward"):
        attributes(clip, "a cat on the moon")
    with pytest.raises(InputError, match="square frames"):
        attributes(clip[..., :16], scenes(1)[0].caption())


def test_is_fast_enough_for_training() -> None:
    wanted = scenes(60)
    clips = truth(wanted)
    score(clips, wanted)
    started = time.process_time()
    score(clips, wanted)
    # Typically 2 ms a clip; the bound allows for slow and busy machines.
    assert (time.process_time() - started) / len(wanted) < 0.02


def test_survives_the_shipped_autoencoder() -> None:
    from diffusers import AutoencoderKLWan

    vae = AutoencoderKLWan.from_pretrained(WEIGHTS / "vae", dtype=torch.float32).eval()
    wanted = scenes(32, pair_share=0.35, seed=21)
    clips = truth(wanted)
    with torch.no_grad():
        latents = vae.encode(torch.from_numpy(clips).transpose(1, 2) * 2 - 1).latent_dist.mode()
        decoded = (vae.decode(latents).sample.transpose(1, 2) / 2 + 0.5).clamp(0, 1).numpy()
    assert score(decoded, wanted).mean() >= 0.9
