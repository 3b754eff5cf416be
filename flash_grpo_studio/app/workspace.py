"""The workspace folder: what lies where in it, that all machines share the same one, and that no path leaves it."""

from __future__ import annotations

import secrets
import shutil
from pathlib import Path

from flash_grpo.errors import InputError
from flash_grpo.files import write_atomic

TOKEN = "workspace-token"


class Workspace:
    """One folder with all files of a studio. Rows of the store name files by paths relative to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()

    def prepare(self) -> str:
        """Make the folder where it is missing; returns its token, by which machines see that they share it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for name in ("jobs", "uploads", "models", "trash"):
                (self.folder / name).mkdir(exist_ok=True)
            if not (self.folder / TOKEN).exists():
                write_atomic(self.folder / TOKEN, secrets.token_hex(16))
            return (self.folder / TOKEN).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise InputError(
                f"cannot use the workspace {self.folder}: {error.strerror}; choose another with --workspace"
            ) from error

    def inside(self, relative: str) -> Path:
        """The file of a relative path; InputError if it would leave the workspace, also through a link."""
        if "\0" in relative:
            raise InputError(f"the path {relative!r} is none of the workspace: it holds a NUL")
        path = (self.folder / relative).resolve()
        if not path.is_relative_to(self.folder):
            raise InputError(f"the path {relative!r} leaves the workspace")
        return path

    def relative(self, path: Path) -> str:
        """A file of the workspace as the store names it."""
        return self.inside(str(path)).relative_to(self.folder).as_posix()

    def job(self, job_id: str) -> Path:
        """The folder of a job: config.yaml, prompts, attempts/N/output.txt, and run/ or report/ with what it made."""
        return self.folder / "jobs" / job_id

    def run(self, job_id: str) -> Path:
        """The run folder of an alignment."""
        return self.job(job_id) / "run"

    def report(self, job_id: str) -> Path:
        """Where a job that is no alignment writes events.jsonl and result.json."""
        return self.job(job_id) / "report"

    def free_bytes(self) -> int:
        """Room left on the workspace's disk."""
        return shutil.disk_usage(self.folder).free
