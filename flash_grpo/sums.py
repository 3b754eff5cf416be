"""SHA256SUMS: the hashes of a folder's files as `sha256sum` writes and checks them. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from flash_grpo.errors import InputError
from flash_grpo.files import file_hash, write_atomic

SUMS = "SHA256SUMS"
_LINE = re.compile(r"(\\?)([0-9a-f]{64}) [ *](.+)")
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r"}


def write_sums(folder: Path, sums: Mapping[str, str]) -> None:
    """Write the hashes of files, by their paths within `folder`."""
    write_atomic(folder / SUMS, "".join(_line(name, digest) for name, digest in sorted(sums.items())))


def _line(name: str, digest: str) -> str:
    """A name with an end of line or a backslash is escaped, and the line's first sign says so."""
    escaped = "".join(_ESCAPES.get(sign, sign) for sign in name)
    mark = "" if escaped == name else "\\"
    return f"{mark}{digest}  {escaped}\n"


def read_sums(folder: Path) -> dict[str, str]:
    """Path within the folder -> hash; InputError if there are none, or a path leads out of the folder."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} holds no readable {SUMS}; name the folder of an export, or export anew") from error
    found = {}
    for line in filter(None, lines):
        match = _LINE.fullmatch(line)
        name = _plain(match[3]) if match and match[1] else match[3] if match else ""
        path = PurePosixPath(name)
        if match is None or not name or path.is_absolute() or ".." in path.parts:
            raise InputError(f"{folder / SUMS} has a line that is none of ours: {line[:80]!r}; export anew")
        found[name] = match[2]
    return found


def _plain(escaped: str) -> str:
    signs = {after[1]: before for before, after in _ESCAPES.items()}
    return re.sub(r"\\(.)", lambda match: signs.get(match[1], match[0]), escaped)


def verify(folder: Path, told: Callable[[int], None] = lambda done: None) -> dict[str, Path]:
    """The files that SHA256SUMS names, by their paths within the folder, each found whole; InputError otherwise.

    `told` is told how many bytes are read.
    """
    files, done = {}, 0
    for name, digest in read_sums(folder).items():
        file = folder / name
        if file.is_symlink() or not file.is_file():
            raise InputError(f"{folder} lacks the file {name!r} that its {SUMS} names; export anew")
        if file_hash(file) != digest:
            raise InputError(f"{file} is not what was exported: its hash differs from {SUMS}; export anew")
        files[name] = file
        done += file.stat().st_size
        told(done)
    return files
