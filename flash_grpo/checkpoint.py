"""Checkpoints of a run: atomic, verified by SHA-256, named by `pointers.json`."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save

from flash_grpo.config import RunConfig
from flash_grpo.errors import InputError
from flash_grpo.files import write_atomic

PREFIX = "transformer."


def trained_weights(named: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Trained parameters under the names diffusers loads: `transformer.` and no adapter name, float32 on the CPU."""
    return {PREFIX + name.replace(".default.", "."): t.detach().float().cpu().contiguous() for name, t in named.items()}


def weights_bytes(weights: Mapping[str, torch.Tensor], config: RunConfig) -> bytes:
    """A safetensors file; for LoRA its metadata carries rank, alpha and targets as diffusers expects them."""
    metadata = {"format": "pt", "base_model": config.model}
    if config.adapter == "lora":
        lora = {"r": config.lora_rank, "lora_alpha": config.lora_alpha, "target_modules": sorted(config.lora_targets)}
        metadata["lora_adapter_metadata"] = json.dumps({PREFIX + key: value for key, value in lora.items()})
    data: bytes = save(dict(weights), metadata=metadata)
    return data


def save_checkpoint(
    folder: Path,
    update: int,
    config: RunConfig,
    weights: Mapping[str, torch.Tensor],
    averaged: Mapping[str, torch.Tensor] | None,
) -> Path:
    """Write RUN/checkpoints/UPDATE whole or not at all; returns its folder."""
    target = folder / "checkpoints" / f"{update:06d}"
    staging = target.with_name(f".{target.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)
    files = {"adapter.safetensors": weights_bytes(trained_weights(weights), config)}
    if averaged is not None:
        files["ema.safetensors"] = weights_bytes(trained_weights(averaged), config)
    manifest = {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    for name, data in files.items():
        write_atomic(staging / name, data)
    write_atomic(staging / "manifest.json", json.dumps({"update": update, "files": manifest}, indent=1))
    shutil.rmtree(target, ignore_errors=True)
    staging.rename(target)
    return target


def write_pointers(folder: Path, best: int | None, latest: int | None) -> None:
    """Name the best and the latest checkpoint; None where there is none yet."""
    names = {"best": best, "latest": latest}
    write_atomic(folder / "pointers.json", json.dumps({k: None if v is None else f"{v:06d}" for k, v in names.items()}))


def read_pointer(folder: Path, name: str) -> Path | None:
    """Folder of the checkpoint that `best` or `latest` names, or None."""
    file = folder / "pointers.json"
    value = json.loads(file.read_text(encoding="utf-8")).get(name) if file.is_file() else None
    return None if value is None else folder / "checkpoints" / str(value)


def prune(folder: Path, keep: set[int]) -> None:
    """Delete all checkpoints but the updates in `keep`."""
    for path in (folder / "checkpoints").glob("[0-9]*"):
        if path.name.isdigit() and int(path.name) not in keep:
            shutil.rmtree(path)


def load_weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    """The weights a checkpoint deploys (the averaged ones where it has them), verified against its manifest."""
    name = "ema.safetensors" if (checkpoint / "ema.safetensors").is_file() else "adapter.safetensors"
    file = checkpoint / name
    try:
        manifest: dict[str, Any] = json.loads((checkpoint / "manifest.json").read_text(encoding="utf-8"))
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        if digest != manifest["files"][name]["sha256"]:
            raise InputError(f"{file} does not match its manifest; it is damaged, use another checkpoint")
        weights: dict[str, torch.Tensor] = load_file(file)
        return weights
    except (OSError, KeyError, json.JSONDecodeError, SafetensorError) as error:
        raise InputError(f"cannot read the checkpoint {checkpoint}: {error}; use another checkpoint") from error


def put_weights(named: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]) -> None:
    """Copy checkpoint weights into the trained parameters; every one must be there, and none left over."""
    names = {PREFIX + name.replace(".default.", "."): tensor for name, tensor in named.items()}
    if names.keys() != weights.keys():
        odd = sorted(names.keys() ^ weights.keys())[:3]
        raise InputError(f"the checkpoint's weights do not fit this model; {len(names)} expected, differing at {odd}")
    with torch.no_grad():
        for name, tensor in names.items():
            tensor.copy_(weights[name])
