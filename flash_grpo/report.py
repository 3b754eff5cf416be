"""What a person looks at after a run: contact sheet, chart and final table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flash_grpo.errors import InputError
from flash_grpo.events import Record, read_events
from flash_grpo.files import write_atomic
from flash_grpo.lettering import font_for, one_line, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from PIL import Image, ImageFont
    from rich.table import Table

    from flash_grpo.schedule import ScheduleStep
    from flash_grpo.video import Frames

INK, MUTED, PAPER = "#1b1f24", "#6b7480", "#ffffff"
TRAINING, VALIDATION, WATCHED = "#9db8e8", "#1f4fbf", "#7a7f87"

_CELL, _GAP, _MIDDLE, _MARGIN = 112, 4, 28, 24
_CAPTION, _HEADING = 13, 17


# Contact sheet


def contact_sheet(
    pairs: Sequence[tuple[str, Frames, Frames]],
    path: Path,
    frames_shown: int = 4,
    scores: Sequence[Mapping[str, tuple[float, float]]] | None = None,
    headings: tuple[str, str] = ("Before", "After"),
) -> None:
    """Write a PNG with one row per prompt: frames before, a gap, the same frames after.

    pairs: (caption, before, after), the videos uint8 [F,H,W,3]. scores: per pair, reward name -> (before, after).
    Raises InputError if there is no pair or a pair's videos differ in shape.
    """
    if not pairs:
        raise InputError("expected at least one pair of videos for a contact sheet, got none; set videos_saved above 0")
    from PIL import Image, ImageDraw

    captions = [one_line(caption) for caption, _, _ in pairs]
    caption_font, heading_font = font_for("".join(captions) + "→…", _CAPTION), font_for("".join(headings), _HEADING)
    shown = min(frames_shown, len(pairs[0][1]))
    cell_width = max(_CELL, round(_CELL * pairs[0][1].shape[2] / pairs[0][1].shape[1]))
    strip = shown * cell_width + (shown - 1) * _GAP
    width = 2 * _MARGIN + 2 * strip + _MIDDLE
    texts = [
        caption_lines(caption, scores[index] if scores else {}, width - 2 * _MARGIN, caption_font) or [""]
        for index, caption in enumerate(captions)
    ]
    line = _CAPTION + 5
    row_heights = [len(lines) * line + _CELL + 18 for lines in texts]
    sheet = Image.new("RGB", (width, _MARGIN + _HEADING + 14 + sum(row_heights) + _MARGIN // 2), PAPER)
    draw = ImageDraw.Draw(sheet)
    after_left = _MARGIN + strip + _MIDDLE
    for left, heading, color in ((_MARGIN, headings[0], INK), (after_left, headings[1], VALIDATION)):
        draw.text(
            (left, _MARGIN // 2), "".join(wrapped(one_line(heading), strip, 1, heading_font)), color, heading_font
        )
    top = _MARGIN + _HEADING + 10
    for (caption, before, after), lines, height in zip(pairs, texts, row_heights, strict=True):
        if before.shape != after.shape:
            raise InputError(
                f"expected the same shape before and after for {caption!r}, got {before.shape} and {after.shape}"
            )
        for number, text in enumerate(lines):
            draw.text((_MARGIN, top + number * line), text, MUTED if number else INK, caption_font)
        for left, video in ((_MARGIN, before), (after_left, after)):
            _paste_strip(sheet, video, shown, (left, top + len(lines) * line), cell_width)
        top += height
    buffer = BytesIO()
    sheet.save(buffer, "PNG")
    write_atomic(path, buffer.getvalue())


def _paste_strip(sheet: Image.Image, video: Frames, shown: int, corner: tuple[int, int], cell_width: int) -> None:
    from PIL import Image

    for column in range(shown):
        index = round(column * (len(video) - 1) / max(1, shown - 1))
        small = video.shape[1] < _CELL
        picture = Image.fromarray(video[index]).resize(
            (cell_width, _CELL), Image.Resampling.BICUBIC if small else Image.Resampling.LANCZOS
        )
        sheet.paste(picture, (corner[0] + column * (cell_width + _GAP), corner[1]))


def caption_lines(
    caption: str, scores: Mapping[str, tuple[float, float]], width: int, font: ImageFont.FreeTypeFont
) -> list[str]:
    """The caption in at most two lines that fit, then one line of scores if there are any."""
    lines = wrapped(caption, width, 2, font)
    if scores:
        text = "   ".join(f"{name} {as_number(old)} → {as_number(new)}" for name, (old, new) in scores.items())
        lines += wrapped(text, width, 1, font)
    return lines


# Chart


def chart(run_folder: Path, path: Path) -> None:
    """Write a PNG of a run's course: every reward in training and validation, the branch steps, the gradient.

    Raises InputError if the run has recorded neither an update nor an evaluation.
    """
    records = read_events(run_folder)
    scored = [r for r in records if "rewards" in r.data]  # other versions may have written other events
    updates = [r for r in scored if r.type == "metrics"]
    validations = [r for r in scored if r.type == "evaluation" and r.data.get("split") == "validation"]
    if not updates and not validations:
        raise InputError(f"expected updates or evaluations in {run_folder / 'events.jsonl'}, found none; train first")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    weights = _weights(records)
    names = sorted({n for r in updates + validations for n in r.data["rewards"]}, key=lambda n: (not weights.get(n), n))
    panels = len(names) + 2
    columns = 2 if panels in (2, 4) else 3
    rows = -(-panels // columns)
    # A figure of its own, without pyplot: nothing global changes, and threads may draw at once.
    figure = Figure(figsize=(4.6 * columns, 3.1 * rows), dpi=110, layout="constrained", facecolor=PAPER)
    FigureCanvasAgg(figure)
    axes = _panels(figure, rows, columns)
    for name in names:
        _reward_panel(next(axes), name, bool(weights.get(name)), updates, validations)
    _branch_panel(next(axes), updates)
    _gradient_panel(next(axes), updates)
    buffer = BytesIO()
    figure.savefig(buffer, format="png")
    write_atomic(path, buffer.getvalue())


def _panels(figure: Figure, rows: int, columns: int) -> Iterator[Axes]:
    for position in range(1, rows * columns + 1):
        panel = figure.add_subplot(rows, columns, position)
        panel.set_visible(False)
        yield panel


def _frame(panel: Axes, title: str, color: str = INK, x: str = "update") -> None:
    from matplotlib.ticker import MaxNLocator

    panel.set_visible(True)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.margins(y=0.15)
    panel.set_title(title, fontsize=10, color=color, loc="left")
    panel.set_xlabel(x, fontsize=8, color=MUTED)
    panel.tick_params(labelsize=8, colors=MUTED)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", color="#e6e8eb", linewidth=0.7)
    panel.set_axisbelow(True)


def _reward_panel(
    panel: Axes, name: str, optimised: bool, updates: Sequence[Record], validations: Sequence[Record]
) -> None:
    _frame(panel, f"{name} ({'optimised' if optimised else 'watched'})", INK if optimised else MUTED)
    strong = VALIDATION if optimised else WATCHED
    xs, ys = _series(updates, lambda r: r.data["rewards"].get(name, {}).get("mean"))
    if xs:
        panel.plot(xs, ys, color=TRAINING if optimised else "#d4d7db", linewidth=0.8, alpha=0.7)
        panel.plot(xs, smooth(ys), color=TRAINING if optimised else "#b4b8be", linewidth=1.8, label="training rollouts")
    points = [r for r in validations if r.data["rewards"].get(name, {}).get("mean") is not None]
    if points:
        figures = [r.data["rewards"][name] for r in points]
        means = [f["mean"] for f in figures]
        low = [max(0.0, f["mean"] - f["ci95"][0]) for f in figures]
        high = [max(0.0, f["ci95"][1] - f["mean"]) for f in figures]
        at = [r.update or 0 for r in points]
        panel.errorbar(at, means, yerr=[low, high], fmt="o-", color=strong, ms=4, lw=1.4, capsize=2, label="validation")
        best = [(x, y) for x, y, r in zip(at, means, points, strict=True) if r.data.get("best")]
        if best and optimised:
            panel.plot(*best[-1], marker="*", ms=13, color="#e09b17", linestyle="none", label="best", zorder=5)
    panel.legend(fontsize=7, frameon=False)


def _branch_panel(panel: Axes, updates: Sequence[Record]) -> None:
    _frame(panel, "reward by branch step")
    steps = sorted({step for r in updates for step in r.data.get("branch", {})}, key=int)
    for number, step in enumerate(steps):

        def reward(record: Record, step: str = step) -> float | None:
            value = record.data.get("branch", {}).get(step, {}).get("reward")
            return float(value) if value is not None else None

        xs, ys = _series(updates, reward)
        late = number / max(1, len(steps) - 1)
        color = (0.12 + 0.55 * late, 0.31 + 0.2 * late, 0.75 - 0.3 * late)
        panel.plot(xs, smooth(ys), linewidth=1.4, color=color, label=step)
    if steps:
        panel.legend(title="step", title_fontsize=7, fontsize=7, frameon=False, ncols=min(5, len(steps)))


def _gradient_panel(panel: Axes, updates: Sequence[Record]) -> None:
    _frame(panel, "gradient norm")
    xs, ys = _series(updates, lambda r: r.data.get("grad_norm"))
    panel.plot(xs, ys, color="#d4d7db", linewidth=0.8)
    panel.plot(xs, smooth(ys), color=WATCHED, linewidth=1.6)
    panel.set_ylim(bottom=0)


def _series(records: Sequence[Record], value: Any) -> tuple[list[int], list[float]]:
    points = [(r.update or 0, value(r)) for r in records]
    kept = [(x, float(y)) for x, y in points if y is not None]
    return [x for x, _ in kept], [y for _, y in kept]


def smooth(values: Sequence[float], share: float = 0.7) -> list[float]:
    """Exponential moving average without start-up bias; same length as `values`."""
    average, weight, result = 0.0, 0.0, []
    for value in values:
        average = share * average + (1 - share) * value
        weight = share * weight + (1 - share)
        result.append(average / weight)
    return result


def _weights(records: Sequence[Record]) -> Mapping[str, float]:
    started = [r for r in records if r.type == "run_started"]
    return started[-1].data.get("config", {}).get("rewards", {}) if started else {}


# Schedule


def schedule_chart(steps: Sequence[ScheduleStep], path: Path) -> None:
    """Write a PNG of a schedule: sigma and noise level, and the inverse gradient scale with the candidates' weights."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.2, 3.4), dpi=110, layout="constrained", facecolor=PAPER)
    FigureCanvasAgg(figure)
    left, right = figure.add_subplot(1, 2, 1), figure.add_subplot(1, 2, 2)
    index = [s.index for s in steps]
    _frame(left, "sigma and noise level", x="step")
    left.plot(index, [s.sigma for s in steps], "o-", ms=3, color=VALIDATION, label="sigma")
    noisy = [(s.index, s.noise_level) for s in steps if s.noise_level is not None]
    left.plot([x for x, _ in noisy], [y for _, y in noisy], "o-", ms=3, color="#e09b17", label="noise level")
    left.legend(fontsize=8, frameon=False)
    _frame(right, "1 / lambda and weight", x="step")
    inverse = [(s.index, s.inverse_lambda) for s in steps if s.inverse_lambda is not None]
    right.plot([x for x, _ in inverse], [y for _, y in inverse], "o-", ms=3, color=WATCHED, label="1 / lambda")
    weighted = [(s.index, s.weight) for s in steps if s.weight is not None]
    right.bar([x for x, _ in weighted], [y for _, y in weighted], color=TRAINING, label="weight of a candidate step")
    right.legend(fontsize=8, frameon=False)
    buffer = BytesIO()
    figure.savefig(buffer, format="png")
    write_atomic(path, buffer.getvalue())


# Final table


def final_table(summary: Mapping[str, Any]) -> Table:
    """The held-out rewards of a summary, optimised ones first, as a table for the terminal."""
    from rich.table import Table

    weights: Mapping[str, float] = summary.get("rewards", {})
    table = Table(title="Held-out prompts, before → after", title_justify="left", title_style="bold")
    table.add_column("reward")
    table.add_column("role")
    for heading in ("before → after", "gain", "95 % interval", "win rate"):
        table.add_column(heading, justify="right", no_wrap=True)
    heldout: Mapping[str, Mapping[str, Any]] = summary["heldout"]
    for name in sorted(heldout, key=lambda n: (not weights.get(n), n)):
        figures = heldout[name]
        low, high = figures["ci95"]
        sure = "green" if low is not None and low > 0 else "red" if high is not None and high < 0 else ""
        table.add_row(
            name,
            "optimised" if weights.get(name) else "watched",
            f"{as_number(figures['before'])} → {as_number(figures['after'])}",
            f"[{sure}]{as_difference(figures['gain'])}[/]" if sure else as_difference(figures["gain"]),
            f"{as_difference(low)} to {as_difference(high)}",
            "-" if figures["win_rate"] is None else f"{100 * figures['win_rate']:.0f} %",
            style=None if weights.get(name) else "dim",
        )
    return table


def footer_lines(summary: Mapping[str, Any], run_folder: Path) -> list[str]:
    """What stands below the table: cost, time, and where the files are."""
    lines = [
        f"{summary['updates']} updates in {summary['minutes']:.1f} minutes, cost {summary['cost']:,.0f} network "
        f"evaluations ({summary['nfe']:,} forwards)"
        + (f", best after update {summary['best_update']}" if summary.get("best_update") is not None else "")
    ]
    for label, file in summary.get("files", {}).items():
        if isinstance(file, str):
            lines.append(f"{label.replace('_', ' ')}: {run_folder / file}")
    return lines


def as_number(value: float | None) -> str:
    """A figure as people read it."""
    if value is None:
        return "-"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"


def as_difference(value: float | None) -> str:
    """A difference as people read it."""
    return "-" if value is None else ("+" if value >= 0 else "-") + as_number(abs(value))
