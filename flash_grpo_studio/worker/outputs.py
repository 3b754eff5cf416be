"""What a job has made, as rows of the store: its files and videos, scores of others' videos, a base model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from flash_grpo_studio.app.jobs.change import Fenced
from flash_grpo_studio.app.jobs.leases import Claim
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.intake import VideoFacts, put_videos
from flash_grpo_studio.app.store.metrics import insert_of
from flash_grpo_studio.app.store.tables import BaseModelEntry, File, Job, User, Video, new_id
from flash_grpo_studio.app.workspace import Workspace
from flash_grpo_studio.worker.launch import Ground, download_folder, folder_of, model_name
from flash_grpo_studio.worker.paths import inside_out

RUN_FILES = {
    "summary": "run/summary.json",
    "chart": "run/chart.png",
    "contact_sheet": "run/contact_sheet.png",
    "config": "run/config.yaml",
    "log": "run/log.txt",
}
"""Kind of file -> its place in an alignment's folder."""


def enter(store: Store, ground: Ground, claim: Claim, done: bool) -> dict[str, Any] | None:
    """Write rows for what an attempt left, and return the result of a job that is done.

    Doing it again changes nothing, so a worker that dies in between costs nothing. Raises Fenced if the job is in
    other hands.
    """
    folder = folder_of(ground, claim)
    result = _read(folder / ("run/summary.json" if claim.kind == "alignment" else "report/result.json")) if done else {}
    with store.writing() as session:
        job = session.get(Job, claim.job_id)
        if job is None or job.fence != claim.fence:
            raise Fenced(f"the job {claim.job_id} is in other hands by now")
        if claim.kind == "alignment":
            _put_files(session, ground.workspace, job, {folder / name: kind for kind, name in RUN_FILES.items()})
        elif done:
            _ENTRIES.get(claim.kind, _nothing)(session, ground, job, claim, result)
    return inside_out(ground.workspace.folder, result) if done else None


def _read(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _nothing(session: Session, ground: Ground, job: Job, claim: Claim, result: Mapping[str, Any]) -> None:
    """All that an evaluation found, or an export that was sent, is told by the result."""


def _preview(session: Session, ground: Ground, job: Job, claim: Claim, result: Mapping[str, Any]) -> None:
    folder = folder_of(ground, claim) / "videos"
    found = []
    for video in result.get("videos", ()):
        path = folder / str(video["path"])
        facts = VideoFacts(
            path=ground.workspace.relative(path),
            bytes=_size(path),
            update=video.get("checkpoint") or 0,
            side=video.get("side"),
            prompt_id=video.get("id"),
            prompt=video.get("prompt"),
            seed=video.get("seed"),
            strength=video.get("strength"),
            noise=video.get("noise"),
            scores=video.get("scores", {}),
        )
        found.append(facts)
    put_videos(session, job, found)


def _scoring(session: Session, ground: Ground, job: Job, claim: Claim, result: Mapping[str, Any]) -> None:
    """Scores go onto the rows of the videos that were scored, beside what they had; but others' videos, which were
    shared for looking, stay as they are.
    """
    owner = session.get_one(User, job.owner_id)
    scores = {
        ground.workspace.relative(Path(video["path"])): video["scores"]
        for video in result.get("videos", ())
        if video.get("scores")
    }
    for wanted in claim.spec["task"]["videos"]:
        row = session.scalar(select(Video).where(Video.id == wanted["id"]).with_for_update())
        found = scores.get(ground.workspace.relative(ground.workspace.inside(wanted["path"])))
        if row is not None and found and (row.owner_id == owner.id or owner.role == "admin"):
            row.scores = {**found, **row.scores}  # what its run measured, on frames and not on the file, stays


def _normalisation(session: Session, ground: Ground, job: Job, claim: Claim, result: Mapping[str, Any]) -> None:
    path = folder_of(ground, claim) / "video.mp4"
    prompt = claim.spec["task"].get("prompt")
    put_videos(session, job, [VideoFacts(ground.workspace.relative(path), _size(path), prompt=prompt)])


def _composition(session: Session, ground: Ground, job: Job, claim: Claim, result: Mapping[str, Any]) -> None:
    file = folder_of(ground, claim) / f"composition.{claim.spec['task']['format']}"
    _put_files(session, ground.workspace, job, {file: "composition"})


def _contact_sheet(session: Session, ground: Ground, job: Job, claim: Claim, result: Mapping[str, Any]) -> None:
    _put_files(session, ground.workspace, job, {folder_of(ground, claim) / "contact_sheet.png": "contact_sheet"})


def _export(session: Session, ground: Ground, job: Job, claim: Claim, result: Mapping[str, Any]) -> None:
    folder = folder_of(ground, claim) / "export"
    files = {path: "export" for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith(".")}
    _put_files(session, ground.workspace, job, files, folder)


def _download(session: Session, ground: Ground, job: Job, claim: Claim, result: Mapping[str, Any]) -> None:
    task = claim.spec["task"]
    if task["what"] != "model":
        return
    name, folder = model_name(task), f"models/{download_folder(task)}"
    row = session.scalar(select(BaseModelEntry).where(BaseModelEntry.name == name).with_for_update())
    if row is None:
        row = BaseModelEntry(id=new_id(), owner_id=job.owner_id, name=name, source=task["repo"], path=folder)
        session.add(row)
    row.job_id, row.path = job.id, folder
    row.revision, row.licence = _text(result, "commit", 100), _text(result, "licence", 200)


def _text(result: Mapping[str, Any], key: str, length: int) -> str | None:
    value = result.get(key)
    return str(value)[:length] if value is not None else None


def _put_files(
    session: Session, workspace: Workspace, job: Job, files: Mapping[Path, str], base: Path | None = None
) -> None:
    """Rows of files that are there, named by their place below `base`; a file keeps its id for as long as its path."""
    rows = list(_rows(workspace, job, files, base))
    if not rows:
        return
    insert = insert_of(session)(File)
    renewed = {"bytes": insert.excluded["bytes"], "kind": insert.excluded["kind"]}
    session.execute(insert.on_conflict_do_update(index_elements=["job_id", "path"], set_=renewed), rows)


def _rows(workspace: Workspace, job: Job, files: Mapping[Path, str], base: Path | None) -> Iterator[dict[str, Any]]:
    for path, kind in files.items():
        if path.is_file():
            name = path.relative_to(base).as_posix() if base else path.name
            own = {"id": new_id(), "owner_id": job.owner_id, "job_id": job.id, "kind": kind}
            yield {**own, "name": name[-255:], "path": workspace.relative(path), "bytes": _size(path)}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


Entry = Callable[[Session, Ground, Job, Claim, Mapping[str, Any]], None]
_ENTRIES: dict[str, Entry] = {
    "preview": _preview,
    "scoring": _scoring,
    "normalisation": _normalisation,
    "composition": _composition,
    "contact_sheet": _contact_sheet,
    "export": _export,
    "download": _download,
}
