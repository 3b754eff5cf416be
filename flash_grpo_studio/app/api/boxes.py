"""An MP4 file without what tells where it comes from: found by walking its boxes, without decoding a frame.

Nothing in a file is believed: every size is held against what holds it, every count against a limit, and whatever is
not as our own writer makes it is refused with a sentence.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

MOST_BYTES, MOST_INDEX, MOST_BLANK = 512 * 2**20, 8 * 2**20, 2**20
MOST_BOXES, MOST_SAMPLES, MOST_UNITS = 500, 20_000, 200_000
KEPT: Mapping[bytes, tuple[bytes, ...]] = {
    b"moov": (b"mvhd", b"trak"),
    b"trak": (b"tkhd", b"edts", b"mdia"),
    b"edts": (b"elst",),
    b"mdia": (b"mdhd", b"hdlr", b"minf"),
    b"minf": (b"vmhd", b"dinf", b"stbl"),
    b"dinf": (b"dref",),
    b"stbl": (b"stsd", b"stts", b"ctts", b"stss", b"stsc", b"stsz", b"stco", b"co64"),
    b"avc1": (b"avcC", b"colr", b"pasp"),
}
"""What a player needs, by the box that holds it; all else becomes free space."""
ENTRY = 78
"""Bytes of a video's sample entry before the boxes in it."""
BRANDS = (b"isom", b"iso2", b"avc1", b"mp41")
SEI, FILLER = 6, 12
"""Kinds of H.264 units: supplemental information, where x264 writes its version and options, and filling."""


class NotNeutral(Exception):
    """The file cannot be shown without telling where it comes from; the message is a sentence."""


@dataclass(frozen=True)
class Neutral:
    """What is served in the place of some of a file's bytes, and what its video is.

    patches: (offset, bytes), in order. look: the bytes that decide how large and how turned it is shown. stamp: by
    which another file under the same name is told from it.
    """

    size: int
    stamp: tuple[int, ...]
    patches: tuple[tuple[int, bytes], ...]
    frames: int
    fps: Fraction
    look: bytes


def stamp(handle: int) -> tuple[int, ...]:
    """What no two files under one name share, be it one written over the other."""
    facts = os.fstat(handle)
    return facts.st_dev, facts.st_ino, facts.st_mtime_ns, facts.st_size


def neutral(handle: int) -> Neutral:
    """Of an open file; NotNeutral says what is wrong with it."""
    known = stamp(handle)
    size = known[-1]
    if size > MOST_BYTES:
        raise NotNeutral(f"the video has more than {MOST_BYTES // 2**20} MiB")
    patches: list[tuple[int, bytes]] = []
    media: list[tuple[int, int]] = []
    index: tuple[int, bytearray] | None = None
    for kind, start, header, end in _top(handle, size):
        if kind == b"ftyp":
            patches.append((start, _brands(end - start)))
        elif kind == b"mdat":
            media.append((start + header, end))
        elif kind == b"moov" and index is None and header == 8:
            if end - start > MOST_INDEX:
                raise NotNeutral("the video's index is too large")
            index = start, bytearray(_read(handle, start, end - start))
        elif kind in (b"free", b"skip", b"wide", b"udta", b"meta", b"uuid") and header == 8:
            if end - start > MOST_BLANK:
                raise NotNeutral("the video carries too much beside its frames")
            patches.append((start + 4, b"free" + bytes(end - start - 8)))
        else:
            raise NotNeutral(f"the video holds a box {_name(kind)} that no video of a run has there")
    if index is None or not media:
        raise NotNeutral("the video has no index or no frames")
    track = _Track(index[1])
    patches += [(index[0], bytes(track.data)), *_units(handle, track, media)]
    return Neutral(size, known, tuple(sorted(patches)), track.frames, track.fps, track.look)


def _name(kind: bytes) -> str:
    return repr(kind.decode("latin-1"))


def _read(handle: int, start: int, count: int) -> bytes:
    found = os.pread(handle, count, start)
    if len(found) != count:
        raise NotNeutral("the video is cut off")
    return found


def _top(handle: int, size: int) -> Iterator[tuple[bytes, int, int, int]]:
    """Kind, start, length of the header and end of each box of the file; together they are the whole file."""
    start = 0
    for _ in range(MOST_BOXES):
        if start == size:
            return
        if size - start < 8:
            raise NotNeutral("the video is cut off")
        length, kind = struct.unpack(">I4s", _read(handle, start, 8))
        header = 8
        if length == 1 and size - start >= 16:
            (length,), header = struct.unpack(">Q", _read(handle, start + 8, 8)), 16
        if not header <= length <= size - start:
            raise NotNeutral("the video is cut off, or a box of it claims a size it cannot have")
        yield kind, start, header, start + length
        start += length
    raise NotNeutral("the video is made of too many boxes")


def _brands(size: int) -> bytes:
    """A file type box of the given size that says the same of every file."""
    if size < 16 or size % 4 or size > 256:
        raise NotNeutral("the video's file type has a size it cannot have")
    names = [BRANDS[place % len(BRANDS)] for place in range((size - 16) // 4)]
    return struct.pack(">I4s4sI", size, b"ftyp", b"isom", 512) + b"".join(names)


class _Track:
    """The index of a file with one H.264 track, blanked in place; and what it says of the frames."""

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self.found: dict[bytes, tuple[int, int]] = {}
        self._boxes = 0
        self._walk(b"moov", 8, len(data), 0)
        for kind in (b"mvhd", b"tkhd", b"mdhd"):
            self._blank_times(kind)
        start, end = self._body(b"hdlr", 24)
        if data[start + 8 : start + 12] != b"vide":
            raise NotNeutral("the file's track is no video")
        data[start + 24 : end] = bytes(end - start - 24)
        start, end = self._body(b"tkhd", 84)
        self.look = bytes(data[end - 44 : end]) + self._entry()
        self.sizes = self._sample_sizes()
        self.frames, self.fps = self._rate()

    def _walk(self, parent: bytes, start: int, end: int, depth: int) -> None:
        while start < end:
            self._boxes += 1
            if self._boxes > MOST_BOXES:
                raise NotNeutral("the video's index is made of too many boxes")
            if end - start < 8:
                raise NotNeutral("the video's index is cut off")
            length, kind = struct.unpack_from(">I4s", self.data, start)
            if not 8 <= length <= end - start:
                raise NotNeutral("a box of the video's index claims a size it cannot have")
            self._take(parent, kind, start, start + length, depth)
            start += length

    def _take(self, parent: bytes, kind: bytes, start: int, end: int, depth: int) -> None:
        if kind not in KEPT[parent]:
            self.data[start + 4 : end] = b"free" + bytes(end - start - 8)
            return
        if kind in self.found:
            raise NotNeutral(f"the video has more than one {_name(kind)}; expected a single track")
        self.found[kind] = start + 8, end
        if kind in KEPT:
            self._walk(kind, start + 8, end, depth + 1)

    def _body(self, kind: bytes, least: int) -> tuple[int, int]:
        """Where a box's content lies, which has at least so many bytes."""
        start, end = self.found.get(kind, (0, 0))
        if end - start < least:
            raise NotNeutral(f"the video's index has no {_name(kind)} that can be read")
        return start, end

    def _version(self, kind: bytes, least: int) -> tuple[int, int]:
        """Where its content lies, and whether its numbers are the long ones."""
        start, end = self._body(kind, least)
        version = self.data[start]
        if version > 1 or end - start < least + 12 * version:
            raise NotNeutral(f"the video's {_name(kind)} is of a kind that no video of a run has")
        return start, version

    def _blank_times(self, kind: bytes) -> None:
        start, version = self._version(kind, 24)
        length = 16 if version else 8
        self.data[start + 4 : start + 4 + length] = bytes(length)

    def _entry(self) -> bytes:
        """Blank the encoder's name, free what else is in the sample entry, and return the picture's size."""
        start, end = self._body(b"stsd", 8 + 8 + ENTRY)
        count, length, kind = struct.unpack_from(">II4s", self.data, start + 4)
        if count != 1 or kind != b"avc1" or length != end - start - 8:
            raise NotNeutral("the video is not H.264 alone")
        entry = start + 16
        name = entry + 42
        self.data[name : name + 32] = bytes(32)
        self._walk(b"avc1", entry + ENTRY, end, 0)
        return bytes(self.data[entry + 24 : entry + 28])

    def _table(self, kind: bytes, width: int, head: int = 4) -> list[Any]:
        """The rows of a table with `width` bytes each; its count stands `head` bytes into the box."""
        start, end = self._body(kind, head + 4)
        (count,) = struct.unpack_from(">I", self.data, start + head)
        first = start + head + 4
        if count > MOST_SAMPLES or count * width > end - first:
            raise NotNeutral(f"the video's {_name(kind)} claims more rows than it can have")
        layout = {4: ">I", 8: ">II" if kind != b"co64" else ">Q", 12: ">III"}[width]
        return list(struct.iter_unpack(layout, self.data[first : first + count * width]))

    def _sample_sizes(self) -> list[int]:
        start, _ = self._body(b"stsz", 12)
        same, count = struct.unpack_from(">II", self.data, start + 4)
        if not 0 < count <= MOST_SAMPLES:
            raise NotNeutral(f"the video has {count} frames; expected 1 to {MOST_SAMPLES}")
        if same:
            return [int(same)] * int(count)
        return [int(row[0]) for row in self._table(b"stsz", 4, head=8)]

    def _rate(self) -> tuple[int, Fraction]:
        start, version = self._version(b"mdhd", 24)
        (scale,) = struct.unpack_from(">I", self.data, start + (20 if version else 12))
        rows = self._table(b"stts", 8)
        steps = {int(step) for _, step in rows}
        if len(steps) != 1 or not scale or 0 in steps or sum(count for count, _ in rows) != len(self.sizes):
            raise NotNeutral("the video has no constant rate")
        return len(self.sizes), Fraction(int(scale), steps.pop())

    def length_bytes(self) -> int:
        """How many bytes tell the length of a unit."""
        start, _ = self._body(b"avcC", 7)
        return (self.data[start + 4] & 3) + 1

    def samples(self) -> Iterator[tuple[int, int]]:
        """Offset and size of each frame in the file."""
        wide = b"co64" in self.found
        chunks = [int(row[0]) for row in self._table(b"co64" if wide else b"stco", 8 if wide else 4)]
        runs = self._table(b"stsc", 12)
        if not runs or runs[0][0] != 1:
            raise NotNeutral("the video's index does not say where its frames lie")
        place, taken = 0, 0
        for number, offset in enumerate(chunks, 1):
            while place + 1 < len(runs) and runs[place + 1][0] <= number:
                place += 1
            for size in self.sizes[taken : taken + runs[place][1]]:
                yield offset, size
                offset += size
                taken += 1
        if taken != len(self.sizes):
            raise NotNeutral("the video's index does not say where its frames lie")


def _units(handle: int, track: _Track, media: list[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
    """Filling in the place of what the encoder says of itself; the frames must fill the file's media."""
    width, seen, blank, used = track.length_bytes(), 0, 0, 0
    for offset, size in track.samples():
        if not any(start <= offset and offset + size <= end for start, end in media):
            raise NotNeutral("a frame of the video lies outside its media")
        used += size
        end = offset + size
        while offset < end:
            seen += 1
            head = _read(handle, offset, min(width + 1, end - offset))
            length = int.from_bytes(head[:width], "big")
            if len(head) <= width or not 0 < length <= end - offset - width or seen > MOST_UNITS:
                raise NotNeutral("a frame of the video is not made as H.264 is")
            if head[width] & 31 == SEI:
                blank += length
                if blank > MOST_BLANK:
                    raise NotNeutral("the video carries too much beside its frames")
                yield offset + width, bytes([FILLER]) + (b"\xff" * (length - 2) + b"\x80" if length > 1 else b"")
            offset += width + length
    if used != sum(end - start for start, end in media):
        raise NotNeutral("the video's media hold more than its frames")
