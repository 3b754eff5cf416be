"""A picture of the pocket example after its run, and the thumbnails of the example workflows:

python -m tests.custom_nodes.real.graph_pictures docs/screenshots/comfyui-graph.png
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

from custom_nodes.generate import PACK
from tests.custom_nodes.real.comfyui import Comfy, installed, running
from tests.custom_nodes.real.page import ComfyPage, chromium, example

GRAPH = "1_pocket_before_after"
MODES = {GRAPH: "side", "2_wan2.1_1.3b_before_after": "", "3_pocket_two_checkpoints": "wipe"}
"""How the player of each example is shown; the second one needs gigabytes of models, so only its graph is."""
STEPS = 20
FRAME = 4
SIZE, SCALE = (1900, 760), 0.62
BAR, TOP = 60, 44
"""Pixels of the page's own bars, at the left and above."""
COLOURS = 128
THUMBNAIL = (560, 560)


def graph(page: ComfyPage, file: Path) -> None:
    """The whole graph, run, with the player standing still."""
    page.look.set_viewport_size({"width": SIZE[0], "height": SIZE[1]})
    page.look.evaluate("() => document.querySelector('[data-testid=close-minmap-button]')?.click()")
    page.look.evaluate(f"() => {{ app.canvas.ds.scale = {SCALE}; app.canvas.ds.offset = [130, 200]; }}")
    page.look.evaluate("() => app.canvas.setDirty(true, true)")
    page.look.wait_for_timeout(2000)
    clip = {"x": BAR, "y": TOP, "width": SIZE[0] - BAR, "height": SIZE[1] - TOP}
    picture = Image.open(io.BytesIO(page.look.screenshot(clip=clip))).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
    print(f"{file.name}: {picture.width}x{picture.height}, {file.stat().st_size // 1000} kB")


def settle(page: ComfyPage, mode: str) -> None:
    """The player stands still at a frame, in a mode."""
    page.player(f"(player.mode = '{mode}', player.pause(), player.frame = {FRAME})")
    page.show("CompareVideos")
    page.look.wait_for_timeout(1000)


def thumbnail(page: ComfyPage, name: str, mode: str) -> None:
    """The player of an example, or its graph where it cannot be run here."""
    if mode:
        settle(page, mode)
        content = page.look.locator(".flash-grpo-compare").screenshot()
    else:
        page.show("LoadCheckpoint", SCALE)
        content = page.look.screenshot(clip={"x": 110, "y": 84, "width": 960, "height": 600})
    picture: Any = Image.open(io.BytesIO(content)).convert("RGB")
    picture.thumbnail(THUMBNAIL)
    picture.save(PACK / "example_workflows" / f"{name}.jpg", quality=78, optimize=True)


def take(comfy: Comfy, file: Path) -> None:
    """All pictures."""
    with chromium() as browser:
        for name, mode in MODES.items():
            page = ComfyPage(browser, comfy)
            page.load(example(name, STEPS))
            if mode:
                page.run()
                page.wait_for_player()
            thumbnail(page, name, mode)
            if name == GRAPH:
                graph(page, file)
            page.context.close()


def main() -> None:
    """Start ComfyUI, take the pictures, end it."""
    with tempfile.TemporaryDirectory() as folder, running(installed(Path(folder))) as comfy:
        take(comfy, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
