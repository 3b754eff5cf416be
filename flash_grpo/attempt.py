"""One attempt at a run: takes the folder, opens log and events, and sees that however it ends, they say so."""

from __future__ import annotations

import json
import logging
import platform
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from flash_grpo.checkpoint import Restored, clear_leftovers, load_weights, put_weights, read_pointer
from flash_grpo.config import RunConfig, dump_config, load_config
from flash_grpo.control import Requests, interruption_behind, listening
from flash_grpo.distributed import Runtime
from flash_grpo.errors import InputError
from flash_grpo.events import EventLog, Failed, Finished, Resumed, RunStarted, Subscriber, Warning_
from flash_grpo.files import disk_problem, write_atomic
from flash_grpo.ownership import Ownership, OwnershipLost, take_ownership
from flash_grpo.resume import preset_of, restore_point
from flash_grpo.run import Run, read_summary, summary_content
from flash_grpo.task import Task, reporting
from flash_grpo.training_state import Course

PACKAGES = ("torch", "diffusers", "transformers", "accelerate", "peft", "safetensors")


@contextmanager
def open_run(
    config: RunConfig,
    folder: Path,
    preset: str | None,
    subscribers: Sequence[Subscriber] = (),
    resume: bool = False,
    take_over: bool = False,
) -> Iterator[Run]:
    """Set a run up in a fresh folder, or in its own to resume it, and see that events and summary say how it ends.

    Raises InputError for what cannot be used, OwnershipLost if another process took the run over meanwhile,
    RuntimeError with one sentence when the disk takes no more.
    """
    try:
        with _opened(config, folder, preset, subscribers, resume, take_over) as run:
            yield run
    except Exception as error:
        if disk_problem(error):
            raise RuntimeError(_sentence(error, folder)) from error
        raise


@contextmanager
def _opened(
    config: RunConfig,
    folder: Path,
    preset: str | None,
    subscribers: Sequence[Subscriber],
    resume: bool,
    take_over: bool,
) -> Iterator[Run]:
    with ExitStack() as stack:
        runtime = stack.enter_context(Runtime(config, folder))
        folder = Path(runtime.broadcast(str(folder)))  # a default name holds the time, and clocks differ
        if config.threads:
            torch.set_num_threads(config.threads)
        requests = Requests(folder)
        ownership = _occupy(stack, folder, resume, take_over) if runtime.is_main else None
        runtime.barrier()
        stack.enter_context(listening(requests))
        stack.enter_context(_log_to(folder / ("log.txt" if runtime.is_main else f"log-{runtime.rank}.txt")))
        run: Run | None = None
        restored, notes = _restored(config, folder) if resume else (None, [])
        log = _speak(stack, folder, ownership, subscribers) if ownership else None
        try:
            if log:
                preset = preset_of(folder) if resume else preset
                write_atomic(folder / "config.yaml", dump_config(config))
                _reopen(folder)
                log.emit(RunStarted(config.model_dump(), _versions(), preset))
                for note in (Resumed(restored.update if restored else 0), *notes) if resume else ():
                    log.emit(note)
                requests.clear()
                runtime.start_trackers(config)
            with requests.at_once():
                run = Run(config, folder, preset, runtime, requests, log, ownership, restored)
            yield run
        except OwnershipLost:
            raise
        except Exception as error:
            if stop := interruption_behind(error):
                event = Finished(stop.status, f"The run was {stop.status}; its last checkpoint is kept.")
                _last_words(folder, log, event, _summary_so_far(run, config, preset, stop.status))
                raise stop from None
            logging.getLogger(__name__).error("%s", traceback.format_exc())
            message = _sentence(error, folder)
            summary = {**_summary_so_far(run, config, preset, "failed"), "error": message}
            _last_words(folder, log, Failed(message), summary)
            raise


def _reopen(folder: Path) -> None:
    """A run that is trained further is no longer done, also if this attempt never comes to an end."""
    known = read_summary(folder)
    if known is not None and known["status"] != "interrupted":
        write_atomic(folder / "summary.json", json.dumps({**known, "status": "interrupted"}, indent=1))


def _occupy(stack: ExitStack, folder: Path, resume: bool, take_over: bool) -> Ownership:
    if not resume:
        claim_folder(folder)
    ownership = take_ownership(folder, take_over)
    stack.callback(ownership.release)
    clear_leftovers(folder)
    return ownership


def _speak(stack: ExitStack, folder: Path, ownership: Ownership, subscribers: Sequence[Subscriber]) -> EventLog:
    log = stack.enter_context(EventLog(folder, ownership.token, ownership.check))
    for subscriber in subscribers:
        log.subscribe(subscriber)
    return log


def _restored(config: RunConfig, folder: Path) -> tuple[Restored | None, list[Warning_]]:
    restored, damaged, changed = restore_point(folder, config)
    where = f"update {restored.update}" if restored else "the start"
    notes = [Warning_(f"{problem}; going on from {where}", "damaged_checkpoint") for problem in damaged]
    if changed:
        listed = "; ".join(str(change) for change in changed)
        notes.append(Warning_(f"going on under a changed configuration: {listed}", "changed_config"))
    return restored, notes


def _summary_so_far(run: Run | None, config: RunConfig, preset: str | None, status: str) -> dict[str, Any]:
    """Of a run that ends early, perhaps while it was set up."""
    return summary_content(config, preset, status, run.spent() if run else Course())


def _last_words(folder: Path, log: EventLog | None, event: Finished | Failed, summary: Mapping[str, Any]) -> None:
    """Say how the run ended; a disk that takes no more must not hide the error that is on its way out."""
    if log is None:
        return
    try:
        log.emit(event)
        write_atomic(folder / "summary.json", json.dumps(summary, indent=1))
    except OSError as error:
        logging.getLogger(__name__).error("could not write the run's last words: %s", error)


def _sentence(error: Exception, folder: Path) -> str:
    if problem := disk_problem(error):
        return (
            f"cannot write into the run folder {folder}: {problem}; free some space and go on with: flash-grpo resume "
            f"{folder}"
        )
    return str(error) or type(error).__name__


def evaluate_run(folder: Path, task: Task | None = None) -> dict[str, Any]:
    """Repeat the held-out comparison of a run's best checkpoint with its base model.

    Rewrites videos, contact sheet, chart and the comparison in the summary; what the training cost stays as it was.
    `task` is told the progress in videos and the comparison, and may end the work.
    """
    if not (folder / "config.yaml").is_file():
        raise InputError(f"{folder} is no run folder: it holds no config.yaml; name the folder that train wrote")
    checkpoint = read_pointer(folder, "best") or read_pointer(folder, "latest")
    if checkpoint is None:
        raise InputError(f"the run {folder} has no checkpoint yet; train it first")
    config = load_config(folder / "config.yaml")
    with ExitStack() as stack:
        task = task or stack.enter_context(reporting())
        runtime = stack.enter_context(Runtime(config, folder))
        if config.threads:
            torch.set_num_threads(config.threads)
        ownership = _occupy(stack, folder, resume=True, take_over=False) if runtime.is_main else None
        runtime.barrier()
        task.progress("setup", 0, 1)
        with task.at_once():
            run = Run(config, folder, preset_of(folder), runtime, task.requests, ownership=ownership)
            weights = load_weights(checkpoint)  # a damaged one is refused before anything is written
        summary = _compare_again(run, task, weights, int(checkpoint.name))
        if runtime.is_main:
            write_atomic(folder / "summary.json", json.dumps(summary, indent=1))
        return summary


def _compare_again(run: Run, task: Task, weights: Mapping[str, torch.Tensor], update: int) -> dict[str, Any]:
    """Evaluate the base model and a checkpoint anew; returns the run's summary with their comparison."""
    total, world = len(run.heldout.prompts), run.runtime.world

    def told(before: int) -> Callable[[int], None]:
        return lambda videos: task.progress("evaluate", before + min(videos * world, total), 2 * total)

    task.progress("evaluate", 0, 2 * total)
    before = run.evaluate(run.heldout, run.config.videos_saved, told(0))  # a fresh adapter changes nothing
    run.keep_evaluation(0, run.heldout, before)
    put_weights(dict(run.model.trainable()), weights)
    after = run.evaluate(run.heldout, run.config.videos_saved, told(total))
    run.keep_evaluation(update, run.heldout, after)
    compared = run.compared(update, before.scores, after.scores)
    task.result = {"run": str(run.folder.resolve()), "update": update, "videos": 2 * total, **compared}
    task.message = f"Compared update {update} with the base model on {total} prompts."
    # A run that was killed has left no summary.
    known = read_summary(run.folder) or run.summary("interrupted", updates=update)
    return {**known, **compared}


SET_UP_FILES = {"config.yaml", "events.jsonl", "log.txt", "summary.json", "control", "lock"}


def claim_folder(folder: Path) -> None:
    """Make sure a run folder is new and can be written; InputError otherwise.

    What a run left that was refused while it was set up is no obstacle, and is cleared away.
    """
    found = {"a file"} if folder.exists() else set()
    if folder.is_dir():
        found = {entry.name for entry in folder.iterdir() if not entry.match("log-*.txt")}  # of processes beside
    ours = not found or (found <= SET_UP_FILES and bool(found & {"events.jsonl", "lock"}))
    if not ours:
        if (folder / "config.yaml").is_file():
            raise InputError(
                f"the output folder {folder} holds another run; choose another with --output, "
                f"or go on with that one: flash-grpo resume {folder}"
            )
        raise InputError(f"the output folder {folder} is not empty; choose another with --output")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in SET_UP_FILES - {"control", "lock"}:
            (folder / name).unlink(missing_ok=True)
        (folder / "control").mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot write to the output folder {folder}: {error.strerror}; choose another") from error


def _versions() -> Mapping[str, str]:
    versions = {name: metadata.version(name) for name in PACKAGES}
    return {"python": platform.python_version(), **versions}


@contextmanager
def _log_to(path: Path) -> Iterator[logging.Logger]:
    """Within this context all warnings and errors of the process are also written to a file."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.handleError = lambda record: None  # type: ignore[method-assign]  # a full disk shall not fill the screen
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield logging.getLogger(__name__)
    finally:
        root.removeHandler(handler)
        with suppress(OSError):
            handler.close()
