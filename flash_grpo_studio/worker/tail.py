"""From a run's events.jsonl to the store: whole lines, in batches, each in one transaction, from where the store is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from flash_grpo.events import Record, parse_records
from flash_grpo_studio.app.jobs.change import Fenced
from flash_grpo_studio.app.jobs.leases import Claim
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.intake import ENDINGS, VideoFacts, take_in
from flash_grpo_studio.app.store.metrics import drop_points
from flash_grpo_studio.app.store.tables import Checkpoint, Event, Job
from flash_grpo_studio.app.workspace import Workspace
from flash_grpo_studio.worker.paths import inside_out

CHUNK = 2**20
"""Bytes per transaction: some thousand events, and a lock on SQLite that is held for well under a second."""
_LAST_BYTES = 2**18
_DUE_SECONDS = 5.0
_SENTENCES = ("warning", *ENDINGS)


class Tail:
    """Follows one job's log for the worker in charge. `grown` says whether the last look found something new.

    name: of the folder in which events.jsonl grows, run or report. seconds: device time to be noted with the next
    stretch.
    """

    def __init__(self, store: Store, claim: Claim, workspace: Workspace, name: str) -> None:
        self.store, self.claim, self.root = store, claim, workspace.folder
        self.relative = f"{claim.folder}/{name}"
        self.folder = workspace.inside(self.relative)
        self.offset = claim.intake_offset
        self.grown = False
        self.seconds = 0.0
        self._size = -1
        self._anew, self._before = False, 0

    @property
    def file(self) -> Path:
        """The log."""
        return self.folder / "events.jsonl"

    def drain(self) -> None:
        """Take in all there is, and all device time."""
        while self.take():
            pass
        self.take(flush=True)

    def take(self, flush: bool = False) -> bool:
        """Bring one stretch of the log into the store; returns whether more may be waiting.

        Device time alone is noted when some has gathered, or with `flush`. Raises Fenced if the job is in other hands,
        StoreUnavailable if the database is away; either way nothing is lost, as the store keeps how far it is.
        """
        size = self._look()
        data = self._read(size)
        seconds = self.seconds if data or flush or self.seconds >= _DUE_SECONDS else 0.0
        if not data and not seconds:
            return False
        after = self.offset + len(data)
        if not self._write([self._told(record) for record in parse_records(data)], after, seconds):
            self._find_place()
            return True
        self.offset, self._anew = after, False
        self.seconds -= seconds
        return bool(data) and after < size

    def _told(self, record: Record) -> Record:
        """Sentences without this machine's place of the workspace."""
        if record.type not in _SENTENCES:
            return record
        return replace(record, data=inside_out(self.root, record.data))

    def _write(self, records: Sequence[Record], after: int, seconds: float) -> bool:
        claim = self.claim
        with self.store.writing() as session:
            place = (self._known(), after)
            if not take_in(session, claim.job_id, claim.fence, records, place, self._describe, seconds):
                return False
            if self._anew:
                self._forget(session, records)
            if any(record.type == "checkpoint" for record in records):
                self._drop_pruned(session)
        return True

    def _look(self) -> int:
        """The size of the log, 0 where there is none; one shorter than what was taken from it is another log."""
        try:
            size = self.file.stat().st_size
        except OSError:
            self.grown, self._size = False, -1
            return 0
        self.grown, self._size = size != self._size, size
        if size < self.offset:
            self._before, self.offset, self._anew = self._known(), 0, True
        return size

    def _known(self) -> int:
        """Where the store believes to be."""
        return self._before if self._anew else self.offset

    def _read(self, size: int) -> bytes:
        """Whole lines from the offset on; a last line without its end waits for it."""
        if size <= self.offset:
            return b""
        try:
            with self.file.open("rb") as file:
                file.seek(self.offset)
                data = file.read(CHUNK)
                while b"\n" not in data and (more := file.read(CHUNK)):
                    data += more
        except OSError:
            return b""
        return data[: data.rfind(b"\n") + 1]

    def _find_place(self) -> None:
        """Go where the store is: a commit may have gone through although its answer was lost."""
        with self.store.reading() as session:
            query = select(Job.fence, Job.intake_offset).where(Job.id == self.claim.job_id)
            row = session.execute(query).one_or_none()
        if row is None or row.fence != self.claim.fence:
            raise Fenced(f"the job {self.claim.job_id} is in other hands by now")
        self.offset, self._anew = int(row.intake_offset), False

    def _forget(self, session: Session, records: Sequence[Record]) -> None:
        """What an earlier log said, whose numbers the new one repeats; the new one's own events are put in again."""
        job_id = self.claim.job_id
        session.execute(delete(Event).where(Event.job_id == job_id, Event.seq.is_not(None)))
        drop_points(session, job_id, -1)
        job = session.get_one(Job, job_id, populate_existing=True)
        job.update = 0
        session.flush()
        place = (job.intake_offset, job.intake_offset)
        take_in(session, job_id, self.claim.fence, records, place, self._describe)

    def _drop_pruned(self, session: Session) -> None:
        """Rows of checkpoints that the run has removed meanwhile."""
        try:
            present = {int(name) for name in os.listdir(self.folder / "checkpoints") if name.isdigit()}
        except OSError:
            return
        gone = Checkpoint.update.not_in(present)
        session.execute(delete(Checkpoint).where(Checkpoint.job_id == self.claim.job_id, gone))

    def _describe(self, record: Record) -> list[VideoFacts]:
        return describe_videos(self.folder, self.relative, record)


def describe_videos(run: Path, relative: str, record: Record) -> list[VideoFacts]:
    """What is known of the videos of a `samples` event: prompt, seed, noise and scores from their scores-SPLIT.json."""
    found = []
    documents: dict[Path, list[Mapping[str, Any]]] = {}
    for file in record.data.get("files", ()):
        path = run / str(file)
        if path.parent not in documents:
            documents[path.parent] = _score_documents(path.parent)
        update = record.update
        side = None if update is None else "after" if update else "before"
        known = next((facts for one in documents[path.parent] if (facts := _facts(one, path.stem))), {})
        found.append(VideoFacts(f"{relative}/{file}", _size(path), update, side, **known))
    return found


def _score_documents(folder: Path) -> list[Mapping[str, Any]]:
    """The score files of an update, newest first: the one that was just written describes the videos just told of."""
    found: list[Mapping[str, Any]] = []
    for file in sorted(folder.glob("scores-*.json"), key=_changed, reverse=True):
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(document, dict):
            found.append(document)
    return found


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _facts(document: Mapping[str, Any], stem: str) -> dict[str, Any]:
    """Prompt, seed, noise and scores of the video with this name, PROMPT_ID-SEED; empty if it is not in here."""
    seed = document.get("seed")
    prompts = document.get("prompts", [])
    row = next((row for row, prompt in enumerate(prompts) if f"{prompt['id']}-{seed}" == stem), None)
    if row is None:
        return {}
    scores = {name: float(values[row]) for name, values in document.get("rewards", {}).items() if row < len(values)}
    prompt = prompts[row]
    text = str(prompt["text"])[:4000]
    noise = document.get("noise", [])  # runs of older versions did not write it down
    facts = {"prompt_id": str(prompt["id"])[:200], "prompt": text, "seed": seed, "scores": scores}
    return {**facts, "noise": int(noise[row]) if row < len(noise) else None}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def last_ending(file: Path, events_from: int) -> Record | None:
    """How an attempt said it ended: the last `finished` or `failed` of its own part of the log; None if it did not."""
    try:
        with file.open("rb") as log:
            size = os.fstat(log.fileno()).st_size
            start = max(events_from if events_from <= size else 0, size - _LAST_BYTES)
            log.seek(start)
            records = parse_records(log.read())
    except OSError:
        return None
    # A later `resumed` or `run_started` would be another attempt's beginning, after which nothing was said yet.
    for record in reversed(records):
        if record.type in ENDINGS:
            return record
        if record.type in ("resumed", "run_started"):
            return None
    return None
