"""Pictures of every page, light and dark, on a desktop and a phone: python -m tests.app.pages.screenshots DIR

The studio is a real one with a worker: a micro run is trained, another one runs, some wait, and one has failed. The
example that ships with the package is entered as a run, so that Home shows its videos and figures.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

from flash_grpo_studio.app.pages.addresses import PAGES, WEB
from tests import chaos
from tests.app.pages.conftest import CHROMIUM, DESKTOP, LANGUAGE_STORE, PHONE, THEME_STORE, Served

MOST_BYTES = 150_000
COLOURS = (256, 128, 64, 32)
SIZES = {"desktop": DESKTOP, "phone": PHONE}
MODES = ("side", "wipe", "flicker", "difference", "onion")
LOADED_MS = 2500
TRAIN_SECONDS = 300.0


def fill(served: Served) -> tuple[str, str]:
    """Something to see; returns the ids of a run that has ended and was exported, and of the example's run."""
    done = served.submit(name="livelier colours", overrides={"updates": 40, "evaluate_every": 8, "checkpoint_every": 8})
    wait_for(served, done)
    wait_for(served, served.call("POST", "/jobs", json={"kind": "export", "job_id": done})["id"])
    served.submit(name="calmer motion, second try", overrides={"updates": 4000})
    for name in ("larger subjects", "larger subjects, more noise", "text that can be read"):
        served.submit(name=name)
    paused = served.submit(name="sharper, on hold")
    served.call("POST", f"/jobs/{paused}/pause")
    lost = {"name": "too large for this machine", "state": "failed", "message": "the machine ran out of memory"}
    served.enter([{**lost, "created": time.time() - 7200, "update": 3}])
    example = json.loads((WEB / "example" / "example.json").read_text(encoding="utf-8"))
    kept = {
        "updates": example["updates"],
        "update": example["updates"],
        "preset": example["preset"],
        "state": "succeeded",
    }
    row = {"name": "larger subjects on the pocket model", "result": example, **kept}
    return done, served.enter_with_videos(row, [pair["prompt"] for pair in example["pairs"]])


def wait_for(served: Served, job: str) -> None:
    """Wait for the end of a job."""
    deadline = time.monotonic() + TRAIN_SECONDS
    while served.call("GET", f"/jobs/{job}")["state"] not in ("succeeded", "failed"):
        assert time.monotonic() < deadline, "the job did not end"
        time.sleep(0.5)


def small(picture: bytes) -> bytes:
    """The picture with as many colours as fit into MOST_BYTES."""
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    for colours in COLOURS:
        output = io.BytesIO()
        image.quantize(colours, dither=Image.Dither.NONE).save(output, "PNG", optimize=True)
        if output.tell() <= MOST_BYTES:
            break
    return output.getvalue()


def shoot(browser: Any, served: Served, runs: tuple[str, str], target: Path) -> list[Path]:
    """A picture of each page in each theme and size, and of Compare in each of its modes."""
    done, example = runs
    pages = {entry.name: f"/run?id={done}" if entry.name == "run" else entry.address for entry in PAGES}
    more = {f"compare-{mode}": f"/compare?job={example}&mode={mode}&frame=6" for mode in MODES}
    more["export"] = f"/run?id={done}&tab=files"
    found = []
    for theme in ("light", "dark"):
        for size in SIZES:
            page = opened(browser, served, theme, size)
            plain = (theme, size) == ("light", "desktop")
            for name, address in {**pages, **(more if plain else {})}.items():
                page.goto(address)
                page.wait_for_selector(".fg-page h1")
                page.wait_for_timeout(LOADED_MS)
                if name == "export":
                    page.locator("fg-export").scroll_into_view_if_needed()
                if name.startswith("compare-"):
                    page.locator("fg-player").scroll_into_view_if_needed()
                path = target / f"{name}-{theme}-{size}.png"
                path.write_bytes(small(page.screenshot()))
                found.append(path)
            page.context.close()
    return found


def opened(browser: Any, served: Served, theme: str, size: str) -> Any:
    """An empty page in a theme and size."""
    width, height = SIZES[size]
    context = browser.new_context(
        base_url=served.url,
        viewport={"width": width, "height": height},
        locale="en-GB",
        has_touch=size == "phone",
    )
    context.add_init_script(
        f"localStorage.setItem('{LANGUAGE_STORE}', 'en'); localStorage.setItem('{THEME_STORE}', '{theme}')"
    )
    return context.new_page()


def main(target: Path) -> None:
    """Start a studio, fill it, and write the pictures."""
    target.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="flash-grpo-screenshots-") as folder,
        chaos.running_studio(Path(folder) / "workspace") as studio,
        sync_playwright() as playwright,
    ):
        served = Served(studio.port, studio.workspace, studio)
        served.wait_for_pages()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        made = shoot(browser, served, fill(served), target)
        browser.close()
    largest = max(path.stat().st_size for path in made)
    print(f"{len(made)} pictures in {target}, the largest {largest / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
