"""A plan as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.table import Table

from flash_grpo.console import duration, span
from flash_grpo.plan import GB, Plan
from flash_grpo.planning.advice import Advice, Change
from flash_grpo.planning.architecture import Pipeline
from flash_grpo.planning.footprint import trained_parameters

PARTS_SHOWN = 4


def show_plan(console: Console, planned: Plan, advice: Advice) -> None:
    """Print memory by phase, what is spent by phase, disk, notes, and what to change if it does not fit."""
    console.print(_headline(planned), markup=False, soft_wrap=True)
    console.print(_memory_table(planned))
    console.print(_spending_table(planned))
    for line in _lines(planned):
        console.print(line, markup=False, soft_wrap=True)
    if planned.fits is False:
        for line in _advice_lines(planned, advice):
            console.print(line, markup=False, soft_wrap=True)


def _headline(planned: Plan) -> str:
    devices = "a CPU" if planned.kind == "cpu" else f"{planned.devices} GPU{'s' if planned.devices > 1 else ''}"
    peaks = planned.footprint.peaks()
    phase = max(peaks, key=lambda name: peaks[name])
    each = " each" if planned.devices > 1 else ""
    need = f"{_size(peaks[phase])}{each} at the peak, in {phase}"
    if planned.fits is None:
        return f"{planned.config.model} on {devices} needs {need}"
    verdict = "fits" if planned.fits else "does not fit"
    return f"{planned.config.model} on {devices} of {planned.memory_gb:g} GB {verdict}: it needs {need}"


def _size(number: float) -> str:
    return f"{number / GB:.1f} GB" if number >= 0.95 * GB else f"{number / 1e6:.0f} MB"


def _count(number: float) -> str:
    for limit, unit in ((1e9, "B"), (1e6, "M")):
        if number >= limit:
            return f"{number / limit:.3g} {unit}"
    return f"{number:,.0f}"


def _memory_table(planned: Plan) -> Table:
    needed = planned.footprint
    table = Table("phase", title="Memory of a device", title_justify="left", title_style="bold")
    table.add_column("peak", justify="right")
    if needed.host:
        table.add_column("beside it", justify="right")
    table.add_column("largest parts")
    for phase, parts in needed.phases.items():
        row = [phase, _size(needed.peak(phase))]
        if needed.host:
            row.append(_size(sum(needed.host[phase].values())))
        table.add_row(*row, _largest(parts))
    return table


def _largest(parts: Mapping[str, float]) -> str:
    ranked = sorted(parts.items(), key=lambda entry: -entry[1])
    return ", ".join(f"{name} {_size(value)}" for name, value in ranked[:PARTS_SHOWN] if value >= 5e5)


def _spending_table(planned: Plan) -> Table:
    table = Table("phase", title="Cost of the run", title_justify="left", title_style="bold")
    for column in ("NFE", "cost", "time"):
        table.add_column(column, justify="right")
    seconds = planned.duration.run if planned.duration else {}
    for phase in ("setup", "rollout", "decode", "reward", "replay", "evaluate"):
        spent = planned.spending.get(phase)
        figures = (f"{spent.nfe:,}", f"{spent.cost:,.0f}") if spent else ("", "")
        table.add_row(phase, *figures, duration(seconds[phase]) if phase in seconds else "")
    total = planned.total
    time = duration(planned.duration.total) if planned.duration else ""
    table.add_row("all", f"{total.nfe:,}", f"{total.cost:,.0f}", time, style="bold")
    return table


def _lines(planned: Plan) -> Iterator[str]:
    config, disk = planned.config, planned.disk
    yield _parameters(planned.pipeline, trained_parameters(config, planned.pipeline.denoiser))
    yield (
        f"an update: {config.prompts_per_update} prompts x {config.group_size} videos, "
        f"{(planned.spending['rollout'].cost + planned.spending['replay'].cost) / config.updates:,.0f} evaluations"
        + (f", {duration(planned.duration.per_update)}" if planned.duration else "")
    )
    yield f"disk: {_size(disk.most)} at most (a checkpoint {_size(disk.checkpoint)}, videos {_size(disk.videos)})"
    if planned.duration:
        yield f"time {span(*planned.duration.range)}; speed {planned.duration.speed.source}"
        if config.minutes is not None and planned.duration.total > config.minutes * 60:
            yield f"the run stops after {config.minutes:g} minutes, before its {config.updates} updates are done"
    else:
        yield "time is unknown without a speed: add --gpu NAME, --speed TFLOPS, or --speed measure"
    for note in planned.notes:
        yield f"note: {note}"


def _parameters(pipeline: Pipeline, trained: int) -> str:
    return (
        f"parameters: denoiser {_count(pipeline.denoiser.parameters())}, autoencoder "
        f"{_count(pipeline.autoencoder.parameters())}, text encoder {_count(pipeline.text_encoder.parameters())}; "
        f"{_count(trained)} train"
    )


def _advice_lines(planned: Plan, advice: Advice) -> Iterator[str]:
    yield ""
    yield "What to change, cheapest first:" if advice.changes else "No single change lowers the peak."
    for change in advice.changes:
        yield f"  {_told(change)}"
    if advice.combination:
        yield "The cheapest that fits:"
        yield f"  {_told(advice.combination)}"
        yield f"  {' '.join(f'--set {assignment}' for assignment in advice.combination.assignments())}"
    else:
        weights = planned.footprint.phases["step"].get("denoiser", 0.0)
        yield f"No combination found fits {planned.memory_gb:g} GB; the denoiser's weights alone take {_size(weights)}."


def _told(change: Change) -> str:
    share = 100 * change.extra_time
    time = "no extra time" if abs(share) < 0.05 else f"{share:+.1f} % time"
    end = "fits" if change.fits else "does not fit yet"
    result = "" if change.harmless else ", changes the result"
    names = ", ".join(change.assignments())
    return f"{names}: {_size(change.peak)}, saves {_size(change.saves)}, {time}, {end}{result}"
