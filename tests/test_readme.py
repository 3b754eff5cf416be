"""Every command that the documentation shows exists and takes these arguments."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from flash_grpo.cli import app
from flash_grpo.config import build_config, parse_assignments

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
        command = group.commands[words[1]]
        parameters = command.make_context(words[1], words[2:]).params
        if words[1] in ("train", "config") and parameters["preset"]:
            build_config(parameters["preset"], parse_assignments(parameters["assignments"] or []))
    elif words[0] not in {"git", "cd", "pip", "python", "python3"}:
        raise AssertionError(f"unknown program {words[0]!r}")


@pytest.mark.parametrize("words", commands((ROOT / "README.md").read_text(encoding="utf-8")), ids=" ".join)
def test_the_readme_shows_commands_that_exist(words: list[str]) -> None:
    check(words)


def test_the_readme_shows_the_demo() -> None:
    assert ["make", "demo"] in commands((ROOT / "README.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "line",
    [
        "make dmeo",
        "flash-grpo tarin --preset pocket",
        "flash-grpo train --presets pocket",
        "flash-grpo train --preset x",
        "flash-grpo train --preset pocket --set updats=1",
        "flashgrpo presets",
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    [words] = commands(f"```bash\n{line}\n```\n")
    with pytest.raises(Exception, match=r"."):
        check(words)


def test_documents_name_no_module_that_does_not_exist() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for path in re.findall(r"`((?:flash_grpo|tests|benchmarks|scripts)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
