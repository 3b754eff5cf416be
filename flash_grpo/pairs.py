"""Pairs of videos to look at together, as commands take them: in turn on the command line, or in a file of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from flash_grpo.errors import InputError


@dataclass(frozen=True)
class Pair:
    """Two videos of one prompt; scores: reward name -> (left, right)."""

    left: Path
    right: Path
    caption: str = ""
    scores: Mapping[str, tuple[float, float]] = field(default_factory=dict)


class _Line(BaseModel):
    """A pair in a file."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    left: Path
    right: Path
    caption: str = Field("", max_length=10_000)
    scores: dict[str, tuple[float, float]] = Field(default_factory=dict, max_length=64)


_LINES = TypeAdapter(list[_Line])


def pairs_of(videos: Sequence[Path], captions: Sequence[str], file: Path | None) -> list[Pair]:
    """The pairs a command line names: left and right in turn with a caption each or none, or those of a file."""
    if file is not None:
        if videos or captions:
            raise InputError("the pairs came twice, as arguments and by --pairs; give them once")
        return _read(file)
    if len(videos) < 2 or len(videos) % 2:
        raise InputError(f"expected videos in pairs, left and right in turn, got {len(videos)}; add the missing one")
    count = len(videos) // 2
    if len(captions) not in (0, count):
        raise InputError(f"expected a caption per pair or none, got {len(captions)} for {count}; repeat --caption")
    texts = captions or [""] * count
    return [Pair(*two) for two in zip(videos[::2], videos[1::2], texts, strict=True)]


def _read(file: Path) -> list[Pair]:
    try:
        lines = _LINES.validate_python(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"cannot read the pairs {file}: {error.strerror}; check the path") from error
    except ValidationError as error:
        place, said = error.errors()[0]["loc"], error.errors()[0]["msg"]
        raise InputError(f"{file}: {'.'.join(map(str, place))}: {said}; expected {_SHAPE}") from error
    except ValueError as error:
        raise InputError(f"{file} is no JSON ({error}); expected {_SHAPE}") from error
    return [Pair(line.left, line.right, line.caption, line.scores) for line in lines]


_SHAPE = 'a list of {"left": FILE, "right": FILE, "caption": TEXT, "scores": {REWARD: [LEFT, RIGHT]}}'


def labels_of(labels: Sequence[str]) -> tuple[str, str]:
    """The labels of left and right, Before and After where none are given."""
    if not labels:
        return "Before", "After"
    if len(labels) != 2:
        raise InputError(f"expected two labels, for left and right, got {len(labels)}; give --label twice")
    return labels[0], labels[1]
