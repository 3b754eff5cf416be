"""Pictures beside a model card: a run's curves, and videos before and after, as far as the run has them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flash_grpo.compose import Style, write_composition
from flash_grpo.errors import InputError
from flash_grpo.model_card import CURVES, SAMPLE
from flash_grpo.pairs import Pair
from flash_grpo.report import chart

SAMPLE_BYTES = 1_500_000
SPLITS = ("heldout", "validation")
_SHOWN_REWARDS = 3


def draw_pictures(run: Path, update: int, rewards: Mapping[str, float], folder: Path) -> list[str]:
    """Draw what there is to draw of a checkpoint; returns paths within `folder`."""
    drawn = []
    try:
        chart(run, folder / CURVES)
        drawn.append(CURVES)
    except InputError:
        pass  # a run that recorded nothing yet
    pairs = sample(run, update, rewards)
    try:
        if pairs:
            write_composition(pairs, folder / SAMPLE, Style(columns=1, most_bytes=SAMPLE_BYTES))
            drawn.append(SAMPLE)
    except InputError:
        pass  # videos that were damaged since
    return drawn


def sample(run: Path, update: int, rewards: Mapping[str, float]) -> list[Pair]:
    """Pairs of a run's videos with the largest, the middle and the smallest gain of its first optimised reward."""
    optimised = [name for name, weight in rewards.items() if weight]
    for split in SPLITS:
        before, after = (_scored(run / "videos" / f"{number:06d}", split) for number in (0, update))
        names = [
            name for name in before if name in after and optimised[0] in before[name][1].keys() & after[name][1].keys()
        ]
        if not names:
            continue
        names.sort(key=lambda name: before[name][1][optimised[0]] - after[name][1][optimised[0]])
        chosen = dict.fromkeys((names[0], names[len(names) // 2], names[-1]))
        return [_pair(run, update, name, before, after, optimised[:_SHOWN_REWARDS]) for name in chosen]
    return []


Scored = dict[str, tuple[str, dict[str, float]]]
"""File name of a video -> its prompt and scores."""


def _pair(run: Path, update: int, name: str, before: Scored, after: Scored, rewards: list[str]) -> Pair:
    (prompt, old), (_, new) = before[name], after[name]
    scores = {reward: (old[reward], new[reward]) for reward in rewards if reward in old and reward in new}
    return Pair(run / "videos" / "000000" / name, run / "videos" / f"{update:06d}" / name, prompt, scores)


def _scored(folder: Path, split: str) -> Scored:
    """The videos of an update that are on disk, with what scores-SPLIT.json says of them."""
    try:
        document: dict[str, Any] = json.loads((folder / f"scores-{split}.json").read_text(encoding="utf-8"))
        found = {}
        for place, prompt in enumerate(document["prompts"]):
            name = f"{prompt['id']}-{document['seed']}.mp4"
            if (folder / name).is_file():
                scores = {reward: float(values[place]) for reward, values in document["rewards"].items()}
                found[name] = (str(prompt["text"]), scores)
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return {}  # the run ended before it was evaluated
    return found
