"""The checkpoints a node may name: files of this machine, and what a configured studio has exported."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

import comfy.utils
from comfy.model_management import throw_exception_if_processing_interrupted

from ..logic.problem import Problem
from ..logic.studio import Studio, job_of
from ..logic.studio_settings import needed, read_access
from . import places

NONE = "no checkpoint found: put one into models/loras"
PATIENCE = 0.3
"""Seconds a page may wait for the studio's list; a slower one shows at the next refresh."""
KEPT = 10.0
"""Seconds after which the studio is asked again."""


class _StudioList:
    """What the studio has exported, asked in the background, so that a studio that is away delays nobody."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._asked = -KEPT
        self._worker: threading.Thread | None = None
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """The names as far as they are known."""
        with self._lock:
            if (self._worker is None or not self._worker.is_alive()) and time.monotonic() - self._asked > KEPT:
                self._worker = threading.Thread(target=self._ask, name="flash-grpo-studio-list", daemon=True)
                self._worker.start()
            worker = self._worker
        if worker is not None:
            worker.join(PATIENCE)
        return self._names

    def renew(self) -> list[str] | None:
        """Ask the studio now; None if none is configured, Problem if it does not answer."""
        found: list[str] | None = []
        try:
            access = read_access(places.private_folder())
            found = [export.name for export in Studio(access, 5).exports()] if access else None
            return found
        finally:
            self._names, self._asked = found or [], time.monotonic()

    def _ask(self) -> None:
        try:
            self.renew()
        except Problem as problem:
            logging.warning("Flash-GRPO: %s", problem)


_studio = _StudioList()


def names() -> list[str]:
    """Every checkpoint there is to choose."""
    return [*places.adapters(), *_studio.names()] or [NONE]


def look() -> str:
    """Ask the studio again; a sentence on what there is to choose. Problem if the studio does not answer."""
    exported = _studio.renew()
    here = f"{len(places.adapters())} checkpoints in models/loras"
    if exported is None:
        return f"{here}; no studio is configured"
    return f"{here}, {len(exported)} exported by the studio"


def path(name: str) -> Path:
    """The file of a checkpoint, downloaded where it is the studio's; Problem if it is gone."""
    if name == NONE:
        raise Problem("no checkpoint is chosen; put an adapter into ComfyUI's models/loras and press R")
    job = job_of(name)
    if job is None:
        return places.adapter_path(name)
    bar = comfy.utils.ProgressBar(100)

    def told(done: int, total: int) -> None:
        throw_exception_if_processing_interrupted()
        bar.update_absolute(100 * done // max(total, 1), 100)

    return Studio(needed(places.private_folder())).fetch_adapter(job, places.downloads(), told)


def fingerprint(name: str) -> str:
    """Changes when the file behind a name does, so that a node that used it runs again."""
    if job_of(name) is not None:
        return name  # an export never changes
    try:
        about = places.adapter_path(name).stat()
    except (Problem, OSError):
        return "gone"
    return f"{name}:{about.st_size}:{about.st_mtime_ns}"
