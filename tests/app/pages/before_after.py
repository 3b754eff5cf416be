"""Makes the moving picture of the README from the finished example that ships with the package:

    python -m tests.app.pages.before_after docs/screenshots/before-after.webp

The videos are those of its run, composed by the program's own composer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from flash_grpo.compose import Style, write_composition
from flash_grpo.pairs import Pair
from flash_grpo_studio.app.pages.example import FOLDER

SHOWN = (5, 1, 0, 7)
"""Prompts of four shapes and grounds, among those with the largest gains."""
MOST_BYTES = 2_000_000


def make(target: Path) -> None:
    """Write the picture."""
    example = json.loads((FOLDER / "example.json").read_text(encoding="utf-8"))
    optimised = [name for name, weight in example["rewards"].items() if weight]
    pairs = []
    for number in SHOWN:
        pair = example["pairs"][number]
        scores = {name: tuple(pair["scores"][name]) for name in optimised}
        pairs.append(Pair(FOLDER / pair["before"], FOLDER / pair["after"], pair["prompt"], scores))
    facts, _ = write_composition(pairs, target, Style(width=960, columns=2, most_bytes=MOST_BYTES))
    print(f"{target}: {facts['frames']} frames of {facts['width']}x{facts['height']}, {target.stat().st_size} bytes")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
