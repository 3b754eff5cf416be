"""The folder of an export: it appears whole, replaces an earlier export only, and its tensors are read back."""

from __future__ import annotations

import filecmp
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from flash_grpo.errors import InputError
from flash_grpo.files import file_hash, write_atomic
from flash_grpo.sums import SUMS, write_sums

FORMAT_VERSION = 1
RECORD = "export.json"


def refuse_foreign(target: Path) -> None:
    """InputError if a folder holds anything that an earlier export did not put there."""
    if not target.exists():
        return
    if not target.is_dir():
        raise InputError(f"cannot export into {target}: it is a file; choose another folder with --output")
    found = _files(target)
    if not found:
        return
    try:
        known = set(json.loads((target / RECORD).read_text(encoding="utf-8"))["files"]) | {RECORD, SUMS}
    except (OSError, ValueError, KeyError, TypeError):
        known = set()
    foreign = sorted(found.keys() - known)
    if foreign:
        raise InputError(
            f"the folder {target} holds {foreign[0]!r}, which no export of ours wrote; expected a new or empty folder "
            "or an earlier export, choose another with --output"
        )


@contextmanager
def appearing(target: Path) -> Iterator[Path]:
    """Yield a folder beside `target` to write into; on success it takes its place, on failure nothing has changed."""
    staging, replaced = (target.with_name(f".{target.name}.export-{suffix}") for suffix in ("partial", "replaced"))
    try:
        for leftover in (staging, replaced):
            shutil.rmtree(leftover, ignore_errors=True)
        staging.mkdir(parents=True)
        yield staging
        for file in _files(staging).values():
            with file.open("rb+") as stream:
                os.fsync(stream.fileno())
        if target.exists():
            target.rename(replaced)
        try:
            staging.rename(target)
        except OSError:
            if replaced.exists():
                replaced.rename(target)
            raise
    finally:
        for leftover in (staging, replaced):
            shutil.rmtree(leftover, ignore_errors=True)


def write_record(folder: Path, facts: Mapping[str, str]) -> None:
    """Write export.json: what the export is, and size and SHA-256 of every file in it; and SHA256SUMS of all."""
    files: dict[str, dict[str, Any]] = {
        name: {"size": file.stat().st_size, "sha256": file_hash(file)}
        for name, file in _files(folder).items()
        if name not in (RECORD, SUMS)
    }
    content = {"format_version": FORMAT_VERSION, "metadata": dict(facts), "files": files}
    write_atomic(folder / RECORD, json.dumps(content, indent=1))
    write_sums(folder, {**{name: entry["sha256"] for name, entry in files.items()}, RECORD: file_hash(folder / RECORD)})


def _files(folder: Path) -> dict[str, Path]:
    return {file.relative_to(folder).as_posix(): file for file in sorted(folder.rglob("*")) if not file.is_dir()}


def read_tensors(file: Path) -> dict[str, torch.Tensor]:
    """All tensors of a base model's file."""
    try:
        tensors: dict[str, torch.Tensor] = load_file(file)
    except (OSError, SafetensorError) as error:
        raise InputError(f"cannot read the base model's {file}: {error}; mend or download it again") from error
    return tensors


def write_tensors(file: Path, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, str]) -> None:
    """Write a safetensors file, read it back and compare every tensor; RuntimeError if one came back differently."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, file, metadata=dict(facts))
        found = load_file(file)
    except SafetensorError as error:  # its writer wraps what the disk said
        raise RuntimeError(f"cannot write {file.name}: {error}; free some space and export again") from error
    file.chmod(0o644)  # its writer lets nobody else read
    if found.keys() != tensors.keys():
        raise reads_back_differently(file, f"its keys {sorted(found.keys() ^ tensors.keys())[:3]}")
    for name, tensor in tensors.items():
        read = found[name]
        if read.shape != tensor.shape or read.dtype != tensor.dtype or not torch.equal(read, tensor):
            raise reads_back_differently(file, name)


def copy_checked(file: Path, copy: Path) -> None:
    """Copy a file and compare both."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, copy)
    if not filecmp.cmp(file, copy, shallow=False):
        raise reads_back_differently(copy, "its content")


def reads_back_differently(file: Path, what: str) -> RuntimeError:
    """An error for a file that is not what was written."""
    return RuntimeError(
        f"{file.name} read back differently from what was written ({what}); check the disk and repeat it"
    )
