"""Commands that make, judge, fetch and send files: render, score, normalise, download, push."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flash_grpo.commands.base import AsJson, Report, RunFolder, console, working

if TYPE_CHECKING:
    from rich.table import Table


def render(
    run: RunFolder,
    output: Annotated[Path, typer.Option("--output", metavar="DIR", help="Folder for the videos and result.json.")],
    prompt: Annotated[
        list[str] | None, typer.Option("--prompt", metavar="TEXT", help="Prompt to render; may be repeated.")
    ] = None,
    prompts: Annotated[
        str | None, typer.Option("--prompts", metavar="FILE", help="Prompts of a .txt, .csv or .jsonl file or a set.")
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option("--seed", metavar="N", help="Seed; may be repeated [default: 0].")
    ] = None,
    side: Annotated[str, typer.Option("--side", metavar="before|after|both", help="Base model, checkpoint.")] = "both",
    checkpoint: Annotated[
        str, typer.Option("--checkpoint", metavar="best|latest|NUMBER", help="Which checkpoint is `after`.")
    ] = "best",
    strength: Annotated[
        float, typer.Option("--strength", metavar="S", help="Scale of the adapter, 0 (base model) to 4.")
    ] = 1.0,
    scores: Annotated[bool, typer.Option("--scores/--no-scores", help="Score each video by the run's rewards.")] = True,
    report: Report = None,
) -> None:
    """Render prompts of your own with a run, before and after, as its evaluation would: same sampler, same noise."""
    with working(report) as task:
        with task.at_once():
            from flash_grpo.render import Order, prompts_of, render_run, sides_of
        wanted = prompts_of(prompt or [], prompts)
        order = Order(wanted, seed or [0], sides_of(side), checkpoint, strength, scores)
        result = render_run(run, order, output, task)
    console().print(_table(result["videos"], ("path", "prompt", "checkpoint")))
    console().print(f"videos and result.json: {output}", markup=False, soft_wrap=True)


def score(
    videos: Annotated[list[Path], typer.Argument(metavar="VIDEO...", help="Video files.")],
    reward: Annotated[
        list[str], typer.Option("--reward", metavar="NAME", help="Reward, by name or import path; may be repeated.")
    ],
    prompt: Annotated[str | None, typer.Option("--prompt", metavar="TEXT", help="The prompt of all videos.")] = None,
    prompts: Annotated[
        Path | None,
        typer.Option("--prompts", metavar="FILE", help="Prompt of each: .json {file: prompt}, or .csv file,prompt."),
    ] = None,
    options: Annotated[
        str | None, typer.Option("--options", metavar="JSON", help="Options: {reward: {option: value}}.")
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Score the other videos when one cannot be read.")
    ] = False,
    as_json: AsJson = False,
    report: Report = None,
) -> None:
    """Score video files with rewards; a reward that compares sees the videos of one prompt together."""
    with working(report) as task:
        with task.at_once():
            from flash_grpo.score_files import prompts_by_file, reward_names, reward_options, score_files
        texts = prompts_by_file(videos, prompt, prompts)
        found = score_files(videos, texts, reward_names(reward), reward_options(options), task, keep_going)
    if as_json:
        print(json.dumps(task.result, indent=1, ensure_ascii=False))
    else:
        console().print(_table(found, ("path", "prompt")))


def normalise(
    video: Annotated[Path, typer.Argument(metavar="VIDEO", help="Any video file.")],
    output: Annotated[Path, typer.Option("--output", metavar="FILE.mp4", help="File to write.")],
    fps: Annotated[
        float | None, typer.Option("--fps", metavar="F", help="Frames per second [default: the file's mean rate].")
    ] = None,
    max_side: Annotated[
        int | None, typer.Option("--max-side", metavar="N", help="Scale a larger picture down to this longest side.")
    ] = None,
    report: Report = None,
) -> None:
    """Turn any video into an MP4 that players seek in: H.264, constant rate, short key frame distance, no metadata."""
    with working(report) as task:
        with task.at_once():
            from flash_grpo.normalise import normalise as write
        write(video, output, task, fps, max_side)
    found = task.result
    print(f"{output}: {found['frames']} frames of {found['width']}x{found['height']} at {found['fps']:g} a second")


def download(
    repo: Annotated[str, typer.Argument(metavar="REPO_ID", help="Repository on the hub, as OWNER/NAME.")],
    output: Annotated[Path, typer.Option("--output", metavar="DIR", help="New folder for it.")],
    revision: Annotated[
        str | None, typer.Option("--revision", metavar="R", help="Branch, tag or commit [default: the main branch].")
    ] = None,
    kind: Annotated[
        str, typer.Option("--kind", metavar="model|reward", help="A diffusers pipeline, or a reward's network.")
    ] = "model",
    report: Report = None,
) -> None:
    """Download a model from a Hugging Face hub, pinned to a commit and verified; safetensors and text files only.

    The hub is HF_ENDPOINT, the token for private and gated models HF_TOKEN. Repeat the command to go on after a broken
    connection. Tested against a local hub server.
    """
    with working(report) as task:
        with task.at_once():
            from flash_grpo.download import Listing
            from flash_grpo.download import download as fetch

        def announce(listing: Listing) -> None:
            size, licence = listing.size / 1e9, listing.licence or "not named"
            print(f"{repo} at commit {listing.commit}: {len(listing.files)} files, {size:.3g} GB, licence {licence}")

        fetch(repo, output, task, kind, revision, announce)
    print(f"downloaded to {output}")


def push(
    export: Annotated[Path, typer.Argument(metavar="EXPORT", help="Folder that `export` wrote.")],
    repo: Annotated[str, typer.Option("--repo", metavar="OWNER/NAME", help="Repository on the hub.")],
    private: Annotated[
        bool, typer.Option("--private/--public", help="Who sees a repository that is made for it.")
    ] = True,
    report: Report = None,
) -> None:
    """Send an export with its model card to a Hugging Face hub, verified before and after.

    The hub is HF_ENDPOINT; HF_TOKEN holds a token that may write. Repeat the command to go on after a broken
    connection. Tested against a local hub server.
    """
    with working(report) as task:
        with task.at_once():
            from flash_grpo.push import push as send
        result = send(export, repo, task, private)
    print(f"sent {len(result['files'])} files to {result['url']} ({'private' if result['private'] else 'public'})")


def _table(videos: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> Table:
    """A row per video: what it is, and its scores."""
    from rich.table import Table

    rewards = list(dict.fromkeys(name for video in videos for name in video.get("scores", {})))
    table = Table()
    for column in (*columns, *rewards):
        table.add_column(column, overflow="fold", justify="right" if column in rewards else "left")
    for video in videos:
        cells = ["-" if video.get(column) is None else str(video[column]) for column in columns]
        scores = video.get("scores", {})
        table.add_row(*cells, *(f"{scores[name]:.4f}" if name in scores else "-" for name in rewards))
    return table
