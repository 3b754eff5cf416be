"""A page of the studio with nothing but the player on it, and clips that the studio serves to it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.tables import Video
from flash_grpo_studio.app.workspace import Workspace
from tests.app.pages.barcode import FILM, READER, write_clip
from tests.app.pages.conftest import Served, StudioPage

FRAMES = 49  # two seconds of film
SLOW_NETWORK = {"offline": False, "latency": 80, "downloadThroughput": 250_000, "uploadThroughput": 100_000}
SLOWER = 4
OPEN = """
async () => {
  document.querySelector(".fg-page").innerHTML = "<h1>A player</h1><fg-player></fg-player>";
  await import("/web/player/player.js");
  window.player = document.querySelector("fg-player");
  window.heard = [];
  for (const type of ["next", "previous", "error", "ended-once"]) {
    player.addEventListener(`fg-player-${type}`, ({ detail }) => heard.push([type, detail]));
  }
}
"""
"""`player` and `heard`, what it has told the page."""
UNLABELLED = """
() => {
  player.mode = "side";
  player.shadowRoot.append(Object.assign(document.createElement("style"), { textContent: ".label { display: none }" }));
}
"""
"""Side by side, with nothing over the pictures."""


def enter_clip(store: Store, workspace: Workspace, owner: str, path: Path) -> str:
    """A file below the workspace as a video of `owner`; its address."""
    with store.writing() as session:
        row = Video(owner_id=owner, path=workspace.relative(path), bytes=path.stat().st_size)
        session.add(row)
        session.flush()
        return f"/api/v1/videos/{row.id}/content"


class Clips(dict[str, str]):
    """Addresses of clips by name; `folder` is where their files lie."""

    def __init__(self, served: Served) -> None:
        super().__init__()
        self._served, self._owner = served, served.call("GET", "/me")["id"]
        self.folder = served.workspace.folder / "uploads"
        self.folder.mkdir(exist_ok=True)

    def add(self, name: str, frames: int = FRAMES, *, size: dict[str, int] = FILM, **more: Any) -> Path:
        """Make a clip with barcodes; returns its path."""
        path = write_clip(self.folder / f"{name}.mp4", frames, **size, **more)
        return self.enter(name, path)

    def enter(self, name: str, path: Path) -> Path:
        """Have a file served; returns its path."""
        store = self._served.store()
        self[name] = enter_clip(store, self._served.workspace, self._owner, path)
        store.close()
        return path

    def pair(self, kind: str, **more: Any) -> None:
        """A pair of clips, told apart by their colours."""
        self.add(f"{kind} before", **more)
        self.add(f"{kind} after", tint=60, **more)


def throttle(page: Any, *, network: bool = False, cpu: bool = False) -> None:
    """A slow line without a cache, a slow processor."""
    tools = page.context.new_cdp_session(page)
    if network:
        tools.send("Network.enable")
        tools.send("Network.setCacheDisabled", {"cacheDisabled": True})
        tools.send("Network.emulateNetworkConditions", SLOW_NETWORK)
    if cpu:
        tools.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})


class Player:
    """The player of a page."""

    def __init__(self, page: Any) -> None:
        self.page = page
        page.evaluate(f"() => {{ {READER} }}")
        page.evaluate(OPEN)

    @classmethod
    def open(cls, studio_page: StudioPage, **options: Any) -> Player:
        """A player on a page of its own."""
        return cls(studio_page.open("/help", wait="fg-help h2", **options))

    def show(self, before: str, after: str, *, ready: bool = True, **more: Any) -> None:
        """Show a pair, made alike unless `more` says otherwise; returns when both are loaded."""
        self.page.evaluate(
            "(pair) => player.show(pair)",
            {"before": {"src": before}, "after": {"src": after}, "fps": 24, "same": True, **more},
        )
        if ready:
            self.page.wait_for_function("player.frames > 0", timeout=60_000)

    def get(self, name: str) -> Any:
        """A property of the element."""
        return self.page.evaluate(f"player.{name}")

    def set(self, **values: Any) -> None:
        """Set properties of the element."""
        self.page.evaluate("(values) => Object.assign(player, values)", values)

    def press(self, *keys: str) -> None:
        """Press keys on its pictures."""
        for key in keys:
            self.page.locator("fg-player .stage").press(key)

    def settle(self, frame: int) -> None:
        """Wait until both sides show a frame."""
        self.page.wait_for_function(
            "(frame) => !player.playing && fgRead(player.pictures).every((seen) => seen === frame)", arg=frame
        )

    def numbers(self) -> list[int | None]:
        """The numbers of the frames on the screen."""
        found: list[int | None] = self.page.evaluate("fgRead(player.pictures)")
        return found

    def watch(self, seconds: float) -> dict[str, Any]:
        """What was on the screen meanwhile; keys are numbers."""
        found: dict[str, Any] = self.page.evaluate("(ms) => fgWatch(player, ms)", 1000 * seconds)
        for name in ("apart", "frames"):
            found[name] = {int(number): count for number, count in found[name].items() if number != "null"}
        return found

    def text(self, selector: str) -> str:
        """The text of a part of it."""
        return str(self.page.locator(f"fg-player {selector}").first.inner_text())

    def screen(self, selector: str = ".stage") -> npt.NDArray[np.uint8]:
        """What the browser has drawn of a part of it: [H,W,3]."""
        data = self.page.locator(f"fg-player {selector}").screenshot()
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
