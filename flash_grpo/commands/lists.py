"""Commands that list what there is: presets, models, prompts, configurations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer

from flash_grpo.commands.base import AsJson, Assignments, console


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
    show("Presets", entries, ("name", "model", "description"), as_json)


def models(as_json: AsJson = False) -> None:
    """List the models that are known to work, and those whose weights were not run here."""
    from importlib import resources

    import yaml

    cards = resources.files("flash_grpo") / "models" / "cards"
    files = [file for file in cards.iterdir() if file.name.endswith(".yaml")]
    entries = [yaml.safe_load(file.read_text(encoding="utf-8")) for file in files]
    show("Models", entries, ("name", "parameters", "source", "licence", "description"), as_json)


def prompts(
    source: Annotated[
        str | None, typer.Argument(metavar="[SET]", help="Show its prompts, as studio:train or studio:train:food+text.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the built-in prompt sets with their categories, or the prompts of one."""
    if source is not None:
        _show_prompts(source, as_json)
        return
    import dataclasses

    from flash_grpo.prompts import SETS, built_in_set

    entries = [dataclasses.asdict(built_in_set(name)) for name in SETS]
    if as_json:
        print(json.dumps(entries, indent=1))
        return
    from rich.table import Table

    table = Table("set", "training", "validation", "held-out", "categories (prompts)", title="Built-in prompt sets")
    for entry in entries:
        categories = (f"{name} ({sum(counts.values())})" for name, counts in entry["categories"].items())
        table.add_row(entry["name"], *map(str, entry["counts"].values()), ", ".join(categories))
    console().print(table, markup=False)


def _show_prompts(source: str, as_json: bool) -> None:
    from flash_grpo.prompts import load_prompts

    found = load_prompts(source)
    if as_json:
        rows = [{**prompt.metadata, "id": prompt.id, "prompt": prompt.text} for prompt in found]
        print(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    for prompt in found:
        print(prompt.text)


def show(title: str, entries: Sequence[Mapping[str, Any]], columns: Iterable[str], as_json: bool) -> None:
    """Entries by name, as JSON or as a table of some columns; what was never run is marked."""
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
    console().print(table, markup=False)


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
