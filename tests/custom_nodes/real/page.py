"""ComfyUI's page in a real browser: graphs are loaded, run and looked at, and no error of ours goes unnoticed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from custom_nodes.generate import PACK
from tests.custom_nodes.real.comfyui import Comfy
from tests.databases import missing

CHROMIUM = os.environ.get("FLASH_GRPO_CHROMIUM", "/usr/bin/chromium")
SIZE = (1600, 1000)
NOT_OURS = ("user.css", "userdata", "favicon")
"""What ComfyUI's page asks for in vain when it is new."""
RUN_MS = 180_000
NODE = "kind => app.graph.nodes.find((node) => node.type === `FlashGrpo${kind}`)"
LEFT, TOP = 400, 110


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser while the context lasts; without one the test is skipped."""
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing("browser", "Playwright is not installed")
    if shutil.which(CHROMIUM) is None:
        missing("browser", f"there is no {CHROMIUM}")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


class ComfyPage:
    """One page of a browser context of its own; `look` is Playwright's page."""

    def __init__(self, browser: Any, comfy: Comfy, size: tuple[int, int] = SIZE) -> None:
        self.comfy, self.problems = comfy, list[str]()
        comfy.call("/settings/Comfy.TutorialCompleted", True)
        self.context = browser.new_context(viewport={"width": size[0], "height": size[1]})
        self.look = self.context.new_page()
        self.look.set_default_timeout(30_000)
        self.look.on("console", self._said)
        self.look.on("request", self._asked)
        self.look.on("pageerror", lambda error: self.problems.append(f"page error: {error}"))
        self.look.goto(comfy.url)
        self.wait_until_ready()

    def _said(self, message: Any) -> None:
        where = message.location.get("url", "")
        if message.type == "error" and not any(part in where for part in NOT_OURS):
            self.problems.append(f"console: {message.text} ({where})")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.comfy.url, "data:", "blob:")):
            self.problems.append(f"foreign request: {request.url}")

    def wait_until_ready(self) -> None:
        """Wait until the page can be used."""
        self.look.wait_for_selector("[data-testid=queue-button]")
        self.look.wait_for_function("window.app?.graph && app.extensionManager && app.canvas")

    def reload(self) -> None:
        """As a user reloads; ComfyUI brings the graph back."""
        self.look.reload()
        self.wait_until_ready()
        self.look.wait_for_function("app.graph.nodes.length > 0")

    def load(self, graph: Mapping[str, Any]) -> None:
        """Open a workflow."""
        self.look.evaluate("graph => app.loadGraphData(graph, true, true, 'test')", graph)

    def run(self) -> None:
        """Press Run."""
        self.look.get_by_test_id("queue-button").click()

    def wait_for_player(self) -> None:
        """Wait until the player can play what a run brought."""
        self.look.wait_for_function("document.querySelector('fg-player')?.frames > 0", timeout=RUN_MS)

    def player(self, expression: str, argument: Any = None) -> Any:
        """An expression's value, with `player` as the player and `argument`."""
        code = f"argument => {{ const player = document.querySelector('fg-player'); return {expression}; }}"
        return self.look.evaluate(code, argument)

    def shadow(self, selector: str) -> Any:
        """Parts of the player."""
        return self.look.locator(f"fg-player {selector}")

    def node(self, kind: str, expression: str) -> Any:
        """An expression's value, with `node` as the first node of a kind of ours."""
        return self.look.evaluate(f"kind => {{ const node = ({NODE})(kind); return {expression}; }}", kind)

    def note(self, kind: str) -> str:
        """What a node has to say."""
        return str(self.node(kind, "node.widgets.find(({name}) => name === 'note').element.innerText"))

    def show(self, kind: str, scale: float = 1.0) -> None:
        """Move the graph so that a node of ours is in sight."""
        place = f"[{LEFT / scale} - node.pos[0], {TOP / scale} - node.pos[1]]"
        code = f"app.canvas.ds.scale = {scale}; app.canvas.ds.offset = {place}; app.canvas.setDirty(true, true)"
        self.node(kind, f"(() => {{ {code} }})()")
        self.look.wait_for_timeout(500)

    def view(self) -> list[float]:
        """How the graph is scaled and moved."""
        found: list[float] = self.look.evaluate("[app.canvas.ds.scale, ...app.canvas.ds.offset]")
        return found

    def saved(self) -> str:
        """The workflow as it would be written into a file."""
        return str(self.look.evaluate("JSON.stringify(app.graph.serialize())"))

    def close(self) -> None:
        """Close it, and fail on what went wrong."""
        self.context.close()
        assert not self.problems, "\n".join(self.problems)


def example(name: str, steps: int = 4) -> dict[str, Any]:
    """An example workflow with few sampling steps."""
    graph: dict[str, Any] = json.loads((PACK / "example_workflows" / f"{name}.json").read_text(encoding="utf-8"))
    for node in graph["nodes"]:
        if node["type"] == "FlashGrpoSamplePair":
            node["widgets_values"][2] = steps
    return graph


def two_files(before: Path, after: Path) -> dict[str, Any]:
    """A workflow that compares two videos of ComfyUI's input folder, without settings and scores."""
    nodes = [
        {"id": place, "type": "LoadVideo", "pos": [0, 200 * place], "size": [300, 120], "widgets_values": [file.name]}
        for place, file in enumerate((before, after), 1)
    ]
    inputs = [{"name": name, "type": "VIDEO,IMAGE", "link": link} for link, name in enumerate(("before", "after"), 1)]
    for place, node in enumerate(nodes, 1):
        node |= {"outputs": [{"name": "VIDEO", "type": "VIDEO", "links": [place]}], "inputs": []}
    compare = {"id": 3, "type": "FlashGrpoCompareVideos", "pos": [400, 0], "size": [720, 860]}
    nodes.append({**compare, "inputs": inputs, "outputs": [], "widgets_values": [24.0, "flash_grpo/files"]})
    links = [[1, 1, 0, 3, 0, "VIDEO"], [2, 2, 0, 3, 1, "VIDEO"]]
    return {"last_node_id": 3, "last_link_id": 2, "nodes": nodes, "links": links, "groups": [], "version": 0.4}
