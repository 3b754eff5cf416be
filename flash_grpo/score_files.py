"""Rewards of video files: any rewards, any videos, groups of one prompt where a reward compares."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from flash_grpo.errors import InputError
from flash_grpo.normalise import USUAL, frames_of, inspect, open_video
from flash_grpo.rewards.base import VideoBatch
from flash_grpo.rewards.scoring import RewardSet
from flash_grpo.task import Task

MAX_MEMORY = 4 * 2**30
"""Most bytes that one video takes as float32 pixels."""
_COLUMNS = ("file", "prompt")


@dataclass(frozen=True)
class Clip:
    """A video in memory: `frames` [F, 3, H, W] in 0..1, frames per second."""

    path: Path
    prompt: str
    frames: torch.Tensor
    fps: float


def reward_names(texts: Sequence[str]) -> list[str]:
    """Names of rewards given as NAME or NAME=WEIGHT, each once; a weight means nothing here."""
    names = list(dict.fromkeys(text.partition("=")[0].strip() for text in texts))
    if not names or "" in names:
        raise InputError("expected at least one reward by name, got none; give --reward NAME, see `flash-grpo rewards`")
    return names


def reward_options(text: str | None) -> dict[str, dict[str, object]]:
    """Options per reward from JSON such as {"flicker": {"weight": 2}}."""
    try:
        options = json.loads(text) if text else {}
    except ValueError as error:
        raise InputError(f"the options are not valid JSON ({error}); quote them in the shell") from error
    if not isinstance(options, dict) or not all(isinstance(value, dict) for value in options.values()):
        raise InputError('expected options as JSON of the form {"REWARD": {"OPTION": VALUE}}, got ' + f"{text!r}")
    return options


def prompts_by_file(videos: Sequence[Path], prompt: str | None, file: Path | None) -> list[str]:
    """The prompt of every video: one for all, or from a file that names each by its path or its name; else empty."""
    if file is None:
        return [prompt or ""] * len(videos)
    if prompt is not None:
        raise InputError("expected --prompt or --prompts, got both; give one of them")
    known = _read_prompts(file)
    found = [known.get(str(video), known.get(video.name)) for video in videos]
    missing = [str(video) for video, text in zip(videos, found, strict=True) if text is None]
    if missing:
        raise InputError(f"{file} names no prompt for {missing[0]}; add it by its path or file name")
    return [text or "" for text in found]


def _read_prompts(file: Path) -> dict[str, str]:
    try:
        text = file.read_text(encoding="utf-8-sig")
        if file.suffix.lower() == ".json":
            entries = json.loads(text)
        elif file.suffix.lower() == ".csv":
            rows = list(csv.DictReader(text.splitlines(), strict=True))
            entries = {row["file"]: row["prompt"] for row in rows}
        else:
            raise InputError(f"expected prompts as a .json or .csv file, got {file}; see `flash-grpo score --help`")
    except KeyError as error:
        raise InputError(f"expected the columns {' and '.join(_COLUMNS)} in {file}, {error} is missing") from error
    except (OSError, UnicodeDecodeError, csv.Error, json.JSONDecodeError) as error:
        raise InputError(f"cannot read the prompts {file}: {' '.join(str(error).split())}; mend the file") from error
    if not isinstance(entries, dict) or not all(isinstance(value, str) for value in entries.values()):
        raise InputError(f'expected a mapping {{"FILE": "PROMPT"}} in {file}; write one prompt for each video')
    return entries


def score_files(
    videos: Sequence[Path],
    prompts: Sequence[str],
    rewards: Sequence[str],
    options: Mapping[str, Mapping[str, object]],
    task: Task,
    keep_going: bool = False,
) -> list[dict[str, Any]]:
    """Score every video by every reward; returns a description and the scores of each, in the order given.

    A reward that compares sees the videos of one prompt together, which must then be alike. A video that cannot be
    read raises InputError; with `keep_going` it has an `error` instead of scores, unless all are of that kind.
    """
    with task.at_once():
        scorer = RewardSet(dict.fromkeys(rewards, 1.0), options)
        found: list[dict[str, Any]] = [
            {"path": str(path), "prompt": prompt} for path, prompt in zip(videos, prompts, strict=True)
        ]
        whole = [index for index, video in enumerate(found) if _look(Path(video["path"]), video, task, keep_going)]
        groups = _groups(found, whole, scorer.groupwise)
        done = 0
        for group in groups:
            clips = [_read(found[index], task, keep_going) for index in group]
            readable = [(index, clip) for index, clip in zip(group, clips, strict=True) if clip is not None]
            _score(scorer, found, readable)
            done += len(group)
            task.progress("score", done, len(whole))
    if not any("scores" in video for video in found):
        raise InputError(f"none of {len(found)} videos can be scored: {found[0]['error']}")
    task.result = {"rewards": list(rewards), "videos": found}
    task.message = f"Scored {sum('scores' in video for video in found)} of {len(found)} videos."
    return found


def _groups(found: Sequence[Mapping[str, Any]], whole: Sequence[int], together: bool) -> list[list[int]]:
    """Which videos are held in memory together: each alone, or those of one prompt."""
    if not together:
        return [[index] for index in whole]
    groups: dict[str, list[int]] = {}
    for index in whole:
        groups.setdefault(found[index]["prompt"], []).append(index)
    return list(groups.values())


def _look(path: Path, video: dict[str, Any], task: Task, keep_going: bool) -> bool:
    """Note what a file claims; False, with the error noted, if it cannot be used and that may be."""
    try:
        source = inspect(path)
    except InputError as error:
        _give_up(video, error, task, keep_going)
        return False
    video |= {"width": source.width, "height": source.height, "fps": source.fps or USUAL}
    return True


def _give_up(video: dict[str, Any], error: InputError, task: Task, keep_going: bool) -> None:
    if not keep_going:
        raise error
    video["error"] = str(error)
    task.warn(str(error), "unreadable_video")


def _read(video: dict[str, Any], task: Task, keep_going: bool) -> Clip | None:
    path, size = Path(video["path"]), 0
    images: list[np.ndarray[Any, Any]] = []
    try:
        with open_video(path) as container:
            for frame in frames_of(path, container):
                image = frame.to_ndarray(format="rgb24")
                size += 4 * image.size
                if size > MAX_MEMORY:
                    raise InputError(
                        f"the video {path} takes more than {MAX_MEMORY / 2**30:g} GiB as pixels; cut it or scale it "
                        "down first, for example with `flash-grpo normalise`"
                    )
                if images and image.shape != images[0].shape:
                    raise InputError(f"the video {path} changes its size within; normalise it first")
                images.append(image)
                task.point()
    except InputError as error:
        _give_up(video, error, task, keep_going)
        return None
    video["frames"] = len(images)
    frames = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255
    return Clip(path, video["prompt"], frames, video["fps"])


def _score(scorer: RewardSet, found: list[dict[str, Any]], clips: Sequence[tuple[int, Clip]]) -> None:
    """Score the videos of one group and note the scores."""
    if not clips:
        return
    first = clips[0][1]
    for _, clip in clips:
        if clip.frames.shape != first.frames.shape or clip.fps != first.fps:
            raise InputError(
                f"a reward that compares the videos of a prompt needs them alike, got {_shape(first)} and "
                f"{_shape(clip)}; normalise them to one size, rate and length first"
            )
    batch = VideoBatch(
        torch.stack([clip.frames for _, clip in clips]),
        [clip.prompt for _, clip in clips],
        [{} for _ in clips],
        first.fps,
    )
    scores = scorer.score(batch, group_size=len(clips))
    for row, (index, _) in enumerate(clips):
        found[index]["scores"] = {name: float(values[row]) for name, values in scores.items()}


def _shape(clip: Clip) -> str:
    frames, _, height, width = clip.frames.shape
    return f"{frames} frames of {width}x{height} at {clip.fps:g} a second in {clip.path}"
