"""Handing out files of the workspace: by id only, in parts where asked, and nothing that a browser might run."""

from __future__ import annotations

import mimetypes
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request
from fastapi.responses import FileResponse, Response, StreamingResponse

from flash_grpo.errors import InputError
from flash_grpo_studio.app.api.errors import problems
from flash_grpo_studio.app.jobs.change import NotFound
from flash_grpo_studio.app.redaction import redacted_pieces
from flash_grpo_studio.app.workspace import Workspace

INLINE = {".mp4": "video/mp4", ".webm": "video/webm", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}
"""What is shown in the page; all else is offered for download."""
TEXTS = (".txt", ".yaml", ".jsonl", ".csv", ".log", ".md")
SAFE_TYPES = {
    ".json": "application/json",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".mov": "video/quicktime",
    ".mkv": "video/x-matroska",
}
POLICY = "default-src 'none'; sandbox; frame-ancestors 'self'"
HEADERS = {"Cache-Control": "private, max-age=0, must-revalidate", "Content-Security-Policy": POLICY}


SERVED = (*INLINE.values(), *SAFE_TYPES.values(), "text/plain", "application/octet-stream")
CONTENT: dict[int | str, dict[str, Any]] = {
    **problems(404),
    200: {"description": "The file.", "content": {kind: {"schema": {}} for kind in dict.fromkeys(SERVED)}},
    206: {
        "description": "The part or parts that were asked for by `Range`.",
        "content": {kind: {"schema": {}} for kind in (*dict.fromkeys(SERVED), "multipart/byteranges")},
    },
    304: {"description": "Not changed since the ETag sent."},
    400: {"description": "A `Range` that cannot be read.", "content": {"text/plain": {"schema": {}}}},
    416: {"description": "A `Range` beyond the file.", "content": {"text/plain": {"schema": {}}}},
}
"""How routes that send files may answer, for the API's document."""


def media_type(name: str) -> str:
    """The content type of a file by its ending; never one that carries scripts."""
    ending = Path(name).suffix.lower()
    if ending in TEXTS:
        return "text/plain; charset=utf-8"
    guess = INLINE.get(ending) or SAFE_TYPES.get(ending) or mimetypes.guess_type(name)[0] or ""
    harmless = ending in INLINE or ending in SAFE_TYPES
    return guess if harmless else "application/octet-stream"


def send_file(request: Request, workspace: Workspace, relative: str, name: str) -> Response:
    """The file as a response; NotFound if it is not there (any more) or would lie outside the workspace."""
    path, facts = _found(workspace, relative)
    inline = Path(name).suffix.lower() in INLINE
    response = FileResponse(
        path,
        media_type=media_type(name),
        filename=name,
        stat_result=facts,
        content_disposition_type="inline" if inline else "attachment",
        headers=HEADERS,
    )
    if _known(request.headers.get("if-none-match", ""), response.headers["etag"]):
        kept = {key: response.headers[key] for key in ("etag", "cache-control", "last-modified")}
        return Response(status_code=304, headers=kept)
    return response


def send_words(workspace: Workspace, relative: str, name: str) -> Response:
    """What a process wrote, as a download without passwords and tokens; always whole, as its length is not known."""
    path, _ = _found(workspace, relative)
    headers = {**HEADERS, "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}", "Accept-Ranges": "none"}
    return StreamingResponse(redacted_pieces(path), media_type=media_type(name), headers=headers)


def _found(workspace: Workspace, relative: str) -> tuple[Path, os.stat_result]:
    try:
        path = workspace.inside(relative)
        facts = path.stat()
    except (OSError, InputError):
        raise NotFound("the file is no longer there") from None
    if not path.is_file():
        raise NotFound("the file is no longer there")
    return path, facts


def _known(offered: str, etag: str) -> bool:
    """Whether a client that offers these ETags has the file as it is now; that goes before any `Range` it wants."""
    return etag in (part.strip().removeprefix("W/") for part in offered.split(","))
