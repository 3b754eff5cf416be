"""Atomic writes: a reader sees the old file or the new one, never half of either."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from flash_grpo.errors import InputError


def make_folder(folder: Path) -> None:
    """Make a folder to write into; InputError if that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write into {folder}: {error.strerror or error}; choose another --output") from error


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success it is fsynced and renamed to `path`, on failure removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a whole file atomically; text is UTF-8."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def file_hash(file: Path) -> str:
    """Hexadecimal SHA-256 of a file, read in pieces."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def disk_problem(error: BaseException) -> str | None:
    """What a disk that takes no more said, or None if the error is another one; safetensors wraps it in its own."""
    said = re.search(r"os error (\d+)", str(error)) if type(error).__name__ == "SafetensorError" else None
    code = int(said[1]) if said else error.errno if isinstance(error, OSError) else None
    return os.strerror(code) if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else None


def sync_folder(folder: Path) -> None:
    """Make renames within a folder survive a power cut, where the system can."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
