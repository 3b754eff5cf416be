"""The pocket world: captions that read back, clips that show what they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flash_grpo.models.pocket import world
from flash_grpo.models.pocket.architecture import MAX_SEQUENCE_LENGTH, build_tokenizer
from flash_grpo.models.pocket.world import Scene, Subject

SCENES = world.sample_scenes(0, 400, held_out=False) + world.sample_scenes(1, 400, held_out=True)


def test_captions_read_back_into_their_scene() -> None:
    for scene in SCENES:
        assert world.parse_caption(scene.caption()) == scene
    one = SCENES[0].caption()
    assert world.parse_caption(f"  {one.upper()}. ") == SCENES[0]


def test_the_sample_holds_every_kind_of_caption() -> None:
    subjects = [subject for scene in SCENES for subject in scene.subjects]
    assert {s.color for s in subjects} == set(world.SUBJECT_COLORS)
    assert {s.shape for s in subjects} == set(world.SHAPES)
    assert {s.size for s in subjects} == {*world.SIZES, None}
    assert {s.direction for s in subjects} == {*world.DIRECTIONS, None}
    assert {s.speed for s in subjects} == {*world.SPEEDS, None}
    assert {scene.background for scene in SCENES} == set(world.BACKGROUND_COLORS)
    assert {len(scene.subjects) for scene in SCENES} == {1, 2}
    assert all(s.speed is None for s in subjects if s.direction is None)
    for scene in SCENES:
        assert len({s.color for s in scene.subjects}) == len(scene.subjects)  # a pair is told apart by colour


@pytest.mark.parametrize(
    "caption",
    [
        "",
        "a red circle",
        "a red circle moving left",
        "a red circle on a black background",
        "a huge red circle moving left on a black background",
        "a red blob moving left on a black background",
        "a red circle moving sideways on a black background",
        "a red circle moving left on a pink background",
        "a red circle moving left and on a black background",
        "a red circle moving left, a blue square standing still on a black background",
        "a red circle moving left and a blue square moving up and a green cross moving up on a gray background",
        "a cat on a mat",
    ],
)
def test_other_captions_are_refused_with_the_grammar(caption: str) -> None:
    with pytest.raises(ValueError, match="not a caption of the pocket world: .*expected for example"):
        world.parse_caption(caption)


def test_attributes_are_counted() -> None:
    full = Subject("red", "circle", "small", "left", "slowly")
    assert Scene((full,), "black").attributes() == 6  # background, colour, shape, size, direction, speed
    assert Scene((replace(full, size=None, speed=None),), "black").attributes() == 4
    assert Scene((replace(full, direction=None, speed=None), full), "black").attributes() == 10


def test_held_out_combinations_never_appear_in_training() -> None:
    def combinations(scenes: list[Scene]) -> set[tuple[str, str, str]]:
        return {(s.color, s.shape, scene.background) for scene in scenes for s in scene.subjects}

    train = world.sample_scenes(2, 3000, held_out=False)
    unseen = [scene for scene in world.sample_scenes(3, 1000, held_out=True) if len(scene.subjects) == 1]
    assert not combinations(train) & combinations(unseen)
    assert not any(world.is_held_out(scene) for scene in train)
    assert all(world.is_held_out(scene) for scene in unseen)
    # About one in seven, and no colour, shape or background is missing on either side.
    share = len(combinations(unseen)) / len(combinations(unseen) | combinations(train))
    assert share == pytest.approx(1 / 7, abs=0.03)
    for part in range(3):
        assert {c[part] for c in combinations(train)} == {c[part] for c in combinations(unseen)}


def test_scenes_are_seeded_and_may_be_unique() -> None:
    assert world.sample_scenes(5, 50, held_out=False) == world.sample_scenes(5, 50, held_out=False)
    assert world.sample_scenes(5, 50, held_out=False) != world.sample_scenes(6, 50, held_out=False)
    unique = world.sample_scenes(5, 500, held_out=True, mix=world.SceneMix(pair_share=0.0), unique=True)
    assert len(set(unique)) == 500 and {len(scene.subjects) for scene in unique} == {1}
    assert len({scene.caption() for scene in unique}) == 500


def test_an_opposite_scene_differs_in_every_attribute() -> None:
    for scene in SCENES:
        opposite = world.opposite_scene(scene)
        assert opposite.background != scene.background
        assert len(opposite.subjects) == len(scene.subjects)
        assert not {s.color for s in opposite.subjects} & {s.color for s in scene.subjects}
        for one, other in zip(scene.subjects, opposite.subjects, strict=True):
            assert one.shape != other.shape and one.direction != other.direction
            assert one.size is None or one.size != other.size
            assert one.speed is None or one.speed != other.speed
        assert world.parse_caption(opposite.caption()) == opposite


def test_clips_have_range_shape_and_seed() -> None:
    for scene in SCENES[:20]:
        clip = world.render_scene(np.random.default_rng(0), scene)
        assert clip.shape == (world.FRAMES, 3, world.SIZE, world.SIZE) and clip.dtype == np.float32
        assert 0 <= clip.min() < clip.max() <= 1
        assert np.array_equal(clip, world.render_scene(np.random.default_rng(0), scene))
        assert not np.array_equal(clip, world.render_scene(np.random.default_rng(1), scene))
    first, second = (list(world.clips(4, 5)) for _ in range(2))
    assert all(a[0] == b[0] and np.array_equal(a[1], b[1]) for a, b in zip(first, second, strict=True))
    assert [world.parse_caption(caption).caption() for caption, _ in first] == [caption for caption, _ in first]


def coverage(clip: world.Array, color: str, background: str) -> world.Array:
    """How much of each pixel shows the subject, [F, H, W], from the colours alone."""
    ground = np.array(world.BACKGROUND_COLORS[background], np.float32)[None, :, None, None]
    towards = np.array(world.SUBJECT_COLORS[color], np.float32)[None, :, None, None] - ground
    share: world.Array = ((clip - ground) * towards).sum(axis=1) / (towards**2).sum()
    return share


@pytest.mark.parametrize("shape", world.SHAPES)
@pytest.mark.parametrize("size", world.SIZES)
def test_a_clip_shows_the_size_it_tells(shape: str, size: str) -> None:
    scene = Scene((Subject("yellow", shape, size, None, None),), "navy")
    for seed in range(5):
        area = coverage(world.render_scene(np.random.default_rng(seed), scene), "yellow", "navy").sum(axis=(1, 2))
        radius = np.sqrt(area / np.pi)
        assert np.ptp(radius) < 1e-3  # stands still
        low, high = world.RADIUS[size]
        assert low * 0.93 < radius.mean() < high * 1.07
        assert (radius.mean() > world.RADIUS_BOUNDARY) == (size == "large")


@pytest.mark.parametrize("direction", world.DIRECTIONS)
@pytest.mark.parametrize("speed", world.SPEEDS)
def test_a_clip_moves_as_it_tells(direction: str, speed: str) -> None:
    scene = Scene((Subject("red", "circle", "small", direction, speed),), "white")
    for seed in range(5):
        share = coverage(world.render_scene(np.random.default_rng(seed), scene), "red", "white")
        pixels = np.arange(world.SIZE)
        mass = share.sum(axis=(1, 2))
        x, y = (share.sum(axis=1) * pixels).sum(axis=1) / mass, (share.sum(axis=2) * pixels).sum(axis=1) / mass
        steps = np.stack([np.diff(x), np.diff(y)], axis=1)
        along = steps @ np.array(world.DIRECTIONS[direction])
        low, high = world.SPEED[speed]
        assert low * 0.95 < along.mean() < high * 1.05
        assert (along.mean() > world.SPEED_BOUNDARY) == (speed == "quickly")
        assert np.abs(steps).sum(axis=1) == pytest.approx(along, abs=0.05)  # and nowhere else


def test_subjects_stay_inside_the_picture() -> None:
    for seed, scene in enumerate(SCENES[:200]):
        for track in world.sample_tracks(np.random.default_rng(seed), scene):
            for axis in (0, 1):
                reach = world.HALF_EXTENT[track.shape][axis] * track.radius
                ends = [track.start[axis] + track.velocity[axis] * frame for frame in (0, world.FRAMES - 1)]
                assert min(ends) - reach > -0.01 and max(ends) + reach < world.SIZE + 0.01


def test_pairs_rarely_touch() -> None:
    pairs = [scene for scene in SCENES if len(scene.subjects) == 2]
    touching = 0
    for seed, scene in enumerate(pairs):
        first, second = world.sample_tracks(np.random.default_rng(seed), scene)
        times = np.arange(world.FRAMES)[:, None]
        one, other = (np.array(t.start) + np.array(t.velocity) * times for t in (first, second))
        touching += bool(np.linalg.norm(one - other, axis=1).min() < first.radius + second.radius)
    assert touching / len(pairs) < 0.1


def test_every_caption_fits_the_tokenizer_without_unknown_words() -> None:
    tokenizer = build_tokenizer()
    unknown = tokenizer.unk_token_id
    lengths = []
    for scene in SCENES:
        tokens = tokenizer(scene.caption()).input_ids
        assert unknown not in tokens
        lengths.append(len(tokens))
    assert max(lengths) <= MAX_SEQUENCE_LENGTH
    assert unknown in tokenizer("a pink circle").input_ids
