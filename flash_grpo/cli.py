"""The command line: thin, and quick to start because nothing heavy is imported before it is needed."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from flash_grpo.errors import InputError, unknown_name
from flash_grpo.plugins import CommandGroup

if TYPE_CHECKING:
    from rich.console import Console

    from flash_grpo.events import Subscriber

DONE, FAILED, BAD_INPUT, PAUSED, INTERRUPTED = 0, 1, 2, 75, 130
NOISE_LEVELS = ("flash", "flow", "dance", "cps")
SCHEDULERS = ("unipc", "euler")

app = typer.Typer(
    name="flash-grpo",
    cls=CommandGroup,
    help="Align video diffusion models with your own rewards by Flash-GRPO.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one configuration key; may be repeated."),
]


def main() -> NoReturn:
    """Entry point: runs the command and turns what went wrong into one sentence and an exit code."""
    _quiet_libraries()
    code: int | str | None = DONE
    try:
        app()
    except SystemExit as stop:
        code = stop.code
    except InputError as error:
        _complain(str(error))
        code = BAD_INPUT
    except KeyboardInterrupt:
        _complain("interrupted")
        code = INTERRUPTED
    except Exception as error:
        _complain(f"{_first_line(error)}{_details(traceback.format_exc())}")
        code = FAILED
    _end(code)


def _details(trace: str) -> str:
    """Keep a traceback in a file of its own, and say where; nothing where no file can be written."""
    try:
        handle, name = tempfile.mkstemp(prefix="flash-grpo-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(trace)
    except OSError:
        return ""
    return f"; details are in {name}"


def _end(code: int | str | None) -> NoReturn:
    """End the process, also one that holds a thread in which a reward hangs: leaving that the usual way may crash."""
    scoring = sys.modules.get("flash_grpo.rewards.scoring")
    if scoring is not None and scoring.hanging():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else FAILED if code else DONE)
    sys.exit(code)


def _quiet_libraries() -> None:
    """Settings that must precede the heavy imports; what the user has set stays."""
    for name, value in {
        "OMP_WAIT_POLICY": "PASSIVE",  # on few cores, threads that spin while waiting slow down those that work
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFORMERS_VERBOSITY": "error",
        "DIFFUSERS_VERBOSITY": "error",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # no stack traces when another process of the run ends
    }.items():
        os.environ.setdefault(name, value)


def _speaks() -> bool:
    """Whether this process has the terminal: of several that train together, only the main one."""
    return os.environ.get("RANK", "0") == "0"


def _complain(sentence: str) -> None:
    if _speaks():
        print(f"flash-grpo: {sentence}", file=sys.stderr)
    else:
        time.sleep(1)  # a launcher ends all processes with the first that exits: let the main one speak


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _console() -> Console:
    from rich.console import Console

    # Not a terminal: no wrapping at 80 columns, so that a table in a log or a pipe stays whole.
    width = None if sys.stdout.isatty() else 160
    return Console(highlight=False, width=width, quiet=not _speaks())


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(version("flash-grpo-studio"))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    del version


@app.command()
def train(
    preset: Annotated[str, typer.Option("--preset", metavar="NAME", help="Preset to start from; see `presets`.")],
    output: Annotated[
        Path | None, typer.Option("--output", metavar="DIR", help="New run folder [default: runs/PRESET-TIME].")
    ] = None,
    assignments: Assignments = None,
) -> None:
    """Train a run: videos before, training, videos after, and the figures that compare them."""
    from flash_grpo.config import build_config, parse_assignments

    config = build_config(preset, parse_assignments(assignments or []))
    folder = output or Path("runs") / f"{preset}-{time.strftime('%Y%m%d-%H%M%S')}"
    from flash_grpo.trainer import train as start

    _console().print(f"Training preset {preset} into {folder}", markup=False, soft_wrap=True)
    _follow(folder, lambda show: start(config, folder, preset=preset, subscribers=[show]))


@app.command()
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
    _console().print(f"Going on with {run}", markup=False, soft_wrap=True)
    _follow(run, lambda show: go_on(run, overrides, [show], take_over))


def _follow(folder: Path, work: Callable[[Subscriber], Mapping[str, Any]]) -> None:
    """Show a run while `work` trains it, and its result; exit codes as the module says."""
    from flash_grpo.console import watch_run
    from flash_grpo.control import Interrupted

    console = _console()
    try:
        with watch_run(console) as show:
            summary = work(show)
    except Interrupted as stop:
        _complain(f"the run was {stop.status}; go on with: flash-grpo resume {folder}")
        raise typer.Exit(PAUSED if stop.status == "paused" else INTERRUPTED) from None
    except InputError:
        raise
    except Exception as error:
        from flash_grpo.ownership import OwnershipLost

        if isinstance(error, OwnershipLost):
            _complain(str(error))
        else:
            details = _log_of(folder) if _speaks() else ""
            _complain(f"the run failed: {_first_line(error)}{details}")
        raise typer.Exit(FAILED) from None
    _show_summary(console, summary, folder)


@app.command()
def control(
    run: RunFolder,
    request: Annotated[str, typer.Argument(metavar="save|sample|pause|stop", help="What the run shall do.")],
) -> None:
    """Ask a running run to save a checkpoint, render samples, pause or stop; it does so after the present update."""
    from flash_grpo.control import ask

    ask(run, request)
    print(f"asked {run} to {request}")


def _log_of(folder: Path) -> str:
    """Where the traceback is: the run's log, written now if the run could not, or a file of its own."""
    path = folder / "log.txt"
    trace = traceback.format_exc()
    try:
        if not path.exists() or trace.rstrip().rsplit("\n", 1)[-1] not in path.read_text(encoding="utf-8"):
            folder.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(trace)
    except OSError:
        return _details(trace)
    return f"; details are in {path}"


def _show_summary(console: Console, summary: Mapping[str, Any], folder: Path) -> None:
    from flash_grpo.report import final_table, footer_lines

    console.print()
    console.print(final_table(summary))
    for line in footer_lines(summary, folder):
        console.print(line, markup=False, soft_wrap=True)


@app.command()
def evaluate(run: RunFolder) -> None:
    """Repeat a run's held-out comparison with its best checkpoint."""
    if not (run / "config.yaml").is_file():
        raise InputError(f"{run} is no run folder: it holds no config.yaml; give a folder that `train` wrote")
    from flash_grpo.attempt import evaluate_run

    _show_summary(_console(), evaluate_run(run), run)


@app.command()
def doctor(
    preset: Annotated[
        str | None, typer.Option("--preset", metavar="NAME", help="Also try the first update of a run.")
    ] = None,
    assignments: Assignments = None,
    as_json: AsJson = False,
) -> None:
    """Check the machine and the installation, and with --preset a run before it is paid for; exits 1 on a refusal."""
    if assignments and preset is None:
        raise InputError("--set changes a run's configuration, and no run was named; add --preset NAME")
    from flash_grpo.config import build_config, parse_assignments

    config = build_config(preset, parse_assignments(assignments or [])) if preset else None
    from flash_grpo.checkup import check_up, findings_table

    findings = check_up(config, Path.cwd())
    if as_json:
        print(json.dumps({"findings": [finding.plain() for finding in findings]}, indent=1, ensure_ascii=False))
    else:
        _console().print(findings_table(findings))
    if any(finding.level == "refusal" for finding in findings):
        raise typer.Exit(FAILED)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    format_: Annotated[str, typer.Option("--format", metavar="adapter|peft|merged", help="What to write.")] = "adapter",
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", metavar="best|latest|NUMBER", help="Which checkpoint.")
    ] = "best",
    output: Annotated[
        Path | None, typer.Option("--output", metavar="DIR", help="Folder to write [default: RUN/export/FORMAT].")
    ] = None,
) -> None:
    """Export what was trained: one file for ComfyUI and diffusers, a peft folder, or a whole pipeline."""
    from flash_grpo.export import HOW_TO, export_run

    folder = export_run(run, format_, checkpoint, output)
    print(f"exported to {folder}; {folder / HOW_TO} says how to load it")


@app.command()
def plan(
    preset: Annotated[str, typer.Option("--preset", metavar="NAME", help="Preset to plan; see `presets`.")],
    assignments: Assignments = None,
    devices: Annotated[int, typer.Option("--devices", metavar="N", help="Processes, each on a device.")] = 1,
    memory: Annotated[float | None, typer.Option("--memory", metavar="GB", help="Memory of a device.")] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="NAME", help="Take memory and assumed speed of a known GPU, as H100.")
    ] = None,
    speed: Annotated[
        str | None, typer.Option("--speed", metavar="TFLOPS|measure", help="Speed reached, or time this machine.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Plan a run without its weights: cost, memory, disk and time, and what to change where it does not fit."""
    from flash_grpo.config import build_config, parse_assignments
    from flash_grpo.plan import plain, plan_for
    from flash_grpo.planning.advice import advise

    planned = plan_for(build_config(preset, parse_assignments(assignments or [])), devices, memory, gpu, speed)
    advice = advise(planned)
    if as_json:
        print(json.dumps({**plain(planned), "advice": advice.plain()}, indent=1))
        return
    from flash_grpo.planning.report import show_plan

    show_plan(_console(), planned, advice)


@app.command()
def presets(as_json: AsJson = False) -> None:
    """List the presets."""
    from flash_grpo.config import preset_config
    from flash_grpo.config import presets as all_presets

    entries = [
        {
            "name": name,
            "description": preset["description"],
            "verified": preset["verified"],
            "model": preset_config(name)["model"],
            "config": preset_config(name),
        }
        for name, preset in all_presets().items()
    ]
    _list("Presets", entries, ("name", "model", "description"), as_json)


@app.command()
def models(as_json: AsJson = False) -> None:
    """List the models that are known to work, and those whose weights were not run here."""
    from importlib import resources

    import yaml

    cards = resources.files("flash_grpo") / "models" / "cards"
    files = [file for file in cards.iterdir() if file.name.endswith(".yaml")]
    entries = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]
    _list("Models", entries, ("name", "parameters", "source", "licence", "description"), as_json)


@app.command()
def rewards(as_json: AsJson = False) -> None:
    """List the rewards and what each measures."""
    import dataclasses

    from flash_grpo.rewards.registry import available

    entries = [dataclasses.asdict(card) for card in available().values()]
    for entry in entries:
        entry["status"] = "" if entry["available"] else "comes later"
    _list("Rewards", entries, ("name", "badge", "measures", "status"), as_json)


def _list(title: str, entries: Sequence[Mapping[str, Any]], columns: Iterable[str], as_json: bool) -> None:
    entries = sorted(entries, key=lambda entry: str(entry["name"]))
    if as_json:
        print(json.dumps(entries, indent=1, ensure_ascii=False))
        return
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", show_lines=True)
    for column in columns:
        table.add_column(column, no_wrap=column == "name", overflow="fold")
    for entry in entries:
        cells = [str(entry[column]) for column in columns]
        if not entry["verified"]:
            cells[0] += " (unverified)"
        table.add_row(*cells)
    _console().print(table, markup=False)


@app.command()
def config(
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON schema of the configuration.")] = False,
    preset: Annotated[str, typer.Option("--preset", metavar="NAME", help="Preset to print.")] = "pocket",
    assignments: Assignments = None,
) -> None:
    """Print the configuration of a preset as YAML, or the schema of all configurations."""
    from flash_grpo.config import RunConfig, build_config, dump_config, parse_assignments

    if schema:
        print(json.dumps(RunConfig.model_json_schema(), indent=1))
    else:
        print(dump_config(build_config(preset, parse_assignments(assignments or []))), end="")


@app.command()
def schedule(
    steps: Annotated[int, typer.Option("--steps", metavar="N", help="Denoising steps.")],
    shift: Annotated[float, typer.Option("--shift", metavar="S", help="Flow shift.")],
    noise_level: Annotated[str, typer.Option("--noise-level", metavar="|".join(NOISE_LEVELS), help="Noise rule.")],
    scheduler: Annotated[str, typer.Option("--scheduler", metavar="|".join(SCHEDULERS), help="Sigma grid.")] = "unipc",
    eta: Annotated[
        float | None, typer.Option("--eta", metavar="E", help="Strength of the noise rule [default: the rule's own].")
    ] = None,
    candidates: Annotated[
        str | None,
        typer.Option("--candidates", metavar="FIRST..LAST", help="Steps that may branch [default: the first half]."),
    ] = None,
    as_json: AsJson = False,
    plot: Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Also draw it as a PNG.")] = None,
) -> None:
    """Show a schedule: sigma, noise level, gradient scale lambda and rectification weight of every step."""
    if scheduler not in SCHEDULERS:
        raise unknown_name("scheduler", scheduler, SCHEDULERS)
    if noise_level not in NOISE_LEVELS:
        raise unknown_name("noise level", noise_level, NOISE_LEVELS)
    chosen = parse_candidates(candidates, steps) if candidates is not None else None
    from flash_grpo.schedule import describe_schedule

    described = describe_schedule(scheduler, steps, shift, noise_level, eta, chosen)  # type: ignore[arg-type]
    rows = [
        {
            "index": step.index,
            "timestep": step.timestep,
            "sigma": step.sigma,
            "noise_level": step.noise_level,
            "lambda": step.lambda_,
            "inverse_lambda": step.inverse_lambda,
            "weight": step.weight,
        }
        for step in described
    ]
    if plot is not None:
        from flash_grpo.report import schedule_chart

        schedule_chart(described, plot)
    if as_json:
        print(json.dumps({"steps": rows}, indent=1, allow_nan=False))
    else:
        _print_rows(rows)
        if plot is not None:
            print(f"chart: {plot}")


def _print_rows(rows: Sequence[Mapping[str, float | None]]) -> None:
    from rich.table import Table

    table = Table()
    for name in rows[0]:
        table.add_column(name.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*("-" if v is None else f"{v:d}" if isinstance(v, int) else f"{v:.4f}" for v in row.values()))
    _console().print(table)


def parse_candidates(text: str, steps: int) -> list[int]:
    """Read `first..last` or a single step; InputError unless 0 <= first <= last < steps."""
    first, _, last = text.partition("..")
    try:
        low, high = int(first), int(last or first)
    except ValueError:
        raise InputError(f"expected candidates as first..last, for example 0..9, got {text!r}") from None
    if not 0 <= low <= high < steps:
        raise InputError(f"expected candidates within 0..{steps - 1} for {steps} steps, got {text!r}")
    return list(range(low, high + 1))


if __name__ == "__main__":
    main()
