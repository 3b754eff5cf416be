"""Commands that make pictures of videos: compose, contact-sheet."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flash_grpo.commands.base import Report, working

Videos = Annotated[
    list[Path] | None, typer.Argument(metavar="LEFT RIGHT", help="Two video files; more follow in pairs.")
]
Captions = Annotated[
    list[str] | None, typer.Option("--caption", metavar="TEXT", help="The prompt; repeated for several pairs.")
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="TEXT", help="Twice, for left and right [default: Before, After]."),
]
Pairs = Annotated[
    Path | None,
    typer.Option("--pairs", metavar="FILE", help="Pairs with captions and scores as JSON, instead of arguments."),
]


def compose(
    output: Annotated[Path, typer.Option("--output", metavar="FILE", help="An .mp4, .gif or .webp to write.")],
    videos: Videos = None,
    label: Labels = None,
    caption: Captions = None,
    pairs: Pairs = None,
    layout: Annotated[
        str, typer.Option("--layout", metavar="side_by_side|wipe", help="Side by side, or behind a moving boundary.")
    ] = "side_by_side",
    fps: Annotated[
        float | None, typer.Option("--fps", metavar="F", help="Frames per second; else the faster video's.")
    ] = None,
    width: Annotated[
        int | None, typer.Option("--width", metavar="N", help="Width in pixels; else what the videos need.")
    ] = None,
    columns: Annotated[int | None, typer.Option("--columns", metavar="N", help="Pairs in a row.")] = None,
    report: Report = None,
) -> None:
    """Compose two videos into one, side by side with labels and the prompt; several pairs share one picture."""
    with working(report) as task:
        with task.at_once():
            from flash_grpo.compose import Style
            from flash_grpo.compose import compose as write
            from flash_grpo.pairs import labels_of, pairs_of
        style = Style(layout, labels_of(label or []), fps, width, columns)
        write(pairs_of(videos or [], caption or [], pairs), output, task, style)
    found = task.result
    print(f"{output}: {found['frames']} frames of {found['width']}x{found['height']} at {found['fps']:g} a second")


def contact_sheet(
    output: Annotated[Path, typer.Option("--output", metavar="FILE.png", help="File to write.")],
    videos: Videos = None,
    label: Labels = None,
    caption: Captions = None,
    pairs: Pairs = None,
    report: Report = None,
) -> None:
    """Write a picture with a row per pair of videos: the same moments left and right, the prompt, and scores."""
    with working(report) as task:
        with task.at_once():
            from flash_grpo.pairs import labels_of, pairs_of
            from flash_grpo.sheet import write_sheet
        write_sheet(pairs_of(videos or [], caption or [], pairs), output, task, labels_of(label or []))
    print(f"{output}: {task.result['pairs']} pairs")
