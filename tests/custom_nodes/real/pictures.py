"""Pictures of the pack out of a real ComfyUI: python -m tests.custom_nodes.real.pictures

One of each node for its README, one of each example workflow for ComfyUI's list of templates, and one of the pocket
example after its run for docs/screenshots. Nodes that this example lacks are added beside it.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from custom_nodes.generate import PACK, ROOT
from flash_grpo.video import read_mp4
from flash_grpo.workflow import examples
from tests.custom_nodes.real.comfyui import Comfy, installed, running

CHROMIUM = os.environ.get("FLASH_GRPO_CHROMIUM", "/usr/bin/chromium")
SIZE = {"width": 1600, "height": 1000}
MARGIN, TITLE = 12, 30
SETTINGS = {
    "Comfy.TutorialCompleted": True,
    "Comfy.Minimap.Visible": False,
    "Comfy.Workflow.ShowMissingModelsWarning": False,
    "Comfy.NodeBadge.NodeSourceBadgeMode": "None",
}
"""What would lie over the pictures."""
NODES = {
    "load_checkpoint": "FlashGrpoLoadCheckpoint",
    "pick_checkpoints": "FlashGrpoPickCheckpoints",
    "sample_pair": "FlashGrpoSamplePair",
    "compare_videos": "FlashGrpoCompareVideos",
    "score_video": "FlashGrpoScoreVideo",
    "pocket_text": "FlashGrpoPocketTextEncode",
    "launch_job": "FlashGrpoLaunchJob",
    "job_status": "FlashGrpoJobStatus",
}
_PLACE = """(kind) => {
    const app = window.app ?? window.comfyAPI.app.app, canvas = app.canvas;
    let node = app.graph._nodes.find((found) => found.comfyClass === kind);
    if (!node) {
        node = LiteGraph.createNode(kind);
        app.graph.add(node);
        node.pos = [-2000 - 700 * Math.random(), -3000 - 3000 * Math.random()];
    }
    canvas.deselectAll?.();
    canvas.ds.scale = 1;
    canvas.ds.offset = [60 - node.pos[0], 120 - node.pos[1]];
    canvas.setDirty(true, true);
    return [node.size[0], node.size[1]];
}"""

_STILL = """() => {
    const player = document.querySelector("fg-player");
    player.mode = "side";
    player.pause();
    player.frame = 4;
}"""
_FIT = """([width, height]) => {
    const app = window.app ?? window.comfyAPI.app.app, canvas = app.canvas, nodes = app.graph._nodes;
    const edge = (axis, far) => nodes.map((node) => node.pos[axis] + far * node.size[axis]);
    const left = Math.min(...edge(0, 0)), top = Math.min(...edge(1, 0)) - 40;
    const wide = Math.max(...edge(0, 1)) - left, high = Math.max(...edge(1, 1)) - top;
    const scale = Math.min((width - 120) / wide, (height - 130) / high);
    canvas.ds.scale = scale;
    canvas.ds.offset = [80 / scale - left, 90 / scale - top];
    canvas.setDirty(true, true);
}"""


def open_example(page: Page, name: str) -> None:
    """Show an example workflow."""
    graph = json.loads((PACK / "example_workflows" / name).read_text(encoding="utf-8"))
    page.evaluate("(graph) => (window.app ?? window.comfyAPI.app.app).loadGraphData(graph)", graph)


def take(comfy: Comfy, page: Page) -> None:
    """All pictures."""
    comfy.call("/settings", SETTINGS)
    page.goto(comfy.url)
    page.wait_for_function("() => (window.app ?? window.comfyAPI?.app?.app)?.graph", timeout=60_000)
    page.wait_for_timeout(3000)
    for name in examples():
        picture = PACK / "example_workflows" / name.replace(".json", ".jpg")
        if "pocket" in name:
            composed(comfy, name).save(picture, quality=85, optimize=True)
        else:
            open_example(page, name)
            _shoot(page, (1500, 640), picture, width=640)
    open_example(page, next(iter(examples())))
    page.evaluate(_PLACE, NODES["compare_videos"])
    page.evaluate("() => (window.app ?? window.comfyAPI.app.app).queuePrompt(0, 1)")
    page.wait_for_function("() => document.querySelector('.flash-grpo-compare a[href]')", timeout=120_000)
    page.evaluate(_STILL)
    _shoot(page, (2700, 1150), ROOT / "docs" / "screenshots" / "comfyui.png", width=1800)
    for name, kind in NODES.items():
        page.set_viewport_size(SIZE)
        width, height = page.evaluate(_PLACE, kind)
        page.wait_for_timeout(700)
        left, top = 60 - MARGIN, 120 - TITLE - MARGIN
        clip = {"x": left, "y": top, "width": width + 2 * MARGIN, "height": height + TITLE + 2 * MARGIN}
        _save(page.screenshot(clip=clip), PACK / "docs" / f"{name}.png")


def composed(comfy: Comfy, name: str) -> Image.Image:
    """What an example shows when it has run: the middle frame of each comparison."""
    graph = json.loads((PACK / "example_workflows" / name).read_text(encoding="utf-8"))
    outputs = comfy.run(comfy.api_form(graph))
    told = [json.loads(text)["composed"] for output in outputs.values() for text in output.get("flash_grpo", ())]
    files = [comfy.base / "output" / entry["subfolder"] / entry["filename"] for entry in told]
    return Image.fromarray(np.concatenate([read_mp4(file)[4] for file in files]))


def _shoot(page: Page, size: tuple[int, int], file: Path, width: int) -> None:
    """A picture of the whole graph."""
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.wait_for_timeout(500)
    page.evaluate(_FIT, list(size))
    page.wait_for_timeout(2500)
    _save(page.screenshot(), file, width)


def _save(content: bytes, file: Path, width: int | None = None) -> None:
    picture: Any = Image.open(io.BytesIO(content)).convert("RGB")
    if width is not None:
        picture = picture.resize((width, round(picture.size[1] * width / picture.size[0])), Image.Resampling.LANCZOS)
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".jpg":
        picture.save(file, quality=80, optimize=True)
    else:
        picture.quantize(128).save(file, optimize=True)
    print(f"{file.name}: {picture.size[0]}x{picture.size[1]}, {file.stat().st_size // 1000} kB")


def main() -> None:
    """Start ComfyUI, take the pictures, end it."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running(installed(Path(folder))) as comfy,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        take(comfy, browser.new_page(viewport=SIZE))
        browser.close()


if __name__ == "__main__":
    main()
