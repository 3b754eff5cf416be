"""Serving the two videos of a ballot so that nothing but their pictures differs: same headers, length and metadata."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from starlette.datastructures import Headers

from flash_grpo.errors import InputError
from flash_grpo_studio.app.api.boxes import Neutral, NotNeutral, neutral, stamp
from flash_grpo_studio.app.api.errors import Refused, problem, problems
from flash_grpo_studio.app.api.serving import POLICY
from flash_grpo_studio.app.jobs.change import NotFound
from flash_grpo_studio.app.workspace import Workspace

SECONDS = 4 * 3600
"""How long the address of a ballot's video is good."""
PIECE = 2**18
PADDING = 1024
"""Free space behind the longer of two videos, so that both end alike."""
KEPT = 512
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.ASCII)
MEDIA: dict[int | str, dict[str, Any]] = {
    **problems(404),
    200: {"description": "The video.", "content": {"video/mp4": {"schema": {}}}},
    206: {"description": "The part that was asked for by `Range`.", "content": {"video/mp4": {"schema": {}}}},
    416: {"description": "A `Range` beyond the video.", "content": {"application/json": {"schema": {}}}},
}
"""How the routes that send them may answer, for the API's document."""


def signature(secret: bytes, ballot_id: str, half: str, user_id: str, until: int) -> str:
    """Proof that this studio gave this person this address."""
    said = f"{ballot_id}/{half}/{user_id}/{until}".encode()
    return hmac.new(secret, said, hashlib.sha256).hexdigest()


def address(secret: bytes, ballot_id: str, half: str, user_id: str) -> str:
    """Where the person finds a video of the ballot for the next hours."""
    until = int(time.time()) + SECONDS
    return f"/api/v1/ballots/{ballot_id}/{half}?until={until}&sig={signature(secret, ballot_id, half, user_id, until)}"


def check_signature(secret: bytes, ballot_id: str, half: str, user_id: str, until: int, signed: str) -> None:
    """Raise Refused unless the address was given out like this, and not too long ago."""
    expected = signature(secret, ballot_id, half, user_id, until)
    if not hmac.compare_digest(expected.encode(), signed.encode("utf-8", "replace")):
        raise Refused(403, "forbidden", "this address of a video is none that was given out", "ask for the ballot anew")
    if until < time.time():
        raise Refused(403, "forbidden", "this address of a video has expired", "ask for the ballot anew")


class Neutrals:
    """What is known of files, kept for as long as they stay as they are."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Any, ...], Neutral] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, path: Path) -> Neutral:
        """What to serve in the place of a file; NotNeutral if it is missing or cannot be shown blindly."""
        try:
            handle = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise NotNeutral("the video's file is not there") from error
        try:
            return self._of(handle, path)
        finally:
            os.close(handle)

    def _of(self, handle: int, path: Path) -> Neutral:
        name = (str(path), *stamp(handle))
        with self._lock:
            known = self._kept.get(name)
        if known is None:
            known = neutral(handle)
        with self._lock:
            self._kept[name] = known
            self._kept.move_to_end(name)
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return known

    def both(self, workspace: Workspace, first: str, second: str) -> tuple[Neutral, Neutral]:
        """Of a pair of files, by their paths in the workspace; NotNeutral also if their videos could be told apart."""
        try:
            one, other = (self.of(workspace.inside(path)) for path in (first, second))
        except InputError as error:
            raise NotNeutral("the video's file is not there") from error
        for what in ("frames", "fps", "look"):
            if getattr(one, what) != getattr(other, what):
                said = {"frames": "numbers of frames", "fps": "rates", "look": "sizes"}[what]
                raise NotNeutral(f"the two videos have different {said}")
        return one, other


def send(request: Request, path: Path, shown: Neutral, length: int) -> Response:
    """A file as its neutral self, padded to `length` bytes; in parts where asked."""
    headers = {"Accept-Ranges": "bytes", "Cache-Control": "private, no-store", "Content-Security-Policy": POLICY}
    status, (first, last) = 200, (0, length - 1)
    part = _part(request.headers, length)
    if part is not None:
        if part[0] > part[1]:
            beyond = {**headers, "Content-Range": f"bytes */{length}"}
            return problem(416, "range", f"the video has {length} bytes; ask for a part of them", beyond)
        status, (first, last) = 206, part
        headers["Content-Range"] = f"bytes {first}-{last}/{length}"
    try:
        file = path.open("rb", buffering=0)
    except OSError as error:
        raise NotFound("the video is no longer there") from error
    if stamp(file.fileno()) != shown.stamp:
        file.close()
        raise NotFound("the video was written anew at this moment; ask again")
    headers["Content-Length"] = str(last - first + 1)
    return StreamingResponse(content(file, shown, length, first, last + 1), status, headers, media_type="video/mp4")


def _part(headers: Headers, length: int) -> tuple[int, int] | None:
    """First and last byte of the part that is asked for; None is all, also where a request cannot be kept to."""
    found = _RANGE.fullmatch(headers.get("range", "").strip())
    if found is None or found.groups() == ("", "") or "if-range" in headers:
        return None
    start, end = found.groups()
    if start == "":
        return (max(0, length - int(end)), length - 1) if int(end) else (length, length - 1)
    return int(start), min(int(end) if end else length - 1, length - 1)


def content(file: FileIO, shown: Neutral, length: int, start: int, end: int) -> Iterator[bytes]:
    """Bytes `start` to `end` of the neutral file: its own, the patches over them, and free space behind."""
    tail = struct.pack(">I4s", length - shown.size, b"free")
    patches = (*shown.patches, (shown.size, tail))
    with file:
        while start < end:
            count = min(PIECE, end - start)
            piece = bytearray(os.pread(file.fileno(), min(count, max(0, shown.size - start)), start))
            if start + len(piece) < min(start + count, shown.size):
                raise OSError("the video became shorter while it was sent")
            piece += bytes(count - len(piece))
            for offset, patch in patches:
                low, high = max(offset, start), min(offset + len(patch), start + count)
                if low < high:
                    piece[low - start : high - start] = patch[low - offset : high - offset]
            yield bytes(piece)
            start += count
