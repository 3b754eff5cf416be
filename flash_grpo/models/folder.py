"""A base model on disk, without loading it: its folder, its denoiser's weight files, their hash, its licence."""

from __future__ import annotations

import hashlib
import json
from importlib import resources
from pathlib import Path

import yaml

from flash_grpo.config import RunConfig
from flash_grpo.errors import InputError
from flash_grpo.files import file_hash
from flash_grpo.models.registry import BUILT_IN, built_in_folder

DENOISER = "transformer"
WEIGHTS = "diffusion_pytorch_model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
SOURCE = "source.json"
"""Where a download says what it is; written by `flash_grpo.download`, which this module need not wait for."""


def base_folder(config: RunConfig) -> Path | None:
    """The pipeline folder of a run's base model: built in, named, or downloaded from the hub before; else None."""
    if config.model in BUILT_IN:
        return built_in_folder(config.model)
    folder = Path(config.model)
    if not folder.is_dir():
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError

        try:
            folder = Path(snapshot_download(config.model, revision=config.revision, local_files_only=True))
        except (OSError, HFValidationError):  # not downloaded, or no hub id
            return None
    return folder if (folder / "model_index.json").is_file() else None


def public_name(config: RunConfig) -> str:
    """The base model as others know it: built-in name, hub id, or a folder's name without this machine's path."""
    folder = Path(config.model)
    if folder.is_absolute() or folder.is_dir():
        return _downloaded(folder, "repo") or folder.resolve().name
    return config.model


def revision(config: RunConfig) -> str | None:
    """The commit or branch of the hub that the base model is from, if it is from one."""
    return config.revision or _downloaded(Path(config.model), "commit")


def _downloaded(folder: Path, key: str) -> str | None:
    """What a downloaded folder says of its source."""
    try:
        value = json.loads((folder / SOURCE).read_text(encoding="utf-8"))[key]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(value) if value else None


def denoiser_files(base: Path) -> list[Path]:
    """The weight files of a pipeline's denoiser, sorted by name; InputError if one is missing."""
    index = base / DENOISER / INDEX
    try:
        named = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values() if index.is_file() else [WEIGHTS]
        files = [base / DENOISER / name for name in sorted(set(named))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"cannot read {index} ({error}); mend the base model's folder") from error
    for file in files:
        if not file.is_file():
            raise InputError(f"the base model has no file {file}; expected its denoiser as safetensors there")
    return files


def content_hash(base: Path) -> str:
    """SHA-256 over `NAME SHA256` lines of the denoiser's weight files: it tells to which weights an adapter belongs."""
    lines = "".join(f"{file.name} {file_hash(file)}\n" for file in denoiser_files(base))
    return hashlib.sha256(lines.encode()).hexdigest()


def flow_shift(base: Path | None) -> float:
    """How far a pipeline's scheduler shifts its noise levels; Wan's usual 3 where nothing says it."""
    try:
        file = (base or Path()) / "scheduler" / "scheduler_config.json"
        return float(json.loads(file.read_text(encoding="utf-8"))["flow_shift"])
    except (OSError, ValueError, KeyError, TypeError):
        return 3.0


def licence(model: str) -> str | None:
    """The licence of a model that one of our model cards is about, or that the hub it was downloaded from named."""
    for file in (resources.files("flash_grpo") / "models" / "cards").iterdir():
        card = yaml.safe_load(file.read_text(encoding="utf-8"))
        if model in (card["name"], card["source"]):
            return str(card["licence"])
    return _downloaded(Path(model), "licence")
