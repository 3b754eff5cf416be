"""Text of users within Markdown: shown as it is, whatever it holds. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from flash_grpo.lettering import one_line

_STEERING = re.compile(r"[\\`*_{}\[\]()<>#|~$!&@^=]")
_ADDRESS = re.compile(r"(?i)\b(https?|ftp|mailto|www)([:.])")


def plain(text: str) -> str:
    """A text on one line whose signs mean nothing: no HTML, link, emphasis, formula, mention or table column."""
    escaped = _STEERING.sub(lambda sign: f"\\{sign[0]}", one_line(text))
    escaped = _ADDRESS.sub(r"\1\\\2", escaped)  # bare addresses would become links
    return re.sub(r"^(\d*)([-+.])", r"\1\\\2", escaped)  # at the beginning of a line these make a list


def code(text: str) -> str:
    """A text as inline code; as many backticks around it as it takes."""
    line = one_line(text)
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", line)), default=0))
    space = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{space}{line}{space}{fence}"


def block(text: str, language: str) -> list[str]:
    """Lines of a code block; a longer fence where the text itself holds one."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"^ {0,3}(`+)", text, re.MULTILINE)), default=0))
    return [f"{fence}{language}", *text.rstrip("\n").splitlines(), fence]


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: int = 0) -> list[str]:
    """Lines of a table of cells that are Markdown already; its last `numbers` columns are set to the right."""
    left = len(columns) - numbers
    rules = ["---"] * left + ["---:"] * numbers
    return [f"| {' | '.join(row)} |" for row in (columns, rules, *rows)]
