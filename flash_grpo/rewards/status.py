"""Whether a reward can be used here and now, told from its card and the disk; imports no torch."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from flash_grpo.rewards.registry import Card, WeightFile, Weights

FOLDER = "FLASH_GRPO_REWARDS"


@dataclass(frozen=True)
class Status:
    """`download`: files are missing, `bytes` in all as far as known; `server`: it is asked over the network."""

    state: Literal["ready", "download", "server", "later"]
    bytes: int = 0
    missing: Sequence[str] = ()


def status(card: Card) -> Status:
    """What stands between the reward with its usual options and its use; whether it works, its self-test tells."""
    if not card.available:
        return Status("later")
    if card.asks_server or card.environment is not None:
        return Status("server")
    wanting = [(weights, file) for weights in card.weights for file in missing(weights, find(weights.repo))]
    if not wanting:
        return Status("ready")
    return Status(
        "download",
        sum(file.size or 0 for _, file in wanting),
        tuple(f"{weights.repo}/{file.name}" for weights, file in wanting),
    )


def described(card: Card) -> dict[str, Any]:
    """A card with what follows from it, as lists and pages have it."""
    return {**dataclasses.asdict(card), "verified": card.verified, "status": dataclasses.asdict(status(card))}


def missing(weights: Weights, folder: Path | None) -> list[WeightFile]:
    """The files of `weights` that are not whole in `folder`; those to be converted count as what they become."""
    if folder is None:
        return list(weights.files)
    return [file for file in weights.files if not _whole(file, folder)]


def _whole(file: WeightFile, folder: Path) -> bool:
    if file.becomes is not None:
        return (folder / file.becomes).is_file()
    path = folder / file.name
    return path.is_file() and (file.size is None or path.stat().st_size == file.size)


def home() -> Path:
    """The folder that weights of rewards are downloaded to: FLASH_GRPO_REWARDS, or a cache of the user's."""
    named = os.environ.get(FOLDER)
    return Path(named) if named else Path.home() / ".cache" / "flash-grpo" / "rewards"


def own_folder(repo: str) -> Path:
    """Where weights of a hub's repository belong in `home`."""
    return home() / repo.replace("/", "--")


def find(source: str, revision: str | None = None) -> Path | None:
    """The folder of a local path or hub id: itself, in `home`, or in the hub's cache; None if it is nowhere here."""
    if Path(source).is_dir():
        return Path(source)
    if own_folder(source).is_dir():
        return own_folder(source)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(snapshot_download(source, revision=revision, local_files_only=True))
    except (OSError, HFValidationError):  # not downloaded, or no hub id
        return None
