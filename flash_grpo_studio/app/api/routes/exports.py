"""What an export job wrote: its files with what proves them whole, the model card, and all of it as one archive."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from flash_grpo_studio.app.api.base import JobId, subject
from flash_grpo_studio.app.api.errors import problems
from flash_grpo_studio.app.api.job_files import registered
from flash_grpo_studio.app.api.who import Parts, Reader
from flash_grpo_studio.app.api.zipped import Entry, archive, archive_length
from flash_grpo_studio.app.jobs.access import Actor, fetch
from flash_grpo_studio.app.jobs.change import IllegalTransition, NotFound
from flash_grpo_studio.app.store.tables import Job

router = subject("files")
RECORD, CARD = "export.json", "README.md"
BESIDE = (RECORD, "SHA256SUMS")
"""Files that the record does not name, as it is one of them."""
LONGEST_CARD = 200_000


class ExportedFile(BaseModel):
    """A file of an export; its hash is what was written, whatever the disk has made of it since."""

    name: str = Field(description="Path within the export.")
    bytes: int
    sha256: str | None
    url: str


class ExportView(BaseModel):
    """An export."""

    format: str
    checkpoint: str = Field(description="The update that was exported.", examples=["40"])
    run: str
    base_model: str | None
    facts: dict[str, str] = Field(description="As in the metadata of its safetensors files.")
    files: list[ExportedFile]
    card: str = Field(description="The model card, as Markdown.")
    zip: str


@router.get("/jobs/{job_id}/export", response_model=ExportView, responses=problems(404, 409), summary="An export")
def get_export(studio: Parts, actor: Reader, job_id: JobId) -> ExportView:
    """What a finished job of the kind export wrote."""
    job = _exported(studio, actor, job_id)
    folder = studio.workspace.job(job.id) / "export"
    record = _record(folder)
    rows = {row.path.removeprefix(f"{job.folder}/export/"): (row, size) for row, size in _rows(studio, job)}
    sums = {name: facts.get("sha256") for name, facts in record["files"].items()}
    files = [
        ExportedFile(name=name, bytes=size, sha256=sums.get(name), url=f"/api/v1/files/{row.id}/content")
        for name, (row, size) in sorted(rows.items())
    ]
    facts = {key.removeprefix("flash_grpo."): str(value) for key, value in record["metadata"].items()}
    return ExportView(
        format=facts.get("format", ""),
        checkpoint=facts.get("update", ""),
        run=facts.get("run", ""),
        base_model=facts.get("base_model"),
        facts=facts,
        files=files,
        card=_inside(folder, CARD).read_text(encoding="utf-8", errors="replace")[:LONGEST_CARD],
        zip=f"/api/v1/jobs/{job.id}/export.zip",
    )


@router.get(
    "/jobs/{job_id}/export.zip",
    response_class=StreamingResponse,
    responses={
        **problems(404, 409),
        200: {"description": "The archive.", "content": {"application/zip": {"schema": {}}}},
    },
    summary="An export as one archive",
)
def get_export_zip(studio: Parts, actor: Reader, job_id: JobId) -> StreamingResponse:
    """All files of an export in one ZIP archive, made while it is sent."""
    job = _exported(studio, actor, job_id)
    folder = studio.workspace.job(job.id) / "export"
    record = _record(folder)
    facts = record["metadata"]
    parts = (facts.get("flash_grpo.run"), facts.get("flash_grpo.update"), facts.get("flash_grpo.format"))
    name = "-".join(_plain(str(part)) for part in parts if part) or "export"
    beside = [path for path in BESIDE if (folder / path).is_file()]
    entries = [_entry(folder, path, name) for path in sorted([*record["files"], *beside])]
    headers = {
        "Content-Length": str(archive_length(entries)),
        "Content-Disposition": f'attachment; filename="{name}.zip"',
        "Cache-Control": "private, no-store",
    }
    return StreamingResponse(archive(entries), media_type="application/zip", headers=headers)


def _exported(studio: Parts, actor: Actor, job_id: str) -> Job:
    """The job, if it is an export that is done."""
    with studio.store.reading() as session:
        job = fetch(session, actor, Job, job_id)
    if job.kind != "export":
        raise NotFound(f"the job {job_id!r} is no export but of kind {job.kind}")
    if job.state != "succeeded":
        raise IllegalTransition(job.state, "be fetched", "wait until it has succeeded")
    return job


def _rows(studio: Parts, job: Job) -> list[Any]:
    return [(row, size) for row, size in registered(studio.store, studio.workspace, job) if row.kind == "export"]


def _record(folder: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        return {"files": dict(record["files"]), "metadata": dict(record["metadata"])}
    except (OSError, ValueError, KeyError, TypeError):
        raise NotFound("the export's files are no longer there") from None


def _entry(folder: Path, name: str, root: str) -> Entry:
    path = _inside(folder, name)
    facts = path.stat()
    return Entry(f"{root}/{name}", path, facts.st_size, facts.st_mtime)


def _inside(folder: Path, name: str) -> Path:
    """A file of the export; never one that a link leads to."""
    path = folder / name
    try:
        if path.is_file() and path.resolve() == folder.resolve() / name:
            return path
    except OSError:
        pass
    raise NotFound(f"the export's file {name!r} is no longer there")


def _plain(text: str) -> str:
    """Letters that file systems and headers take everywhere."""
    return re.sub(r"[^A-Za-z0-9._-]+|\.\.+", "-", text)[:80].strip(".-")
