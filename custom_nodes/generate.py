"""Copy what the ComfyUI node pack shares with this project into the pack: `make comfyui-pack`.

The pack runs inside ComfyUI and imports nothing of this project, so it carries copies, made here and never edited; a
test compares them with their sources.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from flash_grpo.workflow import examples

ROOT = Path(__file__).resolve().parent.parent
PACK = ROOT / "custom_nodes" / "comfyui_flash_grpo"

MODULES = (
    "flash_grpo/errors.py",
    "flash_grpo/files.py",
    "flash_grpo/models/pocket/world.py",
    "flash_grpo/native.py",
    "flash_grpo/rewards/base.py",
    "flash_grpo/rewards/colorfulness.py",
    "flash_grpo/rewards/flicker.py",
    "flash_grpo/rewards/prompt_following.py",
    "flash_grpo/rewards/sharpness.py",
    "flash_grpo/rewards/subject_size.py",
    "flash_grpo/sketch.py",
    "flash_grpo/video.py",
)
"""Python sources; their copies lie side by side in `shared` and import one another there."""
PLAYER = "flash_grpo_studio/app/web/player"
"""The studio's player, an ES module of several files."""
_IMPORT = re.compile(r"^from (flash_grpo[\w.]*) import (.+)$", re.MULTILINE)


def copies() -> dict[str, str]:
    """The text of every copy by its path within the pack."""
    found = {f"shared/{Path(source).name}": _copy(source) for source in MODULES}
    found |= {f"web/player/{source.name}": _copy_script(source) for source in sorted((ROOT / PLAYER).glob("*.js"))}
    return found | {f"example_workflows/{name}": json.dumps(graph, indent=1) for name, graph in examples().items()}


def write() -> list[str]:
    """Write the copies that are not as they should be; returns their paths."""
    changed = []
    for path, text in copies().items():
        file = PACK / path
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed


def _copy(source: str) -> str:
    text = _IMPORT.sub(_neighbour, (ROOT / source).read_text(encoding="utf-8"))
    return f"# A copy of {source}, made by `make comfyui-pack`; edit that file instead.\n{text}"


def _copy_script(source: Path) -> str:
    about = f"// A copy of {PLAYER}/{source.name}, made by `make comfyui-pack`; edit that file instead."
    return f"{about}\n{source.read_text(encoding='utf-8')}"


def _neighbour(match: re.Match[str]) -> str:
    """An import of a module's names, or of a module out of its package, as an import from beside."""
    package, names = match.groups()
    path = package.replace(".", "/")
    if f"{path}.py" in MODULES:
        return f"from .{Path(path).name} import {names}"
    if f"{path}/{names}.py" in MODULES:
        return f"from . import {names}"
    raise SystemExit(f"{match[0]!r}: add that module to MODULES, or do without it")


if __name__ == "__main__":
    print("\n".join(write()) or "all copies are as they should be")
