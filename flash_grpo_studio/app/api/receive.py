"""Taking an upload in: streamed to a temporary name, judged by its first bytes, limited, then renamed into place."""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from fastapi import Request
from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.concurrency import run_in_threadpool

from flash_grpo.files import sync_folder
from flash_grpo_studio.app.api.errors import Refused
from flash_grpo_studio.app.api.limits import MB, Limits
from flash_grpo_studio.app.store.tables import new_id
from flash_grpo_studio.app.workspace import Workspace

ENDINGS: Mapping[str, tuple[str, ...]] = {
    "video/mp4": (".mp4", ".m4v"),
    "video/quicktime": (".mov",),
    "video/webm": (".webm",),
    "video/x-matroska": (".mkv",),
    "image/gif": (".gif",),
    "text/plain": (".txt", ".csv", ".jsonl"),
}
SNIFFED = 64
KEPT_FREE = 200 * MB


@dataclass(frozen=True)
class Received:
    """An upload as it lies in the workspace."""

    id: str
    path: Path
    name: str
    type: str
    bytes: int

    @property
    def kind(self) -> str:
        """`upload` for videos, `prompts` for texts."""
        return "prompts" if self.type == "text/plain" else "upload"


def sniff(start: bytes) -> str | None:
    """The type that the first bytes tell; None for what is not taken."""
    if start[4:8] == b"ftyp":
        return "video/quicktime" if start[8:12] == b"qt  " else "video/mp4"
    if start.startswith(b"\x1a\x45\xdf\xa3"):
        return "video/webm" if b"webm" in start else "video/x-matroska"
    if start.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    text = start.removeprefix(codecs.BOM_UTF8)
    plain = text.strip() and not any(byte < 32 and byte not in b"\t\n\r\f" for byte in text)
    return "text/plain" if plain else None


def safe_name(given: str, type_: str) -> str:
    """A file name of harmless signs with an ending that fits the type; Refused for a text of another kind."""
    name = PurePosixPath(given.replace("\\", "/")).name
    ending = PurePosixPath(name).suffix.lower()
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", PurePosixPath(name).stem).strip(".-")[:80] or "upload"
    if ending in ENDINGS[type_]:
        return stem + ending
    if type_ == "text/plain":
        raise Refused(415, "wrong_type", "a text must be named .txt, .csv or .jsonl", "rename the file")
    return stem + ENDINGS[type_][0]


@dataclass
class _Sink:
    """Writes one file, and refuses it as soon as its bytes say that it is not taken."""

    workspace: Workspace
    limits: Limits
    id: str = field(default_factory=new_id)
    given_name: str = ""
    type: str | None = None
    size: int = 0
    _start: bytes = b""

    def __post_init__(self) -> None:
        self.part = self.workspace.folder / "uploads" / f".{self.id}.part"
        self._file = self.part.open("wb")
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def write(self, data: bytes) -> None:
        """The next bytes."""
        self.size += len(data)
        if self.type is None:
            self._start += data
            if len(self._start) < SNIFFED:
                return
            data, self._start = self._start, b""
            self._decide(data)
        self._check(data, final=False)
        self._file.write(data)

    def _decide(self, start: bytes) -> None:
        self.type = sniff(start[:SNIFFED])
        if self.type is None:
            raise Refused(
                415,
                "wrong_type",
                "this is neither a video (mp4, mov, webm, mkv, gif) nor a text in UTF-8",
                "convert it",
            )
        safe_name(self.given_name, self.type)

    def _check(self, data: bytes, final: bool) -> None:
        limit = self.limits.prompts if self.type == "text/plain" else self.limits.video
        if self.size > limit:
            raise Refused(413, "too_large", f"the file is larger than {limit // MB} MB; send a smaller one")
        if self.type == "text/plain":
            try:
                decoded = self._decoder.decode(data, final)
            except UnicodeDecodeError:
                decoded = "\0"
            if "\0" in decoded:
                raise Refused(415, "wrong_type", "the text is not UTF-8", "save it as UTF-8")

    def finish(self) -> Received:
        """Make the file durable and give it its name."""
        if self.type is None:
            if not self._start:
                raise Refused(422, "invalid", "the file is empty; send another one")
            self._decide(self._start)
            self._file.write(self._start)
            self._check(self._start, final=True)
        else:
            self._check(b"", final=True)
        assert self.type is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        name = safe_name(self.given_name, self.type)
        folder = self.workspace.folder / "uploads" / self.id
        folder.mkdir()
        self.part.replace(folder / name)
        sync_folder(folder)
        return Received(self.id, folder / name, name, self.type, self.size)

    def discard(self) -> None:
        """Leave nothing behind."""
        self._file.close()
        self.part.unlink(missing_ok=True)


class _Form:
    """The parts of a multipart body as they stream by; only the field `file` is kept."""

    def __init__(self, boundary: bytes) -> None:
        self.headers: dict[str, str] = {}
        self.chunks: list[bytes] = []
        self.name: str | None = None
        self.found = self.complete = False
        self._inside = False
        self._field = self._value = b""
        names = (
            "part_begin",
            "part_data",
            "part_end",
            "header_field",
            "header_value",
            "header_end",
            "headers_finished",
        )
        callbacks = {f"on_{name}": getattr(self, f"_{name}") for name in names}
        self.parser = MultipartParser(boundary, callbacks)  # type: ignore[arg-type]

    def _part_begin(self) -> None:
        self.headers, self._inside = {}, False

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]  # the parser bounds headers itself

    def _header_end(self) -> None:
        self.headers[self._field.decode("latin-1").lower()] = self._value.decode("latin-1")
        self._field = self._value = b""

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self.headers.get("content-disposition", ""))
        if options.get(b"name") != b"file":
            return
        if self.found:
            raise Refused(422, "invalid", "one file at a time; send the others by requests of their own")
        self.found = self._inside = True
        self.name = options.get(b"filename", b"").decode("utf-8", "replace")

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._inside:
            self.chunks.append(data[start:end])

    def _part_end(self) -> None:
        self.complete = self.complete or self._inside
        self._inside = False


async def receive(request: Request, workspace: Workspace, limits: Limits) -> Received:
    """Take the field `file` of a multipart form in. Raises Refused: 413, 415 or 422; and OSError for a full disk."""
    form = _form(request)
    expected = request.headers.get("content-length", "")
    if expected.isdigit() and int(expected) > workspace.free_bytes() - KEPT_FREE:
        raise Refused(507, "disk_full", "the disk has no room for this file", "free some space")
    sink = _Sink(workspace, limits)
    try:
        async for chunk in request.stream():
            form.parser.write(chunk)
            if form.chunks:
                sink.given_name = form.name or ""
                data, form.chunks = b"".join(form.chunks), []
                await run_in_threadpool(sink.write, data)
        form.parser.finalize()
        if not form.complete:
            raise Refused(422, "invalid", "the form holds no whole field `file`; send the file in it")
        sink.given_name = form.name or ""
        return await run_in_threadpool(sink.finish)
    except MultipartParseError as error:
        raise Refused(422, "invalid", "the form cannot be read; send it as multipart/form-data") from error
    finally:
        sink.discard()


def _form(request: Request) -> _Form:
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary", b"")
    if kind != b"multipart/form-data" or not boundary or len(boundary) > 200:
        raise Refused(415, "wrong_type", "expected the file as multipart/form-data, in a field named file")
    return _Form(boundary)
