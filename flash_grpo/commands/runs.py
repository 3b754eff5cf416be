"""Commands about runs: train, resume, control, evaluate, export."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flash_grpo.commands.base import (
    FAILED,
    INTERRUPTED,
    PAUSED,
    Assignments,
    Report,
    RunFolder,
    complain,
    console,
    first_line,
    log_of,
    speaks,
    working,
)
from flash_grpo.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from flash_grpo.config import RunConfig
    from flash_grpo.events import Subscriber


def train(
    preset: Annotated[
        str | None, typer.Option("--preset", metavar="NAME", help="Preset to start from; see `presets`.")
    ] = None,
    config_file: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Configuration to train, as in RUN/config.yaml.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="DIR", help="New run folder [default: runs/NAME-TIME].")
    ] = None,
    assignments: Assignments = None,
) -> None:
    """Train a run: videos before, training, videos after, and the figures that compare them."""
    from flash_grpo.config import parse_assignments

    config, name = _configuration(preset, config_file, parse_assignments(assignments or []))
    folder = output or Path("runs") / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    from flash_grpo.trainer import train as start

    what = f"preset {preset}" if preset else str(config_file)
    console().print(f"Training {what} into {folder}", markup=False, soft_wrap=True)
    _follow(folder, lambda show: start(config, folder, preset=preset, subscribers=[show]))


def _configuration(preset: str | None, file: Path | None, overrides: Mapping[str, Any]) -> tuple[RunConfig, str]:
    """What a run trains, and a name for its folder."""
    from flash_grpo.config import build_config, load_config, with_overrides

    if preset is not None and file is None:
        return build_config(preset, overrides), preset
    if file is not None and preset is None:
        return with_overrides(load_config(file), overrides), file.stem
    came = "neither" if file is None else "both"
    raise InputError(f"expected either --preset NAME or --config FILE, got {came}; give exactly one of them")


def resume(
    run: RunFolder,
    assignments: Assignments = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="Take the run from an owner that may still be alive.")
    ] = False,
) -> None:
    """Go on with a run that was paused, interrupted or killed, from its newest whole checkpoint."""
    from flash_grpo.config import parse_assignments
    from flash_grpo.trainer import resume as go_on

    overrides = parse_assignments(assignments or [])
    console().print(f"Going on with {run}", markup=False, soft_wrap=True)
    _follow(run, lambda show: go_on(run, overrides, [show], take_over))


def _follow(folder: Path, work: Callable[[Subscriber], Mapping[str, Any]]) -> None:
    """Show a run while `work` trains it, and its result; exit codes as the module says."""
    from flash_grpo.console import watch_run
    from flash_grpo.control import Interrupted

    screen = console()
    try:
        with watch_run(screen) as show:
            summary = work(show)
    except Interrupted as stop:
        complain(f"the run was {stop.status}; go on with: flash-grpo resume {folder}")
        raise typer.Exit(PAUSED if stop.status == "paused" else INTERRUPTED) from None
    except InputError:
        raise
    except Exception as error:
        from flash_grpo.ownership import OwnershipLost

        if isinstance(error, OwnershipLost):
            complain(str(error))
        else:
            details = log_of(folder) if speaks() else ""
            complain(f"the run failed: {first_line(error)}{details}")
        raise typer.Exit(FAILED) from None
    _show_summary(screen, summary, folder)


def control(
    run: RunFolder,
    request: Annotated[str, typer.Argument(metavar="save|sample|pause|stop", help="What the run shall do.")],
) -> None:
    """Ask a running run to save a checkpoint, render samples, pause or stop; it does so after the present update."""
    from flash_grpo.control import ask

    ask(run, request)
    print(f"asked {run} to {request}")


def _show_summary(screen: Console, summary: Mapping[str, Any], folder: Path) -> None:
    from flash_grpo.report import final_table, footer_lines

    screen.print()
    screen.print(final_table(summary))
    for line in footer_lines(summary, folder):
        screen.print(line, markup=False, soft_wrap=True)


def evaluate(run: RunFolder, report: Report = None) -> None:
    """Repeat a run's held-out comparison with its best checkpoint."""
    with working(report) as task:
        if not (run / "config.yaml").is_file():
            raise InputError(f"{run} is no run folder: it holds no config.yaml; give a folder that `train` wrote")
        with task.at_once():
            from flash_grpo.attempt import evaluate_run
        summary = evaluate_run(run, task)
    _show_summary(console(), summary, run)


def export(
    run: RunFolder,
    format_: Annotated[
        str, typer.Option("--format", metavar="adapter|peft|merged|native", help="What to write.")
    ] = "adapter",
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", metavar="best|latest|NUMBER", help="Which checkpoint.")
    ] = "best",
    output: Annotated[
        Path | None, typer.Option("--output", metavar="DIR", help="Folder to write [default: RUN/export/FORMAT].")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="What the run is called; else as its folder.")
    ] = None,
    report: Report = None,
) -> None:
    """Export what was trained: one file for ComfyUI and diffusers, a peft folder, or whole models for either."""
    with working(report) as task:
        with task.at_once():
            from flash_grpo.export import export_result, export_run
            from flash_grpo.model_card import README
        task.progress("export", 0, 1)
        folder = export_run(run, format_, checkpoint, output, name)
        task.progress("export", 1, 1)
        task.result, task.message = export_result(folder), f"Exported as {format_}."
    print(f"exported to {folder}; {folder / README} says how to load it")
