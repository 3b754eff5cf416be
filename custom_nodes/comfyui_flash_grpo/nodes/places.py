"""Where this pack's things lie in ComfyUI's folders."""

from __future__ import annotations

from pathlib import Path

import folder_paths

from ..logic.problem import Problem, plain

DOWNLOADS = "flash_grpo_studio"
"""Subfolder of the first `loras` folder that keeps what was downloaded from a studio."""


def adapters() -> list[str]:
    """Files in ComfyUI's `loras` folders."""
    return [name for name in folder_paths.get_filename_list("loras") if name.endswith(".safetensors")]


def adapter_path(name: str) -> Path:
    """The file of a listed adapter; Problem if it is gone."""
    return _path("loras", name, "checkpoint")


def text_encoders() -> list[str]:
    """Files in ComfyUI's `text_encoders` folders."""
    return [name for name in folder_paths.get_filename_list("text_encoders") if name.endswith(".safetensors")]


def text_encoder_path(name: str) -> Path:
    """The file of a listed text encoder; Problem if it is gone."""
    return _path("text_encoders", name, "text encoder")


def downloads() -> Path:
    """Where a studio's checkpoints are kept; they are listed with the other adapters."""
    return Path(folder_paths.get_folder_paths("loras")[0]) / DOWNLOADS


def private_folder() -> Path:
    """ComfyUI's folder for what its web server never hands out."""
    return Path(folder_paths.get_system_user_directory("flash_grpo"))


def _path(kind: str, name: str, what: str) -> Path:
    found = folder_paths.get_full_path(kind, name)
    if found is None:
        raise Problem(
            f"the {what} {plain(name)} is not in ComfyUI's {kind} folder; it was deleted or moved since the list was "
            "made: press R to refresh the list and choose another one"
        )
    return Path(found)
