"""Every command that the documentation shows exists and takes these arguments."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer.core
import typer.main

from flash_grpo.cli import app
from flash_grpo.config import build_config, parse_assignments
from flash_grpo_studio.app.api import create_app
from flash_grpo_studio.app.jobs.prepare import parse_ask
from flash_grpo_studio.app.settings import read_settings

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```(?:bash|sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(document: str) -> list[list[str]]:
    """The words of every command in a document's shell blocks."""
    lines = "\n".join(BLOCK.findall(document)).replace("\\\n", " ").splitlines()
    words = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines]
    return [w for w in words if w]


def check(words: list[str]) -> None:
    """Parse one command without running it; raises if it does not exist."""
    while "=" in words[0] and not words[0].startswith("-"):
        words = words[1:]  # variables set for the command
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        missing = [w for w in words[1:] if "=" not in w and w not in targets]
        if missing:
            raise AssertionError(f"the Makefile has no target {missing}")
    elif words[0] == "flash-grpo":
        group: Any = typer.main.get_command(app)
        with group.make_context("flash-grpo", words[1:2]) as context:
            command = group.resolve_command(context, words[1:])[1]
        inner = command.make_context(words[1], words[2:])
        if isinstance(command, typer.core.TyperGroup):
            name, subcommand, rest = command.resolve_command(inner, words[2:])
            inner = subcommand.make_context(name, rest)
        parameters = inner.params
        if words[1] in ("train", "config") and parameters["preset"]:
            build_config(parameters["preset"], parse_assignments(parameters["assignments"] or []))
    elif words[0] == "curl":
        values = {words[place]: words[place + 1] for place in range(1, len(words)) if words[place].startswith("-")}
        address = next(word for word in words if word.startswith("http://"))
        routes = create_app(read_settings()).openapi()["paths"]
        if values["-X"].lower() not in routes[urlsplit(address).path]:
            raise AssertionError(f"the API has no route {values['-X']} {address}")
        parse_ask(json.loads(values["-d"]))
    elif words[0] not in {"export", "git", "cd", "pip", "python", "python3"}:
        raise AssertionError(f"unknown program {words[0]!r}")


@pytest.mark.parametrize("words", commands((ROOT / "README.md").read_text(encoding="utf-8")), ids=" ".join)
def test_the_readme_shows_commands_that_exist(words: list[str]) -> None:
    check(words)


@pytest.mark.parametrize("target", ["demo", "studio", "test"])
def test_the_readme_shows_how_to_begin(target: str) -> None:
    assert ["make", target] in commands((ROOT / "README.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "line",
    [
        "make dmeo",
        "flash-grpo tarin --preset pocket",
        "flash-grpo train --presets pocket",
        "flash-grpo train --preset x",
        "flash-grpo train --preset pocket --set updats=1",
        "flashgrpo presets",
        "flash-grpo studio --prot 1",
        "flash-grpo user ad ann",
        """curl -X POST http://127.0.0.1:7860/api/v1/jops -d '{"preset": "pocket"}'""",
        """curl -X POST http://127.0.0.1:7860/api/v1/jobs -d '{"presett": "pocket"}'""",
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    [words] = commands(f"```bash\n{line}\n```\n")
    with pytest.raises(Exception, match=r"."):
        check(words)


def test_documents_name_no_module_that_does_not_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in re.findall(r"`((?:flash_grpo|flash_grpo_studio|tests|benchmarks|scripts)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
