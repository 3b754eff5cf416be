"""Files as one ZIP archive, made while it is sent: stored as they are, of any size, its length known before."""

from __future__ import annotations

import struct
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

CHUNK = 2**20
LIMIT = 0xFFFFFFFF
"""From this on a size or place does not fit into the first format, and the wider one (ZIP64) tells it."""
_TOLD_BELOW = 0xFFFFFFFF
"""Stands in a field of the first format for a number that the wider one tells."""
_UTF8, _SUM_FOLLOWS = 0x0800, 0x0008
_FLAGS = _UTF8 | _SUM_FOLLOWS
_PLAIN, _WIDE = 20, 45
"""Versions of the format that a reader must know."""


@dataclass(frozen=True)
class Entry:
    """A file, and its path within the archive."""

    name: str
    path: Path
    size: int
    modified: float

    @property
    def wide(self) -> bool:
        """Whether its size needs the wider format."""
        return self.size >= LIMIT


def archive_length(entries: Sequence[Entry]) -> int:
    """Bytes of the whole archive."""
    parts = _parts(entries, defaultdict(int))
    return sum(part.size if isinstance(part, Entry) else len(part) for part in parts)


def archive(entries: Sequence[Entry]) -> Iterator[bytes]:
    """The archive, piece by piece. Raises OSError if a file is no longer as long as it was said to be."""
    sums: dict[str, int] = {}
    for part in _parts(entries, sums):
        if isinstance(part, Entry):
            yield from _content(part, sums)
        else:
            yield part


def _content(entry: Entry, sums: dict[str, int]) -> Iterator[bytes]:
    left, total = entry.size, 0
    with entry.path.open("rb") as file:
        while left and (piece := file.read(min(CHUNK, left))):
            total, left = zlib.crc32(piece, total), left - len(piece)
            yield piece
    if left:
        raise OSError(f"{entry.name} became shorter while it was sent")
    sums[entry.name] = total


def _parts(entries: Sequence[Entry], sums: Mapping[str, int]) -> Iterator[bytes | Entry]:
    """Headers as bytes, and each entry where its content goes; `sums` must know an entry's sum once that was sent."""
    places, place = [], 0
    for entry in entries:
        places.append(place)
        header, width = _header(entry), "Q" if entry.wide else "L"
        yield header
        yield entry
        trailer = struct.pack(f"<4sL{width}{width}", b"PK\x07\x08", sums[entry.name], entry.size, entry.size)
        yield trailer
        place += len(header) + entry.size + len(trailer)
    directory = b"".join(_listed(entry, at, sums[entry.name]) for entry, at in zip(entries, places, strict=True))
    yield directory
    yield _end(len(entries), len(directory), place)


def _header(entry: Entry) -> bytes:
    name = entry.name.encode()
    sizes = (_TOLD_BELOW, _TOLD_BELOW) if entry.wide else (0, 0)
    more = struct.pack("<HHQQ", 1, 16, 0, 0) if entry.wide else b""
    facts = (_version(entry.wide), _FLAGS, 0, *_moment(entry), 0, *sizes, len(name), len(more))
    return struct.pack("<4sHHHHHLLLHH", b"PK\x03\x04", *facts) + name + more


def _listed(entry: Entry, place: int, total: int) -> bytes:
    """An entry of the directory at the archive's end."""
    name = entry.name.encode()
    far = place >= LIMIT
    wide = [entry.size, entry.size] if entry.wide else []
    wide += [place] if far else []
    more = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
    size = _TOLD_BELOW if entry.wide else entry.size
    version = _version(bool(wide))
    facts = (3 << 8 | version, version, _FLAGS, 0, *_moment(entry), total, size, size, len(name), len(more))
    mode = 0o100644 << 16
    rest = (0, 0, 0, mode, _TOLD_BELOW if far else place)
    return struct.pack("<4sHHHHHHLLLHHHHHLL", b"PK\x01\x02", *facts, *rest) + name + more


def _end(count: int, size: int, place: int) -> bytes:
    found, told = b"", (count, count, size, place)
    if count >= 0xFFFF or size >= LIMIT or place >= LIMIT:
        found = struct.pack("<4sQHHLLQQQQ", b"PK\x06\x06", 44, 3 << 8 | _WIDE, _WIDE, 0, 0, *told)
        found += struct.pack("<4sLQL", b"PK\x06\x07", 0, place + size, 1)
        told = (0xFFFF, 0xFFFF, _TOLD_BELOW, _TOLD_BELOW)
    return found + struct.pack("<4sHHHHLLH", b"PK\x05\x06", 0, 0, *told, 0)


def _version(wide: bool) -> int:
    return _WIDE if wide else _PLAIN


def _moment(entry: Entry) -> tuple[int, int]:
    """Time and date as archives write them, from 1980 to 2107."""
    moment = time.gmtime(min(max(entry.modified, 315_532_800), 4_354_819_198))
    date = moment.tm_year - 1980 << 9 | moment.tm_mon << 5 | moment.tm_mday
    return moment.tm_hour << 11 | moment.tm_min << 5 | moment.tm_sec // 2, date
