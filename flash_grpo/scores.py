"""Per-prompt scores of an evaluation, kept beside its videos: what a resumed run and a comparison read back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from flash_grpo.files import write_atomic
from flash_grpo.prompts import Prompt


@dataclass(frozen=True)
class Scores:
    """Rewards [N] by name, and what measuring them took in forwards."""

    rewards: Mapping[str, torch.Tensor]
    nfe: int = 0


def scores_file(folder: Path, update: int, split: str) -> Path:
    """RUN/videos/UPDATE/scores-SPLIT.json."""
    return folder / "videos" / f"{update:06d}" / f"scores-{split}.json"


def write_scores(
    folder: Path,
    update: int,
    split: str,
    prompts: Sequence[Prompt],
    seed: int,
    noise: Sequence[int],
    scores: Scores,
) -> None:
    """Write one evaluation's scores, and the seed of each video's starting noise; a float32 comes back exactly."""
    document = {
        "update": update,
        "split": split,
        "seed": seed,
        "noise": list(noise),
        "nfe": scores.nfe,
        "prompts": [{"id": prompt.id, "text": prompt.text} for prompt in prompts],
        "rewards": {name: values.tolist() for name, values in scores.rewards.items()},
    }
    write_atomic(scores_file(folder, update, split), json.dumps(document, ensure_ascii=False))


def read_scores(
    folder: Path, update: int, split: str, prompts: Sequence[Prompt], rewards: Sequence[str]
) -> Scores | None:
    """Scores written earlier for these prompts and at least these rewards; None if there are none."""
    file = scores_file(folder, update, split)
    if not file.is_file():
        return None
    document = json.loads(file.read_text(encoding="utf-8"))
    known = [(entry["id"], entry["text"]) for entry in document["prompts"]]
    if known != [(prompt.id, prompt.text) for prompt in prompts] or not set(rewards) <= document["rewards"].keys():
        return None
    return Scores(
        {name: torch.tensor(document["rewards"][name], dtype=torch.float32) for name in rewards}, int(document["nfe"])
    )
