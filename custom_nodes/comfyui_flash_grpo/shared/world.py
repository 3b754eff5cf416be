# A copy of flash_grpo/models/pocket/world.py, made by `make comfyui-pack`; edit that file instead.
"""The pocket world: captioned clips of moving coloured shapes, rendered without a network and checkable from pixels."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]

SIZE = 32
FRAMES = 9
FPS = 8

SUBJECT_COLORS: dict[str, tuple[float, float, float]] = {
    "red": (0.86, 0.20, 0.20),
    "green": (0.20, 0.68, 0.28),
    "blue": (0.22, 0.40, 0.90),
    "yellow": (0.92, 0.82, 0.22),
    "purple": (0.58, 0.26, 0.74),
    "cyan": (0.26, 0.80, 0.84),
}
BACKGROUND_COLORS: dict[str, tuple[float, float, float]] = {
    "black": (0.10, 0.10, 0.11),
    "white": (0.90, 0.90, 0.90),
    "gray": (0.50, 0.50, 0.50),
    "navy": (0.12, 0.14, 0.36),
    "beige": (0.82, 0.72, 0.57),
}
SHAPES = ("circle", "square", "triangle", "cross")
SIZES = ("small", "large")
DIRECTIONS: dict[str, tuple[float, float]] = {
    "left": (-1.0, 0.0),
    "right": (1.0, 0.0),
    "up": (0.0, -1.0),
    "down": (0.0, 1.0),
}
SPEEDS = ("slowly", "quickly")

# Radii and speeds are those of a circle with the same area, in pixels and pixels per frame.
RADIUS = {"small": (3.6, 4.3), "large": (6.2, 7.6)}
RADIUS_BOUNDARY = 5.2
PAIR_LARGE_RADIUS = 6.5
SPEED = {"slowly": (0.5, 0.7), "quickly": (1.2, 1.5)}
SPEED_BOUNDARY = 0.95

# Width in pixels of the soft edge of a shape.
EDGE = 2.5

# Half extents of each shape (x, y) for a unit equal-area radius; the triangle points up.
TRIANGLE_SIDE = math.sqrt(4 * math.pi / math.sqrt(3))
TRIANGLE_INRADIUS = TRIANGLE_SIDE / (2 * math.sqrt(3))
CROSS_LENGTH = math.sqrt(math.pi * 9 / 5)
HALF_EXTENT: dict[str, tuple[float, float]] = {
    "circle": (1.0, 1.0),
    "square": (math.sqrt(math.pi) / 2, math.sqrt(math.pi) / 2),
    "triangle": (TRIANGLE_SIDE / 2, 1.5 * TRIANGLE_INRADIUS),
    "cross": (CROSS_LENGTH / 2, CROSS_LENGTH / 2),
}


@dataclass(frozen=True)
class Subject:
    """What a caption says of one subject; `size` and `speed` may be left open, a still subject has no direction."""

    color: str
    shape: str
    size: str | None
    direction: str | None
    speed: str | None

    def words(self) -> str:
        size = f"{self.size} " if self.size else ""
        if self.direction is None:
            motion = "standing still"
        else:
            motion = f"moving {self.speed + ' ' if self.speed else ''}{self.direction}"
        return f"a {size}{self.color} {self.shape} {motion}"


@dataclass(frozen=True)
class Scene:
    """The meaning of one caption: one or two subjects of different colours before a plain background."""

    subjects: tuple[Subject, ...]
    background: str

    def caption(self) -> str:
        return " and ".join(subject.words() for subject in self.subjects) + f" on a {self.background} background"

    def attributes(self) -> int:
        """Number of statements the caption makes."""
        per_subject = [2 + (s.size is not None) + 1 + (s.speed is not None) for s in self.subjects]
        return 1 + sum(per_subject)


@dataclass(frozen=True)
class Track:
    """Where one subject really is: equal-area radius, and the centre of its box at frame 0 and per frame, in pixels."""

    shape: str
    color: str
    radius: float
    start: tuple[float, float]
    velocity: tuple[float, float]


_SUBJECT = re.compile(
    rf"an? (?:(?P<size>{'|'.join(SIZES)}) )?(?P<color>{'|'.join(SUBJECT_COLORS)}) (?P<shape>{'|'.join(SHAPES)}) "
    rf"(?:standing still|moving (?:(?P<speed>{'|'.join(SPEEDS)}) )?(?P<direction>{'|'.join(DIRECTIONS)}))"
)
_CAPTION = re.compile(rf"(?P<subjects>.+) on a (?P<background>{'|'.join(BACKGROUND_COLORS)}) background")


def parse_caption(caption: str) -> Scene:
    """Read a caption back into its scene.

    Raises ValueError, naming the grammar, if the caption is not of this world.
    """
    text = " ".join(caption.lower().rstrip(". ").split())
    whole = _CAPTION.fullmatch(text)
    parts = [_SUBJECT.fullmatch(part) for part in whole["subjects"].split(" and ")] if whole else []
    if whole is None or not 1 <= len(parts) <= 2 or any(part is None for part in parts):
        raise ValueError(
            f"not a caption of the pocket world: {caption!r}; expected for example "
            "'a small red circle moving slowly left on a black background'"
        )
    subjects = tuple(
        Subject(m["color"], m["shape"], m["size"], m["direction"], m["speed"]) for m in parts if m is not None
    )
    return Scene(subjects, whole["background"])


def is_held_out(scene: Scene) -> bool:
    """Whether some subject's (colour, shape, background) is one of the one in seven combinations never trained on."""
    colors, backgrounds = list(SUBJECT_COLORS), list(BACKGROUND_COLORS)
    background = backgrounds.index(scene.background)
    return any((colors.index(s.color) + 2 * SHAPES.index(s.shape) + 3 * background) % 7 == 0 for s in scene.subjects)


@dataclass(frozen=True)
class SceneMix:
    """How scenes are drawn: the share that holds two subjects, and how often a size or a speed is left open."""

    pair_share: float = 0.35
    open_size_share: float = 0.4
    open_speed_share: float = 0.4


def sample_scene(rng: np.random.Generator, mix: SceneMix) -> Scene:
    """Draw a scene."""

    def pick(options: Sequence[str]) -> str:
        return options[int(rng.integers(len(options)))]

    colors = [str(c) for c in rng.permutation(list(SUBJECT_COLORS))]
    subjects = []
    for index in range(2 if rng.random() < mix.pair_share else 1):
        moving = rng.random() < 0.8
        subjects.append(
            Subject(
                color=colors[index],
                shape=pick(SHAPES),
                size=pick(SIZES) if rng.random() >= mix.open_size_share else None,
                direction=pick(list(DIRECTIONS)) if moving else None,
                speed=pick(SPEEDS) if moving and rng.random() >= mix.open_speed_share else None,
            )
        )
    return Scene(tuple(subjects), pick(list(BACKGROUND_COLORS)))


def sample_scenes(
    seed: int, count: int, held_out: bool, mix: SceneMix | None = None, unique: bool = False
) -> list[Scene]:
    """Draw `count` scenes, all inside or all outside the held-out combinations, optionally without repeats."""
    mix = mix or SceneMix()
    rng = np.random.default_rng(seed)
    scenes: list[Scene] = []
    seen: set[Scene] = set()
    while len(scenes) < count:
        scene = sample_scene(rng, mix)
        if is_held_out(scene) != held_out or (unique and scene in seen):
            continue
        seen.add(scene)
        scenes.append(scene)
    return scenes


def _sample_track(rng: np.random.Generator, subject: Subject, pair: bool) -> Track:
    size = subject.size or SIZES[int(rng.random() < 0.4)]
    low, high = RADIUS[size]
    radius = float(rng.uniform(low, min(high, PAIR_LARGE_RADIUS) if pair else high))
    velocity = (0.0, 0.0)
    if subject.direction is not None:
        pace = float(rng.uniform(*SPEED[subject.speed or SPEEDS[int(rng.integers(2))]]))
        velocity = (DIRECTIONS[subject.direction][0] * pace, DIRECTIONS[subject.direction][1] * pace)
    start = []
    for axis in (0, 1):
        reach = HALF_EXTENT[subject.shape][axis] * radius + abs(velocity[axis]) * (FRAMES - 1) / 2
        slack = max(0.0, SIZE / 2 - reach)
        middle = SIZE / 2 + float(rng.uniform(-slack, slack))
        start.append(middle - velocity[axis] * (FRAMES - 1) / 2)
    return Track(subject.shape, subject.color, radius, (start[0], start[1]), velocity)


def _closest_gap(first: Track, second: Track) -> float:
    """Smallest distance between the two outlines' bounding circles over the clip, in pixels (negative: overlap)."""
    times = np.arange(FRAMES)
    dx = first.start[0] - second.start[0] + (first.velocity[0] - second.velocity[0]) * times
    dy = first.start[1] - second.start[1] + (first.velocity[1] - second.velocity[1]) * times
    return float(np.hypot(dx, dy).min()) - 1.15 * (first.radius + second.radius)


def sample_tracks(rng: np.random.Generator, scene: Scene, tries: int = 24) -> tuple[Track, ...]:
    """Choose positions, radii and speeds that fit the scene; pairs keep apart where `tries` draws allow it."""
    if len(scene.subjects) == 1:
        return (_sample_track(rng, scene.subjects[0], pair=False),)
    best: tuple[float, tuple[Track, ...]] = (-math.inf, ())
    for _ in range(tries):
        first, second = (_sample_track(rng, subject, pair=True) for subject in scene.subjects)
        gap = _closest_gap(first, second)
        if gap > best[0]:
            best = (gap, (first, second))
        if gap >= 0:
            break
    return best[1]


def shape_coverage(shape: str, x: Array, y: Array, radius: Array | float) -> Array:
    """Antialiased coverage 0..1 of a shape with its box centred at the origin, at pixel offsets x, y (broadcast)."""
    if shape == "circle":
        distance = np.hypot(x, y) - radius
    elif shape == "square":
        distance = np.maximum(np.abs(x), np.abs(y)) - HALF_EXTENT["square"][0] * radius
    elif shape == "triangle":
        inradius = TRIANGLE_INRADIUS * radius
        down = y - inradius / 2  # centroid sits half an inradius below the middle of the box
        sides = np.abs(x) * (math.sqrt(3) / 2) - down * 0.5
        distance = np.maximum(down, sides) - inradius
    else:
        long, wide = CROSS_LENGTH / 2 * radius, CROSS_LENGTH / 6 * radius
        ax, ay = np.abs(x), np.abs(y)
        distance = np.minimum(np.maximum(ax - long, ay - wide), np.maximum(ay - long, ax - wide))
    return np.clip(0.5 - distance / EDGE, 0.0, 1.0).astype(np.float32)


def render(tracks: Sequence[Track], background: str) -> Array:
    """Render one clip, [FRAMES, 3, SIZE, SIZE] in 0..1; later tracks lie on top."""
    centers = (np.arange(SIZE, dtype=np.float32) + 0.5)[None, :]
    times = np.arange(FRAMES, dtype=np.float32)[:, None]
    clip = np.empty((FRAMES, 3, SIZE, SIZE), np.float32)
    clip[:] = np.array(BACKGROUND_COLORS[background], np.float32)[None, :, None, None]
    for track in tracks:
        x = (centers - track.start[0] - track.velocity[0] * times)[:, None, :]
        y = (centers - track.start[1] - track.velocity[1] * times)[:, :, None]
        coverage = shape_coverage(track.shape, x, y, track.radius)[:, None]
        color = np.array(SUBJECT_COLORS[track.color], np.float32)[None, :, None, None]
        clip = clip * (1 - coverage) + color * coverage
    return clip


def render_scene(rng: np.random.Generator, scene: Scene) -> Array:
    """Render a random clip that fits the scene, [FRAMES, 3, SIZE, SIZE] in 0..1."""
    return render(sample_tracks(rng, scene), scene.background)


def clips(seed: int, count: int, held_out: bool = False, mix: SceneMix | None = None) -> Iterator[tuple[str, Array]]:
    """Yield `count` (caption, clip) pairs of random scenes."""
    rng = np.random.default_rng((seed, 1))
    for scene in sample_scenes(seed, count, held_out, mix):
        yield scene.caption(), render_scene(rng, scene)


def opposite_scene(scene: Scene) -> Scene:
    """A scene that differs in every attribute the caption names (for controls of the verifier)."""

    def turn(options: Sequence[str], value: str, by: int = 1) -> str:
        return options[(list(options).index(value) + by) % len(options)]

    subjects = []
    taken = {s.color for s in scene.subjects}
    free = [c for c in SUBJECT_COLORS if c not in taken]
    for index, s in enumerate(scene.subjects):
        direction: str | None = "left"
        speed: str | None = "quickly"
        if s.direction is not None:
            direction = turn(list(DIRECTIONS), s.direction, 1 if s.direction in ("left", "up") else -1)
            speed = turn(SPEEDS, s.speed) if s.speed else None
        size = turn(SIZES, s.size) if s.size else None
        subjects.append(
            replace(s, color=free[index], shape=turn(SHAPES, s.shape, 2), size=size, direction=direction, speed=speed)
        )
    return Scene(tuple(subjects), turn(list(BACKGROUND_COLORS), scene.background))
