"""Commands before a run: doctor, plan, schedule."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from flash_grpo.commands.base import FAILED, AsJson, Assignments, console
from flash_grpo.errors import InputError, unknown_name

NOISE_LEVELS = ("flash", "flow", "dance", "cps")
SCHEDULERS = ("unipc", "euler")


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
        console().print(findings_table(findings))
    if any(finding.level == "refusal" for finding in findings):
        raise typer.Exit(FAILED)


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

    show_plan(console(), planned, advice)


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
    console().print(table)


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
