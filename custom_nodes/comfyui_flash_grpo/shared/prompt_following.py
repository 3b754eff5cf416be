# A copy of flash_grpo/rewards/prompt_following.py, made by `make comfyui-pack`; edit that file instead.
"""Prompt following in the pocket world: every statement of the caption is checked against the pixels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

import numpy as np
import numpy.typing as npt
import torch

from .errors import InputError
from . import world
from .base import VideoBatch

Array = npt.NDArray[np.float32]

RIGHT = 0.5  # an attribute counts as right from this soft score on
MIN_AREA = 6.0  # pixels; anything smaller is a speck, not an object
MAX_RESIDUAL = 0.3  # RGB distance from the mixing line of background and object up to which a pixel belongs to it

_PALETTE = {**world.SUBJECT_COLORS, **world.BACKGROUND_COLORS}
_NAMES = list(_PALETTE)
_COLORS = np.array(list(_PALETTE.values()), np.float32)
_SUBJECTS = np.array(list(world.SUBJECT_COLORS.values()), np.float32)
_GRID = np.arange(world.SIZE, dtype=np.float32) + 0.5
_EDGE = np.zeros((world.SIZE, world.SIZE), bool)
_EDGE[[0, -1], :] = _EDGE[:, [0, -1]] = True


@dataclass(frozen=True)
class Blob:
    """One object as measured: mean colour, equal-area radius, velocity in pixels per frame at the world's rate.

    `wander` is the RMS distance of its centres from a straight path, `overlap` the soft IoU with each shape's template.
    """

    color: Array
    radius: float
    velocity: tuple[float, float]
    wander: float
    overlap: Mapping[str, float]

    @property
    def compact(self) -> float:
        """IoU with the template that fits best."""
        return max(self.overlap.values())


@dataclass(frozen=True)
class Sight:
    """What was seen in a clip: the background, the share of pixels that nothing explains, one or two objects."""

    background: Array
    clutter: float
    blobs: tuple[Blob, ...]


class PromptFollowing:
    """Mean soft score of the caption's statements, 0..1.

    Raises InputError for prompts that are no captions of the pocket world.
    """

    groupwise = False

    def score(self, videos: VideoBatch) -> torch.Tensor:
        frames = videos.frames.numpy()
        values = [
            float(np.mean(list(attributes(clip, prompt, videos.fps).values())))
            for clip, prompt in zip(frames, videos.prompts, strict=True)
        ]
        return torch.tensor(values, dtype=torch.float32)


def attributes(frames: Array | torch.Tensor, caption: str, fps: float = world.FPS) -> dict[str, float]:
    """Soft score 0..1 of each statement of the caption; right from 0.5 on (`RIGHT`).

    `frames` is [F, 3, H, W] in 0..1. Keys are `background` and, per subject N = 1, 2: `N.color`, `N.shape`, `N.motion`
    and, where the caption names them, `N.size` and `N.speed`. Raises InputError for captions or frames of another
    world.
    """
    scene = _scene(caption)
    sight = _look(_pixels(frames), len(scene.subjects), fps)
    scores = {"background": _color_score(sight.background, scene.background) * _fall(sight.clutter, 0.02, 0.2)}
    for number, (subject, blob) in enumerate(zip(scene.subjects, _assign(sight.blobs, scene), strict=True), 1):
        for key, value in _subject_scores(blob, subject).items():
            scores[f"{number}.{key}"] = value
    return scores


def fully_right(scores: Mapping[str, float]) -> bool:
    """Whether every statement counts as right."""
    return all(value >= RIGHT for value in scores.values())


@lru_cache(maxsize=4096)
def _scene(caption: str) -> world.Scene:
    try:
        return world.parse_caption(caption)
    except ValueError as error:
        raise InputError(
            f"reward 'prompt_following' reads captions of the pocket world only: {error}; "
            "use another reward for free prompts"
        ) from error


def _pixels(frames: Array | torch.Tensor) -> Array:
    """The clip as [F, SIZE, SIZE, 3], resized by area where needed."""
    clip = np.asarray(frames, dtype=np.float32)
    if clip.ndim != 4 or clip.shape[0] < 3 or clip.shape[1] != 3 or clip.shape[2] != clip.shape[3]:
        raise InputError(
            f"reward 'prompt_following' expects at least 3 square frames [F, 3, H, H], got {list(clip.shape)}; "
            "use it with the pocket model"
        )
    if clip.shape[2] != world.SIZE:
        resized = torch.nn.functional.interpolate(torch.from_numpy(clip), size=(world.SIZE, world.SIZE), mode="area")
        clip = resized.numpy()
    return np.ascontiguousarray(clip.transpose(0, 2, 3, 1))


def _rise(value: float, low: float, high: float) -> float:
    """0 up to `low`, 1 from `high` on, linear between."""
    return min(1.0, max(0.0, (value - low) / (high - low)))


def _fall(value: float, low: float, high: float) -> float:
    return 1.0 - _rise(value, low, high)


def _middle(values: Array) -> float:
    """The median of a few values (the upper one of two); numpy's own takes as long as the rest of a measurement."""
    return float(np.sort(values)[len(values) // 2])


def _color_score(color: Array, name: str) -> float:
    """1 near the named colour, 0.5 midway to the nearest other colour of the palette, 0 near that one."""
    distance = np.sqrt(np.square(_COLORS - color).sum(1))
    wanted = _NAMES.index(name)
    rival = float(np.delete(distance, wanted).min())
    return _rise(rival / (rival + float(distance[wanted]) + 1e-6), 0.25, 0.75)


def _look(pixels: Array, wanted: int, fps: float) -> Sight:
    """Find the background and up to `wanted` objects in [F, SIZE, SIZE, 3]."""
    border = pixels[:, _EDGE].reshape(-1, 3)
    background = np.partition(border, len(border) // 2, axis=0)[len(border) // 2]
    offset = pixels - background
    distance = np.sqrt(np.einsum("fhwc,fhwc->fhw", offset, offset))
    presence = np.clip((distance - 0.12) / 0.18, 0, 1)
    colors: list[Array] = []
    masks: list[Array] = []
    residual = np.where(presence > 0, np.inf, 0).astype(np.float32)
    for _ in range(wanted):
        color = _main_color(pixels, presence * (residual > 0.2))
        if color is None:
            break
        line = color - background
        along = np.asarray(np.clip(offset @ line / max(float(line @ line), 1e-6), 0, 1), np.float32)
        away = offset - along[..., None] * line
        apart = np.sqrt(np.einsum("fhwc,fhwc->fhw", away, away))
        nearer = apart < residual
        mask = _stretched(along) * (apart < MAX_RESIDUAL) * nearer
        masks = [m * ~nearer for m in masks] + [mask]
        colors.append(color)
        residual = np.minimum(residual, apart)
    if wanted == 2 and len(masks) == 1:
        masks = _split(masks[0])
        colors = colors * len(masks)
    clutter = float((presence * (residual > MAX_RESIDUAL)).mean())
    blobs = [_measure(mask, color, fps) for mask, color in zip(masks, colors, strict=True)]
    return Sight(background, clutter, tuple(blob for blob in blobs if blob is not None))


def _main_color(pixels: Array, weight: Array) -> Array | None:
    """Mean colour of the pixels of the most frequent subject colour; None if there is too little of anything."""
    where = weight > 0.5
    if int(where.sum()) < MIN_AREA * pixels.shape[0] / 3:
        return None
    found = pixels[where]
    # Squared distances by the expanded square: the pixels' own norm is needed for the vote.
    distance = np.sqrt(
        np.maximum(np.square(found).sum(1)[:, None] - 2 * found @ _SUBJECTS.T + np.square(_SUBJECTS).sum(1), 0)
    )
    nearest = distance.argmin(1)
    vote = np.maximum(0, 1 - distance.min(1) / 0.35)
    votes = np.bincount(nearest, vote, len(_SUBJECTS))
    if float(votes.max()) < MIN_AREA:
        # No subject colour at all: still an object, of some other colour.
        return np.asarray(np.median(found, axis=0), np.float32)
    share = np.square(vote) * (nearest == votes.argmax())
    return np.asarray((share @ found) / share.sum(), np.float32)


def _split(mask: Array) -> list[Array]:
    """Divide a mask [F, H, W] of one colour into two tracks where most frames show two separate pieces."""
    inside = mask > 0.5
    area = np.maximum(inside.sum((1, 2)), 1)
    middle_x, middle_y = inside.sum(1) @ _GRID / area, inside.sum(2) @ _GRID / area
    far = np.square(_GRID[None, None, :] - middle_x[:, None, None]) + np.square(
        _GRID[None, :, None] - middle_y[:, None, None]
    )
    # The pixel farthest from the common centre surely lies in one of the pieces; the piece is what grows out of it.
    start = (far * inside).reshape(len(mask), -1).argmax(1)
    piece = np.zeros_like(inside)
    piece.reshape(len(mask), -1)[np.arange(len(mask)), start] = True
    while True:
        grown = _widen(piece) & inside
        if int(grown.sum()) == int(piece.sum()):
            break
        piece = grown
    rest = inside & ~piece
    both = (piece.sum((1, 2)) >= MIN_AREA) & (rest.sum((1, 2)) >= MIN_AREA)
    if both.sum() <= len(mask) / 2:
        return [mask]
    near = _widen(piece)  # the soft rim belongs to the piece it surrounds
    return _link(mask * near, mask * ~near, np.flatnonzero(both))


def _widen(pieces: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Grow every region of [F, H, W] by one pixel, corners included."""
    wide = pieces.copy()
    wide[:, 1:] |= pieces[:, :-1]
    wide[:, :-1] |= pieces[:, 1:]
    tall = wide.copy()
    tall[:, :, 1:] |= wide[:, :, :-1]
    tall[:, :, :-1] |= wide[:, :, 1:]
    return tall


def _link(first: Array, second: Array, frames: npt.NDArray[np.intp]) -> list[Array]:
    """Follow two pieces through the given frames by their nearest centres; other frames stay empty."""
    tracks = [np.zeros_like(first), np.zeros_like(first)]
    last: Array | None = None
    for frame in frames:
        pieces = [first[frame], second[frame]]
        places = np.array([[p.sum(0) @ _GRID, p.sum(1) @ _GRID] / p.sum() for p in pieces], np.float32)
        if last is not None and np.hypot(*(places - last).T).sum() > np.hypot(*(places[::-1] - last).T).sum():
            pieces, places = pieces[::-1], places[::-1]
        for track, piece in zip(tracks, pieces, strict=True):
            track[frame] = piece
        last = places
    return tracks


def _measure(mask: Array, color: Array, fps: float) -> Blob | None:
    """Measure one object from its soft mask [F, H, W]; None if it is seen in too few frames."""
    area = mask.sum((1, 2))
    seen = area >= MIN_AREA
    if int(seen.sum()) < max(3, mask.shape[0] // 2):
        return None
    # Frames where the object is cut by the border bias area and centre; use the whole ones where there are enough.
    whole = seen & (mask[:, _EDGE].sum(1) < 0.5)
    use = np.flatnonzero(whole if int(whole.sum()) >= 3 else seen)
    masks, area = mask[use], area[use]
    x = (masks.sum(1) @ _GRID) / area
    y = (masks.sum(2) @ _GRID) / area
    radius = math.sqrt(_middle(area) / math.pi)
    time = use.astype(np.float32) - use.mean()
    spread = float((time * time).sum())
    vx, vy = float(time @ x) / spread, float(time @ y) / spread
    wander = math.sqrt(float((np.square(x - x.mean() - vx * time) + np.square(y - y.mean() - vy * time)).mean()))
    share_seen = float(seen.mean())
    overlap = {shape: share_seen * _overlap(masks, shape, x, y, radius) for shape in world.SHAPES}
    rate = fps / world.FPS
    return Blob(color, radius, (vx * rate, vy * rate), wander, overlap)


def _overlap(masks: Array, shape: str, x: Array, y: Array, radius: float) -> float:
    """Mean over frames of the overlap of the masks [N, H, W] with a template of the same centre of mass and area.

    It is m.t / (m.m + t.t - m.t), the IoU of soft masks. The template is tried crisp, blurred and twice blurred:
    through a decoder's blur a small cross is otherwise taken for a circle.
    """
    # The triangle's centre of mass lies half an inradius below the middle of its box.
    drop = world.TRIANGLE_INRADIUS * radius / 2 if shape == "triangle" else 0.0
    across = (_GRID[None, :] - x[:, None])[:, None, :]
    down = (_GRID[None, :] - y[:, None] + np.float32(drop))[:, :, None]
    soft = world.shape_coverage(shape, across, down, radius)
    own = np.einsum("nhw,nhw->n", masks, masks)
    best = 0.0
    for _ in range(3):
        template = _stretched(soft)  # as the masks are
        common = np.einsum("nhw,nhw->n", masks, template)
        overlap = common / (own + np.einsum("nhw,nhw->n", template, template) - common)
        best = max(best, float(overlap.mean()))
        soft = _blurred(soft)
    return best


def _blurred(masks: Array) -> Array:
    """[N, H, W] smoothed by a Gaussian of about 0.7 pixels; the outermost pixels stay as they are."""
    wide = masks.copy()
    wide[:, 1:-1] = masks[:, 1:-1] / 2 + (masks[:, :-2] + masks[:, 2:]) / 4
    tall = wide.copy()
    tall[:, :, 1:-1] = wide[:, :, 1:-1] / 2 + (wide[:, :, :-2] + wide[:, :, 2:]) / 4
    return tall


def _stretched(mask: Array) -> Array:
    """Stretched around one half: undoes some of a decoder's blur and drops its noise, and keeps the area."""
    return np.asarray(np.clip((mask - 0.2) / 0.6, 0, 1), np.float32)


def _assign(blobs: tuple[Blob, ...], scene: world.Scene) -> list[Blob | None]:
    """Decide which object is meant by which subject; colour tells them apart, the rest decides between equals.

    If no object has a colour the caption names, nothing tells them apart and the worse reading counts; otherwise a
    clip of all-wrong subjects could look half right by reading them crosswise.
    """
    seen: list[Blob | None] = [*blobs, *[None] * (len(scene.subjects) - len(blobs))]
    readings: list[tuple[float, float, list[Blob | None]]] = []
    for order in permutations(seen):
        scores = [_subject_scores(blob, subject) for blob, subject in zip(order, scene.subjects, strict=True)]
        color = [score["color"] for score in scores]
        total = sum(sum(score.values()) for score in scores)
        readings.append((max(color), 4 * sum(color) + total, list(order)))
    named = max(reading[0] for reading in readings) >= RIGHT
    choose = max if named else min
    return choose(readings, key=lambda reading: reading[1])[2]


def _subject_scores(blob: Blob | None, subject: world.Subject) -> dict[str, float]:
    """Soft scores of what the caption says of one subject."""
    names = ["color", "shape", *(["size"] if subject.size else []), "motion", *(["speed"] if subject.speed else [])]
    if blob is None:
        return dict.fromkeys(names, 0.0)
    solid = _rise(blob.compact, 0.45, 0.65)
    miss = 1 - blob.overlap[subject.shape]
    rival_miss = min(1 - value for shape, value in blob.overlap.items() if shape != subject.shape)
    pace = math.hypot(*blob.velocity)
    scores = {
        "color": _color_score(blob.color, subject.color) * _rise(blob.compact, 0.35, 0.5),
        "shape": _rise(rival_miss / (miss + rival_miss + 1e-6), 0.35, 0.65) * solid,
        "motion": _motion_score(blob, subject) * solid,
    }
    if subject.size:
        large = _rise(blob.radius, world.RADIUS_BOUNDARY - 0.7, world.RADIUS_BOUNDARY + 0.7)
        scores["size"] = (large if subject.size == "large" else 1 - large) * solid
    if subject.speed:
        quick = _rise(pace, world.SPEED_BOUNDARY - 0.22, world.SPEED_BOUNDARY + 0.22)
        scores["speed"] = (quick if subject.speed == "quickly" else 1 - quick) * _rise(pace, 0.1, 0.4) * solid
    return scores


def _motion_score(blob: Blob, subject: world.Subject) -> float:
    pace = math.hypot(*blob.velocity)
    if subject.direction is None:
        return _fall(pace, 0.1, 0.4) * _fall(blob.wander, 0.5, 1.5)
    way = world.DIRECTIONS[subject.direction]
    along = blob.velocity[0] * way[0] + blob.velocity[1] * way[1]
    return _rise(along, 0.1, 0.4) * _rise(along / max(pace, 1e-6), 0.5, 0.9) * _fall(blob.wander, 1.0, 2.5)
