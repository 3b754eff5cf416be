"""The files of a job that are worth fetching; each gets a row, so that files are reached by id alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.metrics import insert_of
from flash_grpo_studio.app.store.tables import File, Job, new_id
from flash_grpo_studio.app.workspace import Workspace

KINDS = {
    "run/config.yaml": "config",
    "run/summary.json": "summary",
    "run/chart.png": "chart",
    "run/contact_sheet.png": "contact_sheet",
    "run/events.jsonl": "events",
    "run/log.txt": "log",
    "report/result.json": "result",
    "report/events.jsonl": "events",
    "contact_sheet.png": "contact_sheet",
}
PATTERNS = {
    "attempts/*/output.txt": "output",
    "run/export/**/*": "export",
    "report/export/**/*": "export",
    "export/**/*": "export",
    "composition.*": "composition",
    "report/*.png": "chart",
    "report/*.mp4": "video",
}
WRITTEN = ("log", "output", "events")
"""Kinds of files that hold whatever a process said."""
MOST = 2000
"""Files of one job; beyond them something is wrong with it."""


def worth_fetching(folder: Path) -> Iterator[tuple[Path, str]]:
    """The files there are now, with their kinds; links are left alone, as they may lead anywhere."""
    found = 0
    for name, kind in KINDS.items():
        if (folder / name).is_file() and not (folder / name).is_symlink():
            yield folder / name, kind
    for pattern, kind in PATTERNS.items():
        for path in sorted(folder.glob(pattern)):
            if path.is_file() and not path.is_symlink() and not path.name.startswith("."):
                found += 1
                if found > MOST:
                    return
                yield path, kind


def registered(store: Store, workspace: Workspace, job: Job) -> list[tuple[File, int]]:
    """The rows of a job's files with their present sizes, made where missing."""
    there = {workspace.relative(path): (path, kind) for path, kind in worth_fetching(workspace.job(job.id))}
    query = select(File).where(File.job_id == job.id)
    with store.reading() as session:
        known = {row.path: row for row in session.scalars(query)}
    fresh = [
        {
            "id": new_id(),
            "owner_id": job.owner_id,
            "job_id": job.id,
            "kind": kind,
            "name": path.name[-255:],
            "path": relative,
            "bytes": path.stat().st_size,
        }
        for relative, (path, kind) in there.items()
        if relative not in known
    ]
    if fresh:
        try:
            with store.writing() as session:
                session.execute(insert_of(session)(File).on_conflict_do_nothing(), fresh)
                known = {row.path: row for row in session.scalars(query)}
        except IntegrityError:  # the job was deleted a moment ago
            return []
    return [(known[path], there[path][0].stat().st_size) for path in there if path in known]
