"""Machines in a real browser."""

from __future__ import annotations

import time
from typing import Any

from flash_grpo_studio.app.jobs import workers
from flash_grpo_studio.app.store.tables import DeviceLease, Worker

FACTS = {
    "cores": 8,
    "load": 2.5,
    "memory_mb": 32000,
    "memory_free_mb": 16000,
    "disk_free_mb": 500000,
    "system": "Linux",
}


def register(served: Any, host: str, devices: int = 2) -> str:
    """A worker that says nothing more."""
    store = served.store()
    plain = [{"name": f"cpu:{place}", "kind": "cpu", "model": "x86", "memory_mb": 16000} for place in range(devices)]
    found = workers.register(store, host, 1, 1.0, "0.1.0", plain, FACTS)
    store.close()
    return found


def test_without_a_worker_the_page_says_how_to_start_one(studio_page: Any) -> None:
    page = studio_page.open("/machines", wait=".fg-empty")
    assert page.locator(".fg-page .fg-primary").count() == 1
    page.locator(".fg-page .fg-primary").click()
    assert page.locator("#start-worker").get_by_text("flash-grpo worker", exact=True).is_visible()


def test_workers_with_devices_runs_and_facts(studio_page: Any, served: Any) -> None:
    worker = register(served, "big-machine")
    job = served.enter([{"name": "at work", "state": "running", "worker_id": worker, "fence": 1}])[0]
    store = served.store()
    with store.writing() as session:
        lease = {"worker_id": worker, "job_id": job, "fence": 1, "since": time.time() - 90}
        session.add(DeviceLease(host="big-machine", device="cpu:1", **lease))
    page = studio_page.open("/machines", wait="[aria-label=big-machine]")
    card = page.locator("[aria-label=big-machine]")
    assert card.locator("[data-key='cpu:0']").inner_text().endswith("free")
    link = card.locator("[data-key='cpu:1'] a")
    assert link.inner_text() == "at work" and link.get_attribute("href") == f"/run?id={job}"
    assert "2.5 on 8 cores" in card.inner_text()
    assert page.locator("tr", has_text="cpu:1").get_by_text("1 min 3").is_visible()

    card.get_by_role("button", name="Drain").click()
    page.get_by_role("dialog").get_by_role("button", name="Leave it as it is").click()
    assert served.call("GET", "/workers")["workers"][0]["state"] == "active"
    card.get_by_role("button", name="Drain").click()
    page.get_by_role("dialog").get_by_role("button", name="Drain").click()
    card.get_by_text("draining").wait_for()
    card.get_by_role("button", name="Take new runs again").click()
    card.get_by_role("button", name="Drain").wait_for()

    with store.writing() as session:
        session.get_one(Worker, worker).seen = time.time() - 20
    card.get_by_text("it may be dead").wait_for()
    with store.writing() as session:
        session.get_one(Worker, worker).state = "gone"
    card.wait_for(state="detached")
    page.get_by_label("Show also workers that are gone").check()
    card.wait_for()
    store.close()


def test_machines_in_chinese_on_a_phone(studio_page: Any, served: Any) -> None:
    register(served, "a-machine-with-a-very-long-name-indeed-without-any-space.example.org", devices=4)
    page = studio_page.open("/machines", language="zh", theme="dark", size=(360, 740), wait=".fg-device")
    studio_page.no_sideways_scroll(page)
    studio_page.accessible(page)
