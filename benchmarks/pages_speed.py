"""First paint and readiness of every page with a full store, and a click beside 20 idle viewers.

    python -m benchmarks.pages_speed [--jobs 5000] [--updates 100000] [--rounds 3] [--viewers 20]

Real web app, real Chromium. Ready is when the page shows its own content from the API (its heading and, on pages with
data, a row, a curve or a card). The run page shows a run of so many updates with 20 series. Milliseconds; medians.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright
from sqlalchemy import delete, insert

from benchmarks.studio_speed import SERIES, fill, web_app
from flash_grpo_studio.app.settings import Settings
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.migrate import upgrade
from flash_grpo_studio.app.store.tables import Metric
from flash_grpo_studio.app.workspace import Workspace

CHROMIUM = "/usr/bin/chromium"
READY = {
    "/": "fg-home h1",
    "/new": "fg-new-run button.fg-primary",
    "/runs": "fg-runs tbody tr",
    "/run": "fg-run fg-chart canvas",
    "/library": "fg-library h1",
    "/machines": "fg-machines h1",
    "/settings": "fg-settings h1",
    "/help": "fg-help h2",
}


def lengthen(store: Store, job_id: str, updates: int) -> None:
    """Give a job so many updates."""
    values = np.random.default_rng(0).random((updates, len(SERIES)))
    with store.writing() as session:
        session.execute(delete(Metric).where(Metric.job_id == job_id))
        rows = [
            {"job_id": job_id, "update": place + 1, "attempt": 1, "time": 0.0, "values": values[place].tobytes()}
            for place in range(updates)
        ]
        session.execute(insert(Metric), rows)


def load(browser: Browser, address: str, selector: str) -> tuple[float, float]:
    """First contentful paint and readiness of a page in a fresh context, whose cache is empty."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    began = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_selector(selector, state="visible", timeout=60_000)
    ready = 1000 * (time.perf_counter() - began)
    paints = page.evaluate(
        "performance.getEntriesByType('paint').filter(e => e.name === 'first-contentful-paint').map(e => e.startTime)"
    )
    context.close()
    return float(paints[0]) if paints else ready, ready


def click_time(page: Page, base: str) -> float:
    """Milliseconds from a click on a filter of Runs until the list has changed."""
    page.goto(f"{base}/runs")
    page.wait_for_selector("fg-runs tbody tr")
    began = time.perf_counter()
    page.get_by_role("link", name="Failed").or_(page.get_by_role("button", name="Failed")).first.click()
    page.wait_for_function(
        "[...document.querySelectorAll('fg-runs tbody .fg-state')].every(e => e.matches('.fg-state-failed'))"
    )
    return 1000 * (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--updates", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--viewers", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        listener.close()
        settings = Settings(Path(name) / "workspace", f"sqlite:///{name}/studio.db", "", port=port)
        Workspace(settings.workspace).prepare()
        store = Store(settings.database_url)
        upgrade(store)
        ids = fill(store, arguments.jobs, arguments.jobs * 40 * len(SERIES))
        lengthen(store, ids[0], arguments.updates)
        base = f"http://127.0.0.1:{port}"
        result: dict[str, Any] = {}
        with web_app(settings) as client, sync_playwright() as playwright:
            while client.get(base, headers={"Accept": "text/html"}).status_code != 200:
                time.sleep(0.2)
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            for path, selector in READY.items():
                address = f"{base}{path}?id={ids[0]}" if path == "/run" else f"{base}{path}"
                times = [load(browser, address, selector) for _ in range(arguments.rounds)]
                paint, ready = (round(statistics.median(values)) for values in zip(*times, strict=True))
                result[path] = {"first_paint": paint, "ready": ready}
            alone = browser.new_page()
            result["click_alone"] = round(statistics.median(click_time(alone, base) for _ in range(arguments.rounds)))
            for number in range(arguments.viewers):
                viewer = browser.new_context().new_page()
                viewer.goto(f"{base}/run?id={ids[number % 10]}" if number % 2 else f"{base}/runs")
            time.sleep(5)
            key = f"click_beside_{arguments.viewers}_viewers"
            clicks = [click_time(alone, base) for _ in range(arguments.rounds)]
            result[key] = round(statistics.median(clicks))
            browser.close()
        print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
