"""Export in a real browser: formats, files with their sums, the model card as text, and sending to a hub."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from flash_grpo_studio.app.store.tables import Checkpoint, Job
from tests.app.pages.conftest import PHONE, Served, StudioPage

WEIGHTS = b"the weights"
CARD = "# A card\n<script>window.hacked=1</script> and **figures**"
HUB = "hf_" + "x" * 30


@pytest.fixture(autouse=True)
def no_jobs(served: Served) -> Iterator[None]:
    """Each test begins with an empty studio."""
    served.clear()
    yield


def aligned(served: Served) -> str:
    """A run with two checkpoints, of which the older one is the best."""
    run = served.enter([{"name": "larger", "state": "succeeded", "update": 8}])[0]
    with served.store().writing() as session:
        session.add_all(Checkpoint(job_id=run, update=update, path="x", best=update == 4) for update in (4, 8))
    return run


def exported(served: Served, run: str, kind: str = "adapter") -> str:
    """An export of a run that is done, with files as the exporter leaves them."""
    ask = {"kind": "export", "job_id": run, "format": kind, "checkpoint": "4"}
    row = {"kind": "export", "name": f"export of {kind}", "state": "succeeded", "parent_id": run, "spec": {"ask": ask}}
    job = served.enter([row])[0]
    folder = served.workspace.job(job)
    files = {f"{kind}.safetensors": WEIGHTS, "README.md": CARD.encode(), "pictures/chart.png": b"not really one"}
    for name, content in files.items():
        path = folder / "export" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    sums = {
        name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in files.items()
    }
    with served.store().writing() as session:
        found = session.get_one(Job, job)
        found.folder, found.result = f"jobs/{job}", {"files": sums, "metadata": {}}
    return job


def test_a_checkpoint_is_exported_in_a_format(served: Served, studio_page: StudioPage) -> None:
    run = aligned(served)
    page = studio_page.open(f"/run?id={run}&tab=files", wait="#fg-export-format")
    assert page.input_value("#fg-export-checkpoint") == "4", "the best checkpoint is offered first"
    page.locator("#fg-checkpoints tr", has_text="8").get_by_role("button", name="Export").click()
    page.wait_for_function("document.querySelector('#fg-export-checkpoint').value === '8'")
    page.locator("#fg-export-format").select_option("merged")
    page.wait_for_selector("text=It needs nothing else")
    page.locator("fg-export form button").first.click()
    page.wait_for_selector("fg-export .fg-state-queued")
    (job,) = served.call("GET", "/jobs?kind=export")["jobs"]
    ask = served.call("GET", f"/jobs/{job['id']}/spec")["ask"]
    assert (ask["job_id"], ask["format"], ask["checkpoint"]) == (run, "merged", "8")
    page.reload()
    page.wait_for_selector("fg-export .fg-state-queued")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.wait_for_selector("fg-export .fg-state-cancelled")


def test_exported_files_have_sums_and_a_card(served: Served, studio_page: StudioPage) -> None:
    run = aligned(served)
    exported(served, run, "peft")
    job = exported(served, run)
    page = studio_page.open(f"/run?id={run}&tab=files", wait="[data-key=made]")
    rows = page.locator("[data-key=made] tbody tr")
    names = [name.strip() for name in rows.locator("th").all_inner_texts()]
    assert sorted(names) == ["README.md", "adapter.safetensors", "pictures/chart.png"]
    row = rows.filter(has_text="adapter.safetensors")
    assert row.locator("code").inner_text() == hashlib.sha256(WEIGHTS).hexdigest()
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    row.get_by_role("button", name="Copy").click()
    row.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == hashlib.sha256(WEIGHTS).hexdigest()
    page.locator("#fg-card summary").click()
    assert page.locator("#fg-card pre").inner_text() == CARD and page.evaluate("window.hacked") is None
    with page.expect_download() as download:
        row.get_by_role("link", name="adapter.safetensors").click()
    assert Path(download.value.path()).read_bytes() == WEIGHTS
    assert page.get_by_role("link", name="zip").get_attribute("href") == f"/api/v1/jobs/{job}/export.zip"
    page.locator("#fg-export-which").select_option(label=page.locator("#fg-export-which option").nth(1).inner_text())
    page.wait_for_selector("[data-key=made] th:has-text('peft.safetensors')")
    assert "PeftModel" in page.locator("[data-key=made]").inner_text()
    studio_page.accessible(page)


def test_nothing_is_sent_without_a_token_and_a_second_yes(served: Served, studio_page: StudioPage) -> None:
    run = aligned(served)
    job = exported(served, run)
    page = studio_page.open(f"/run?id={run}&tab=files", wait="[data-key=no-token]")
    page.locator("[data-key=no-token] a").click()
    page.wait_for_selector("#hub")
    assert "No token is set" in page.locator("#fg-hub-state").inner_text()
    page.locator("#hub [name=token]").fill(HUB)
    page.get_by_role("button", name="Keep the token").click()
    page.wait_for_selector("#fg-hub-state:has-text('A token is set')")
    assert page.locator("#hub [name=token]").input_value() == ""
    page.reload()
    page.wait_for_selector("#fg-hub-state:has-text('A token is set')")
    assert HUB not in page.content() and HUB not in json.dumps(served.call("GET", "/me"))
    page.goto(f"/run?id={run}&tab=files")
    page.locator("fg-push [name=repo]").fill("ann/larger")
    page.get_by_role("button", name="Send").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep").click()
    assert served.call("GET", "/jobs?kind=push")["total"] == 0
    page.get_by_role("button", name="Send").click()
    assert "Only you" in page.get_by_role("dialog").inner_text()
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    page.wait_for_selector("fg-push .fg-state-queued")
    (push,) = served.call("GET", "/jobs?kind=push")["jobs"]
    spec = served.call("GET", f"/jobs/{push['id']}/spec")
    assert spec["ask"]["repo"] == "ann/larger" and spec["ask"]["private"] and spec["ask"]["job_id"] == job
    assert HUB not in json.dumps(spec)
    with served.store().writing() as session:
        row = session.get_one(Job, push["id"])
        row.state, row.result = "succeeded", {"url": "https://hub.example/ann/larger"}
    page.wait_for_selector("#fg-pushed code:has-text('https://hub.example/ann/larger')")
    assert page.locator("#fg-pushed a").count() == 0, "the result is text, and nothing is asked of the hub"
    page.goto("/settings")
    page.get_by_role("button", name="Remove the token").click()
    page.wait_for_selector("#fg-hub-state:has-text('No token is set')")


def test_export_in_chinese_on_a_phone(served: Served, studio_page: StudioPage) -> None:
    run = aligned(served)
    exported(served, run)
    page = studio_page.open(f"/run?id={run}&tab=files", size=PHONE, language="zh", theme="dark", wait="[data-key=made]")
    studio_page.no_sideways_scroll(page)
    studio_page.large_targets(page)
    studio_page.accessible(page)
