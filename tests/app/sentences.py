"""Every sentence that the server can show to a person, read from its source: {1}, {2} … stand for what is put in."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "flash_grpo_studio/app/jobs": "access attempts change prepare service spec workers",
    "flash_grpo_studio/worker": "decide diagnose supervise reconcile launch",
    "flash_grpo_studio/app/api": "checked errors feed guard own_pace plans prompt_texts receive serving studio who",
    "flash_grpo_studio/app/api/routes": "accounts ballots compare health jobs library login planning price prompts "
    "tokens watching",
    "flash_grpo_studio/app": "accounts store/sides store/engine store/listing",
    "flash_grpo": "advantage attempt checkpoint collect config distributed doctor download errors export files noise "
    "normalise plan prompts render resume run safeguards schedule score_files task trainer",
    "flash_grpo/planning": "architecture calibrate speed workload",
    "flash_grpo/rewards": "flicker optical_flow prompt_following registry scoring self_test subject_size "
    "text_rendering vlm_judge judge/endpoint judge/limits",
}
MODULES = [f"{folder}/{name}.py" for folder, names in FOLDERS.items() for name in names.split()]
"""What a creator meets: jobs, forms, uploads, plans, and what a run says of itself."""

_NOT_SAID = {"description", "summary", "help", "examples", "responses", "openapi_examples"}
"""Arguments that stand in documents and command lines alone."""
_NOT_CALLED = {"log", "re", "Field", "Query", "Path", "Option", "Argument", "Body", "text", "_field", "_setting"}


def templates(source: str) -> list[str]:
    """The sentences of a module, each as often as it stands there."""
    found = [_numbered(text) for node in _strings(ast.parse(source)) for text in _variants(node)]
    return [text for text in found if _is_sentence(text)]


def _is_sentence(text: str) -> bool:
    """Whether it has words, at least three with what is put in; no address, name or pattern."""
    words = re.findall(r"(?<![^\s(`'])[A-Za-z'`]{2,}(?![^\s,;:.)?`'])", text)
    return (
        len(words) >= 2 and len(words) + text.count("{") >= 3 and not re.search(r"\\|\w\|\w|%[(s]|'none'|'self'", text)
    )


def all_templates() -> dict[str, str]:
    """Every sentence of the modules, and the first module it stands in."""
    found: dict[str, str] = {}
    for module in MODULES:
        for text in templates((ROOT / module).read_text(encoding="utf-8")):
            found.setdefault(text, module)
    return found


def _strings(node: ast.AST) -> Iterator[ast.expr]:
    """Literals that may be said: no documentation, no logs, no patterns, no helps."""
    if isinstance(node, ast.JoinedStr | ast.Constant) or _joined(node):
        if not isinstance(node, ast.Constant) or isinstance(node.value, str):
            yield node
        if isinstance(node, ast.JoinedStr):
            for part in node.values:
                if isinstance(part, ast.FormattedValue) and not isinstance(part.value, ast.IfExp):
                    yield from _strings(part.value)
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return
    if isinstance(node, ast.Call):
        if _head(node.func) in _NOT_CALLED:
            return
        for part in (node.func, *node.args, *(word.value for word in node.keywords if word.arg not in _NOT_SAID)):
            yield from _strings(part)
        return
    for child in ast.iter_child_nodes(node):
        yield from _strings(child)


def _head(function: ast.expr) -> str:
    while isinstance(function, ast.Attribute):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""


def _variants(node: ast.AST) -> list[str]:
    """The texts of a literal, one for each way its conditions may go; `{}` for what is put in."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else ["{}"]
    if isinstance(node, ast.JoinedStr):
        return ["".join(parts) for parts in product(*(_variants(value) for value in node.values))]
    if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.IfExp):
        return _variants(node.value)
    if isinstance(node, ast.IfExp):
        return _variants(node.body) + _variants(node.orelse)
    if _joined(node):
        assert isinstance(node, ast.BinOp)
        return ["".join(parts) for parts in product(_variants(node.left), _variants(node.right))]
    return ["{}"]


def _joined(node: ast.AST) -> bool:
    """Whether two texts are added."""
    parts = (node.left, node.right) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) else ()
    return any(isinstance(part, ast.JoinedStr | ast.Constant) and _variants(part) != ["{}"] for part in parts)


def _numbered(text: str) -> str:
    parts = text.strip().split("{}")
    return "".join(f"{part}{{{place}}}" for place, part in enumerate(parts[:-1], 1)) + parts[-1]
