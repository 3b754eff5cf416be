"""How far apart before and after are in the player, at each speed, with a slow network and a slow processor.

    python -m benchmarks.player_sync [--seconds 60] [--speeds 0.25 1 2] [--frames 121] [--pairs 100]

Real web app, real Chromium, clips of 832x480 at 24 frames a second with the number of each frame burnt in. Distances
are in frames, over whole loops, read from what is on the screen at each frame of the page; `off` is the share of looks
at which the sides were apart, `pictures` how many came on the screen in a second (undisturbed). `unlinked` is the
player without its link, `screencast` what the compositor drew. Then: milliseconds of the main thread for each second
of play, and memory after so many pairs.
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
from PIL import Image
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from benchmarks.studio_speed import web_app
from flash_grpo_studio.app.settings import Settings
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.tables import Video
from flash_grpo_studio.app.workspace import Workspace
from tests.app.pages.barcode import FILM, POCKET, READER, read_barcode, write_clip

CHROMIUM = "/usr/bin/chromium"
FPS = 24.0
SLOW_NETWORK = {"offline": False, "latency": 80, "downloadThroughput": 250_000, "uploadThroughput": 100_000}
SLOWER = 4
CONDITIONS = {"plain": (False, False), "slow network": (True, False), "slow CPU": (False, True), "both": (True, True)}
OPEN = """
async () => {
  document.querySelector(".fg-page").innerHTML = "<fg-player></fg-player>";
  await import("/web/player/player.js");
  window.player = document.querySelector("fg-player");
}
"""


PICTURES = """
async () => {
  let [count, last] = [0, null];
  const end = performance.now() + 5000;
  while (performance.now() < end) {
    await new Promise(requestAnimationFrame);
    const [seen] = player.pictures;
    count += seen !== last;
    last = seen;
  }
  return count / 5;
}
"""
PANES = """
() => [...player.shadowRoot.querySelectorAll(".pane")]
  .map((pane) => pane.getBoundingClientRect()).map((box) => [box.x, box.y, box.width, box.height])
"""
HIDE_LABELS = """
() => {
  player.mode = "side";
  player.shadowRoot.append(Object.assign(document.createElement("style"), { textContent: ".label { display: none }" }));
}
"""


def write_clips(settings: Settings, client: httpx.Client, frames: int) -> dict[str, str]:
    """Clips in the workspace and in the table of videos; their addresses by name."""
    owner = client.get("/me").json()["id"]
    folder = settings.workspace / "uploads"
    folder.mkdir(parents=True, exist_ok=True)
    clips = {
        "before": write_clip(folder / "before.mp4", frames, **FILM, grain=6),
        "after": write_clip(folder / "after.mp4", frames, **FILM, tint=60, grain=6),
        "pocket before": write_clip(folder / "pocket-before.mp4", 17, **POCKET, fps=8.0),
        "pocket after": write_clip(folder / "pocket-after.mp4", 17, **POCKET, fps=8.0, tint=60),
    }
    store, found = Store(settings.database_url), {}
    with store.writing() as session:
        for name, path in clips.items():
            size = path.stat().st_size
            row = Video(owner_id=owner, path=Workspace(settings.workspace).relative(path), bytes=size)
            session.add(row)
            session.flush()
            found[name] = f"/api/v1/videos/{row.id}/content"
            print(f"{name}: {size / 1e6:.2f} MB", flush=True)
    store.close()
    return found


def player_page(browser: Browser, base: str, *, slow_network: bool = False, slow_cpu: bool = False) -> Page:
    """A page of the studio with nothing but a player on it."""
    page = browser.new_context(viewport={"width": 1280, "height": 800}).new_page()
    page.goto(f"{base}/help")
    page.wait_for_selector("fg-help h2")
    page.evaluate(f"() => {{ {READER} }}")
    page.evaluate(OPEN)
    tools = page.context.new_cdp_session(page)
    if slow_network:
        tools.send("Network.enable")
        tools.send("Network.setCacheDisabled", {"cacheDisabled": True})
        tools.send("Network.emulateNetworkConditions", SLOW_NETWORK)
    if slow_cpu:
        tools.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
    return page


def show(page: Page, clips: dict[str, str], kind: str = "", **more: Any) -> None:
    """Show a pair and wait until it plays."""
    pair = {"before": {"src": clips[f"{kind}before"]}, "after": {"src": clips[f"{kind}after"]}, "same": True, **more}
    page.evaluate("(pair) => player.show(pair)", {"fps": 8 if kind else FPS, **pair})
    page.wait_for_function("player.playing && player.frame > 0", timeout=120_000)


def distances(counts: dict[str, int]) -> dict[str, float]:
    """Mean and largest of counted distances; NaN where there are none."""
    if not counts:
        return {"mean": float("nan"), "max": -1, "off": float("nan")}
    values = np.repeat([int(apart) for apart in counts], list(counts.values()))
    return {
        "mean": round(float(values.mean()), 4),
        "max": int(values.max()),
        "off": round(float((values > 0).mean()), 4),
    }


def drift(page: Page, speed: float, seconds: float, linked: bool = True) -> dict[str, Any]:
    """Play at a speed and watch; then count, without looking into them, how many pictures there are in a second."""
    page.evaluate("([speed, linked]) => Object.assign(player, { speed, linked })", [speed, linked])
    before = page.evaluate("player.resyncs")
    found = page.evaluate("(ms) => fgWatch(player, ms)", seconds * 1000)
    resyncs = page.evaluate("player.resyncs") - before
    facts = {"samples": found["samples"], "unread": found["unread"], "resyncs": resyncs}
    return {**distances(found["apart"]), "pictures": page.evaluate(PICTURES), **facts}


def screencast(page: Page, seconds: float) -> dict[str, Any]:
    """The same from the compositor's own pictures, side by side."""
    page.evaluate(HIDE_LABELS)
    panes = page.evaluate(PANES)
    tools, pictures = page.context.new_cdp_session(page), []

    def drawn(event: dict[str, Any]) -> None:
        pictures.append(base64.b64decode(event["data"]))
        tools.send("Page.screencastFrameAck", {"sessionId": event["sessionId"]})

    tools.on("Page.screencastFrame", drawn)
    tools.send("Page.startScreencast", {"format": "jpeg", "quality": 90, "everyNthFrame": 1})
    page.wait_for_timeout(1000 * seconds)
    tools.send("Page.stopScreencast")
    counts: dict[str, int] = {}
    for data in pictures:
        image = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        scale = image.shape[1] / 1280
        corners = [[int(scale * value) for value in (y, y + high, x, x + wide)] for x, y, wide, high in panes]
        one, other = (read_barcode(image[top:bottom, left:right]) for top, bottom, left, right in corners)
        key = "unread" if one is None or other is None else str(abs(one - other))
        counts[key] = counts.get(key, 0) + 1
    unread = counts.pop("unread", 0)
    return {**distances(counts), "pictures": len(pictures), "unread": unread}


def main_thread(page: Page, seconds: float) -> dict[str, float]:
    """Milliseconds of the main thread for each second, playing and paused."""
    tools = page.context.new_cdp_session(page)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})  # the thread's own time, whatever else runs here

    def busy() -> dict[str, float]:
        metrics = {one["name"]: one["value"] for one in tools.send("Performance.getMetrics")["metrics"]}
        return {name: 1000 * metrics[f"{name}Duration"] for name in ("Task", "Script", "Layout", "RecalcStyle")}

    def measured() -> dict[str, float]:
        began = busy()
        page.wait_for_timeout(1000 * seconds)
        ended = busy()
        return {name: round((ended[name] - began[name]) / seconds, 2) for name in ended}

    playing = measured()
    page.evaluate("player.pause()")
    page.wait_for_timeout(500)
    return {"playing": playing, "paused": measured()}


def memory_of(browser_tools: CDPSession, page_tools: CDPSession) -> dict[str, float]:
    """The page's heap, nodes and listeners, and the browser's memory, after a collection.

    Private is what the renderers alone hold; total counts shared memory too, in which Chromium without a graphics card
    keeps its last pictures, up to a bound of its own.
    """
    for _ in range(2):
        page_tools.send("HeapProfiler.collectGarbage")
    time.sleep(1)
    metrics = {one["name"]: one["value"] for one in page_tools.send("Performance.getMetrics")["metrics"]}
    processes = browser_tools.send("SystemInfo.getProcessInfo")["processInfo"]
    sizes = [(one["type"], psutil.Process(one["id"]).memory_full_info()) for one in processes]
    return {
        "heap_mb": round(metrics["JSHeapUsedSize"] / 1e6, 2),
        "nodes": metrics["Nodes"],
        "listeners": metrics["JSEventListeners"],
        "private_mb": round(sum(size.uss for kind, size in sizes if kind == "renderer") / 1e6, 1),
        "total_mb": round(sum(size.pss for _, size in sizes) / 1e6, 1),
    }


def memory(browser: Browser, base: str, clips: dict[str, str], pairs: int) -> dict[str, Any]:
    """Memory after some seconds of play, then after so many pairs; each has an address of its own."""
    page = player_page(browser, base)
    tools, browser_tools = page.context.new_cdp_session(page), browser.new_browser_cdp_session()
    tools.send("Performance.enable")
    show(page, clips)
    page.wait_for_timeout(10_000)
    found, times = {0: memory_of(browser_tools, tools)}, []
    for number in range(1, pairs + 1):
        one = {name: f"{address}?{number}" for name, address in clips.items()}
        began = time.perf_counter()
        show(page, one, prompt=f"prompt {number}", rewards=[{"name": "motion", "before": 0.1, "after": number}])
        times.append(1000 * (time.perf_counter() - began))
        if number in (pairs // 4, pairs // 2, pairs):
            found[number] = memory_of(browser_tools, tools)
    page.context.close()
    return {"after_pairs": found, "milliseconds_from_show_to_play": round(float(np.median(times)))}


def measure(browser: Browser, base: str, clips: dict[str, str], arguments: argparse.Namespace) -> None:
    """Everything, one line each as it is known."""
    for condition, (slow_network, slow_cpu) in CONDITIONS.items():
        for speed in arguments.speeds:
            page = player_page(browser, base, slow_network=slow_network, slow_cpu=slow_cpu)
            show(page, clips)
            found = drift(page, speed, arguments.seconds)
            print(json.dumps({"condition": condition, "speed": speed, **found}), flush=True)
            page.context.close()
    page = player_page(browser, base)
    show(page, clips)
    print(json.dumps({"condition": "unlinked", "speed": 1, **drift(page, 1, arguments.seconds, False)}), flush=True)
    page.evaluate("player.linked = true")
    show(page, clips, "pocket ", pixelated=True)
    print(json.dumps({"condition": "pocket", "speed": 1, **drift(page, 1, arguments.seconds)}), flush=True)
    show(page, clips)
    print(json.dumps({"screencast": screencast(page, arguments.seconds / 2)}), flush=True)
    for mode in ("side", "wipe", "flicker", "difference", "onion"):
        page.evaluate("(mode) => { player.mode = mode; player.play(); }", mode)
        page.wait_for_timeout(500)
        print(json.dumps({"main_thread_ms_per_s": mode, **main_thread(page, 10)}), flush=True)
    page.context.close()
    print(json.dumps({"memory": memory(browser, base, clips, arguments.pairs)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--speeds", type=float, nargs="+", default=[0.25, 1, 2])
    parser.add_argument("--frames", type=int, default=121)
    parser.add_argument("--pairs", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        listener.close()
        settings = Settings(Path(name) / "workspace", f"sqlite:///{name}/studio.db", "", port=port)
        Workspace(settings.workspace).prepare()
        base = f"http://127.0.0.1:{port}"
        with web_app(settings) as client, sync_playwright() as playwright:
            clips = write_clips(settings, client, arguments.frames)
            while httpx.get(base, headers={"Accept": "text/html"}, trust_env=False).status_code != 200:
                time.sleep(0.2)
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            measure(browser, base, clips, arguments)
            browser.close()


if __name__ == "__main__":
    main()
