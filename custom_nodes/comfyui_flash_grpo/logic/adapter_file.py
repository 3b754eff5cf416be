"""An adapter's file: its header, read within limits and checked before any tensor is loaded."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .problem import Problem, plain

MAX_HEADER = 32 * 2**20
"""Bytes; an adapter of a large model has about a tenth of a megabyte."""
MAX_VALUE = 64 * 2**10
"""Characters of one metadata value; longer ones are left out, nothing of ours comes near."""
_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "I16": 2, "I8": 1}
_BYTES |= {"U8": 1, "BOOL": 1}


@dataclass(frozen=True)
class Header:
    """What a safetensors file says of itself: shapes by tensor name, and metadata."""

    shapes: Mapping[str, tuple[int, ...]]
    metadata: Mapping[str, str]


def read_header(file: Path) -> Header:
    """The header of a safetensors file; Problem if it is missing, no such file, cut off or absurd."""
    name = plain(file.name)
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            start = stream.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if length > MAX_HEADER:
                raise Problem(
                    f"{name} is no adapter: its header would take {length} bytes, at most {MAX_HEADER} are read; "
                    "choose a .safetensors file"
                )
            content = stream.read(length)
    except OSError as error:
        raise Problem(
            f"cannot read the checkpoint {name} ({error.strerror or error}); it was deleted or moved since the list "
            "was made: press R to refresh the list and choose another one"
        ) from error
    if length < 2 or len(content) < length:
        raise Problem(f"{name} is no whole safetensors file; copy or download it again")
    try:
        entries = json.loads(content)
        metadata = entries.pop("__metadata__", {})
        shapes, end = _tensors(entries)
        kept = {str(key): str(value) for key, value in metadata.items() if len(str(value)) <= MAX_VALUE}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Problem(f"{name} is no safetensors file (its header cannot be read); choose another file") from error
    if size != 8 + length + end:
        raise Problem(
            f"{name} is cut off or damaged: it has {size} bytes and its header tells of {8 + length + end}; "
            "copy or download it again"
        )
    return Header(shapes, kept)


def _tensors(entries: Mapping[str, Any]) -> tuple[dict[str, tuple[int, ...]], int]:
    """Shapes by name, and where the last tensor ends."""
    shapes, end = {}, 0
    for name, entry in entries.items():
        shape = tuple(int(size) for size in entry["shape"])
        first, last = (int(offset) for offset in entry["data_offsets"])
        if min((first, *shape), default=0) < 0 or last - first != math.prod(shape) * _BYTES[entry["dtype"]]:
            raise ValueError(name)
        shapes[str(name)] = shape
        end = max(end, last)
    return shapes, end
