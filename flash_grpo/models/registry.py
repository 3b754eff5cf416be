"""From a model's name, folder or hub id to a `VideoModel`."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import torch

from flash_grpo.config import RunConfig
from flash_grpo.errors import InputError
from flash_grpo.models.base import VideoModel

BUILT_IN = {"pocket": "weights", "pocket-micro": "micro"}


def built_in_folder(name: str) -> Path:
    """Folder of a built-in model's pipeline."""
    return Path(str(resources.files("flash_grpo.models.pocket") / BUILT_IN[name]))


def resolve_device(device: str) -> torch.device:
    """`auto` becomes the GPU where there is one; InputError if a named device is missing."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"unknown device {device!r}; expected auto, cpu, cuda or cuda:N") from error
    if resolved.type == "cuda" and (resolved.index or 0) >= torch.cuda.device_count():
        raise InputError(
            f"device {device!r} is not here, found {torch.cuda.device_count()} CUDA devices; use auto or cpu"
        )
    return resolved


def load_model(config: RunConfig, device: torch.device | None = None) -> VideoModel:
    """Load the base model of a run; InputError says what is wrong with a name, folder or hub id."""
    from diffusers import WanPipeline
    from diffusers.utils import logging as diffusers_logging
    from transformers.utils import logging as transformers_logging

    from flash_grpo.models.wan import WanModel

    source = str(built_in_folder(config.model)) if config.model in BUILT_IN else config.model
    _check_folder(source)
    diffusers_logging.disable_progress_bar()  # loading takes a second; the run has a progress display of its own
    transformers_logging.disable_progress_bar()
    dtype = getattr(torch, config.dtype)
    parts = {"default": dtype, "vae": torch.float32}
    try:
        pipeline = WanPipeline.from_pretrained(source, revision=config.revision, dtype=parts, use_safetensors=True)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InputError(
            f"cannot load model {config.model!r} ({first}); expected a built-in name ({', '.join(BUILT_IN)}), "
            "a diffusers WanPipeline folder, or a hub id that this machine can reach"
        ) from error
    text_device = torch.device("cpu") if config.text_encoder_device == "cpu" else None
    return WanModel(pipeline, device or resolve_device(config.device), dtype, config.max_sequence_length, text_device)


def _check_folder(source: str) -> None:
    folder = Path(source)
    if not folder.is_dir():
        return
    index = folder / "model_index.json"
    if not index.is_file():
        raise InputError(f"{source} holds no model_index.json; expected the folder of a diffusers pipeline")
    try:
        name = json.loads(index.read_text(encoding="utf-8")).get("_class_name")
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"cannot read {index} ({error}); expected the folder of a diffusers pipeline") from error
    if name != "WanPipeline":
        raise InputError(f"{source} is a {name}; expected a WanPipeline (Wan 2.1 text to video)")
