"""Checkpoints of a run: atomic, verified by SHA-256, named by `pointers.json`, complete enough to go on exactly."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from flash_grpo.config import RunConfig
from flash_grpo.errors import InputError
from flash_grpo.files import atomic_path, sync_folder, write_atomic
from flash_grpo.training_state import read_document

PREFIX = "transformer."
STATE = "trainer_state"
_HASH_CHUNK = 2**22


@dataclass(frozen=True)
class TrainerState:
    """What a checkpoint holds beside its weights: optimiser and random states, and a JSON document of counters."""

    optimizer: Mapping[str, torch.Tensor]
    random: Mapping[str, torch.Tensor]
    document: str


@dataclass(frozen=True)
class Restored:
    """A verified checkpoint, read back; `averaged` is None if the run keeps no averages."""

    update: int
    weights: Mapping[str, torch.Tensor]
    averaged: Mapping[str, torch.Tensor] | None
    optimizer: Mapping[str, torch.Tensor]
    random: Mapping[str, torch.Tensor]
    document: Mapping[str, Any]


def trained_weights(named: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Trained parameters under the names diffusers loads: `transformer.` and no adapter name, float32 on the CPU."""
    return {PREFIX + name.replace(".default.", "."): t.detach().float().cpu().contiguous() for name, t in named.items()}


def weights_metadata(config: RunConfig) -> dict[str, str]:
    """Metadata of a weights file; for LoRA it carries rank, alpha and targets as diffusers expects them."""
    metadata = {"format": "pt", "base_model": config.model}
    if config.adapter == "lora":
        lora = {"r": config.lora_rank, "lora_alpha": config.lora_alpha, "target_modules": sorted(config.lora_targets)}
        metadata["lora_adapter_metadata"] = json.dumps({PREFIX + key: value for key, value in lora.items()})
    return metadata


def checkpoint_folder(folder: Path, update: int) -> Path:
    """RUN/checkpoints/UPDATE."""
    return folder / "checkpoints" / f"{update:06d}"


def save_checkpoint(
    folder: Path,
    update: int,
    config: RunConfig,
    weights: Mapping[str, torch.Tensor],
    averaged: Mapping[str, torch.Tensor] | None,
    state: TrainerState | None = None,
    guard: Callable[[], None] = lambda: None,
) -> Path:
    """Write RUN/checkpoints/UPDATE whole or not at all; returns its folder.

    Without `state` it can be deployed but not resumed. `guard` is called just before the checkpoint becomes visible.
    """
    target = checkpoint_folder(folder, update)
    staging, replaced = (target.with_name(f".{target.name}.{suffix}") for suffix in ("partial", "replaced"))
    for leftover in (staging, replaced):
        shutil.rmtree(leftover, ignore_errors=True)
    try:
        metadata = weights_metadata(config)
        _write_tensors(staging / "adapter.safetensors", trained_weights(weights), metadata)
        if averaged is not None:
            _write_tensors(staging / "ema.safetensors", trained_weights(averaged), metadata)
        if state is not None:
            _write_tensors(staging / STATE / "optimizer.safetensors", state.optimizer)
            _write_tensors(staging / STATE / "random.safetensors", state.random)
            write_atomic(staging / STATE / "state.json", state.document)
        files = {file.relative_to(staging).as_posix(): file for file in sorted(staging.rglob("*")) if file.is_file()}
        manifest = {name: {"size": file.stat().st_size, "sha256": sha256(file)} for name, file in files.items()}
        write_atomic(staging / "manifest.json", json.dumps({"update": update, "files": manifest}, indent=1))
        guard()
        if target.exists():
            target.rename(replaced)
        staging.rename(target)
        sync_folder(target.parent)
    finally:
        for leftover in (staging, replaced):
            shutil.rmtree(leftover, ignore_errors=True)
    return target


def _write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None) -> None:
    with atomic_path(path) as temporary:
        save_file(dict(tensors), temporary, metadata=dict(metadata) if metadata else None)


def sha256(file: Path) -> str:
    """Hexadecimal SHA-256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while piece := stream.read(_HASH_CHUNK):
            digest.update(piece)
    return digest.hexdigest()


def write_pointers(folder: Path, best: int | None, latest: int | None) -> None:
    """Name the best and the latest checkpoint; None where there is none yet."""
    names = {"best": best, "latest": latest}
    write_atomic(folder / "pointers.json", json.dumps({k: None if v is None else f"{v:06d}" for k, v in names.items()}))


def read_pointer(folder: Path, name: str) -> Path | None:
    """Folder of the checkpoint that `best` or `latest` names, or None."""
    file = folder / "pointers.json"
    value = json.loads(file.read_text(encoding="utf-8")).get(name) if file.is_file() else None
    return None if value is None else folder / "checkpoints" / str(value)


def saved_updates(folder: Path) -> list[int]:
    """Updates that have a checkpoint, ascending."""
    return sorted(int(path.name) for path in (folder / "checkpoints").glob("[0-9]*") if path.name.isdigit())


def choose_checkpoint(run: Path, which: str) -> Path:
    """Folder of the checkpoint that `best`, `latest` or an update's number names; InputError if there is none."""
    saved = saved_updates(run)
    if not saved:
        raise InputError(f"the run {run} has no checkpoint yet; train it until it has saved one")
    if which.isdecimal():
        if int(which) not in saved:
            raise InputError(
                f"the run {run} has no checkpoint of update {int(which)}; choose one of {', '.join(map(str, saved))}"
            )
        return run / "checkpoints" / f"{int(which):06d}"
    if which not in ("best", "latest"):
        raise InputError(f"expected a checkpoint as best, latest or the number of an update, got {which!r}")
    try:
        found = read_pointer(run, which)
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"cannot read {run / 'pointers.json'} ({error}); give --checkpoint {saved[-1]}") from error
    if found is None or not found.is_dir():
        reason = "none was better than the base model on the validation prompts" if which == "best" else "none is named"
        raise InputError(
            f"the run {run} has no {which} checkpoint: {reason}; give --checkpoint {saved[-1]} to take that one"
        )
    return found


def prune(folder: Path, keep: set[int]) -> None:
    """Delete all checkpoints but the updates in `keep`."""
    for update in set(saved_updates(folder)) - keep:
        shutil.rmtree(checkpoint_folder(folder, update))


def clear_leftovers(folder: Path) -> None:
    """Remove what a killed process left half-written; a checkpoint it had set aside comes back."""
    checkpoints = folder / "checkpoints"
    for path in checkpoints.glob(".*.replaced"):
        target = checkpoints / path.name.removeprefix(".").removesuffix(".replaced")
        if not target.exists():
            path.rename(target)
    for path in checkpoints.glob(".*"):
        shutil.rmtree(path)
    for path in (*folder.glob(".*"), *folder.glob("videos/*/.*")):
        path.unlink()


def verify(checkpoint: Path) -> dict[str, Any]:
    """Check every file of a checkpoint against its manifest, and return the manifest; InputError names the damage."""
    try:
        manifest: dict[str, Any] = json.loads((checkpoint / "manifest.json").read_text(encoding="utf-8"))
        for name, entry in manifest["files"].items():
            _check(checkpoint / name, entry)
        return manifest
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"cannot read the checkpoint {checkpoint}: {error}; use another checkpoint") from error


def _check(file: Path, entry: Mapping[str, Any]) -> None:
    if file.stat().st_size != entry["size"] or sha256(file) != entry["sha256"]:
        raise InputError(f"{file} does not match its manifest; it is damaged, use another checkpoint")


def load_weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    """The weights a checkpoint deploys (the averaged ones where it has them), verified against its manifest."""
    name = "ema.safetensors" if (checkpoint / "ema.safetensors").is_file() else "adapter.safetensors"
    try:
        manifest: dict[str, Any] = json.loads((checkpoint / "manifest.json").read_text(encoding="utf-8"))
        _check(checkpoint / name, manifest["files"][name])
        weights: dict[str, torch.Tensor] = load_file(checkpoint / name)
        return weights
    except (OSError, KeyError, json.JSONDecodeError, SafetensorError) as error:
        raise InputError(f"cannot read the checkpoint {checkpoint}: {error}; use another checkpoint") from error


def load_resumable(checkpoint: Path) -> Restored:
    """All of a checkpoint, verified; InputError if it is damaged or holds no trainer state."""
    manifest = verify(checkpoint)
    files = manifest["files"]
    if f"{STATE}/state.json" not in files:
        raise InputError(
            f"{checkpoint} holds weights but no trainer state: an older version wrote it, or it was copied in part; "
            "it can be evaluated and exported, not resumed"
        )
    state = checkpoint / STATE
    return Restored(
        update=int(manifest["update"]),
        weights=load_file(checkpoint / "adapter.safetensors"),
        averaged=load_file(checkpoint / "ema.safetensors") if "ema.safetensors" in files else None,
        optimizer=load_file(state / "optimizer.safetensors"),
        random=load_file(state / "random.safetensors"),
        document=read_document((state / "state.json").read_text(encoding="utf-8")),
    )


def newest_resumable(folder: Path) -> tuple[Restored | None, list[str]]:
    """The newest checkpoint that can be resumed, or None, and a sentence for every newer one that cannot."""
    problems: list[str] = []
    for update in reversed(saved_updates(folder)):
        try:
            return load_resumable(checkpoint_folder(folder, update)), problems
        except InputError as error:
            problems.append(str(error))
    return None, problems


def put_weights(named: Mapping[str, torch.Tensor], weights: Mapping[str, torch.Tensor]) -> None:
    """Copy checkpoint weights into the trained parameters; every one must be there, and none left over."""
    names = {PREFIX + name.replace(".default.", "."): tensor for name, tensor in named.items()}
    if names.keys() != weights.keys():
        odd = sorted(names.keys() ^ weights.keys())[:3]
        raise InputError(f"the checkpoint's weights do not fit this model; {len(names)} expected, differing at {odd}")
    with torch.no_grad():
        for name, tensor in names.items():
            tensor.copy_(weights[name])
