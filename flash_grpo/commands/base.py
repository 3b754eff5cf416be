"""What all commands share: exit codes, options, the terminal, and how a process that is no training reports."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flash_grpo.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from flash_grpo.events import Subscriber
    from flash_grpo.task import Task

DONE, FAILED, BAD_INPUT, PAUSED, INTERRUPTED = 0, 1, 2, 75, 130

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one configuration key; may be repeated."),
]
Report = Annotated[
    Path | None,
    typer.Option("--report", metavar="DIR", help="Also report to programs: DIR/events.jsonl and DIR/result.json."),
]


def speaks() -> bool:
    """Whether this process has the terminal: of several that work together, only the main one."""
    return os.environ.get("RANK", "0") == "0"


def complain(sentence: str) -> None:
    """One sentence on standard error."""
    if speaks():
        print(f"flash-grpo: {sentence}", file=sys.stderr)
    else:
        time.sleep(1)  # a launcher ends all processes with the first that exits: let the main one speak


def first_line(error: Exception) -> str:
    """What an error says, without what follows."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def details(trace: str) -> str:
    """Keep a traceback in a file of its own, and say where; nothing where no file can be written."""
    try:
        handle, name = tempfile.mkstemp(prefix="flash-grpo-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(trace)
    except OSError:
        return ""
    return f"; details are in {name}"


def log_of(folder: Path) -> str:
    """Where the traceback is: the folder's log, written now if it is not there yet, or a file of its own."""
    path = folder / "log.txt"
    trace = traceback.format_exc()
    try:
        if not path.exists() or trace.rstrip().rsplit("\n", 1)[-1] not in path.read_text(encoding="utf-8"):
            folder.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(trace)
    except OSError:
        return details(trace)
    return f"; details are in {path}"


def console() -> Console:
    """Standard output, for tables."""
    from rich.console import Console

    # Not a terminal: no wrapping at 80 columns, so that a table in a log or a pipe stays whole.
    width = None if sys.stdout.isatty() else 160
    return Console(highlight=False, width=width, quiet=not speaks())


@contextmanager
def working(report: Path | None) -> Iterator[Task]:
    """Do a command's work as a task that reports, tell its progress on standard error, and end with its exit code.

    Heavy imports belong within, so that a signal during them ends the command cleanly too.
    """
    from flash_grpo.control import Interrupted
    from flash_grpo.task import reporting

    try:
        with reporting(report if speaks() else None, [_narrator()] if speaks() else []) as task:
            yield task
    except Interrupted:
        complain("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except (InputError, typer.Exit):
        raise
    except Exception as error:
        if report is None:
            raise
        complain(f"{first_line(error)}{log_of(report)}")
        raise typer.Exit(FAILED) from None


def _narrator(interval: float = 5.0) -> Subscriber:
    """A subscriber that prints a task's warnings, and its progress every few seconds."""
    from flash_grpo.console import time_left
    from flash_grpo.events import Event, Progress, Warning_

    printed = time.monotonic()

    def show(event: Event) -> None:
        nonlocal printed
        if isinstance(event, Warning_):
            print(f"warning: {event.message}", file=sys.stderr)
        elif isinstance(event, Progress) and event.updates and time.monotonic() - printed >= interval:
            printed = time.monotonic()
            left = time_left(event)
            share = f"{event.phase}: {100 * event.update // event.updates} %"
            print(f"{share}, {left}" if left else share, file=sys.stderr)

    return show
