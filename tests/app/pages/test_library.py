"""The Library in a real browser: prompt sets, rewards, base models, checkpoints."""

from __future__ import annotations

from typing import Any

from flash_grpo_studio.app.store.tables import Checkpoint
from tests.app.pages.conftest import PHONE, Served, StudioPage

REFUSED = "status of 4"
NAME = "<img src=x onerror=alert(1)> mine"


def make(served: Served, name: str) -> dict[str, Any]:
    """A prompt set."""
    found: dict[str, Any] = served.call("POST", "/prompt-sets", json={"name": name, "prompts": ["a red circle"]})
    return found


def test_a_prompt_set_from_first_to_last(studio_page: StudioPage, served: Served) -> None:
    page = studio_page.open("/library", wait="button:has-text('New prompt set')")
    assert "No prompt set yet" in page.inner_text("fg-library")
    page.click("button:has-text('New prompt set')")
    page.click("form button:has-text('Save')")
    assert page.evaluate("document.activeElement.id") == "set-name"
    page.fill("#set-name", NAME)
    file = {
        "name": "a.jsonl",
        "mimeType": "text/plain",
        "buffer": b'{"prompt": "a red <b>circle</b>"}\n{"prompt": "a star"}\n',
    }
    page.set_input_files("form input[type=file]", file)
    page.wait_for_selector("text=2 prompts")
    page.click("form button:has-text('Save')")
    page.wait_for_selector(f"th:has-text('{NAME}')")
    page.click("tr button:has-text('Edit')")
    page.wait_for_selector("#set-heldout")
    page.wait_for_function("document.querySelector('#set-text').value === 'a red <b>circle</b>\\na star'")
    page.fill("#set-text", "a red <b>circle</b>\na moon")
    page.check("#set-shared")
    page.click("form button:has-text('Save')")
    page.wait_for_selector("th .fg-badge")
    (brief,) = served.call("GET", "/prompt-sets")["prompt_sets"]
    kept = served.call("GET", f"/prompt-sets/{brief['id']}")
    assert [prompt["text"] for prompt in kept["prompts"]] == ["a red <b>circle</b>", "a moon"] and kept["shared"]
    page.click("tr a:has-text('New run')")
    page.wait_for_selector("#new-set")
    assert page.input_value("#new-set") == brief["id"]
    page.go_back()
    page.click("tr button:has-text('Delete')")
    page.click("tr button.fg-danger")
    page.wait_for_selector("text=No prompt set yet")


def test_two_people_edit_a_prompt_set(studio_page: StudioPage, served: Served) -> None:
    made = make(served, "ours")
    page = studio_page.open("/library", wait="tr button:has-text('Edit')")
    page.click("tr button:has-text('Edit')")
    page.wait_for_function("document.querySelector('#set-text')?.value === 'a red circle'")
    served.call("PATCH", f"/prompt-sets/{made['id']}", json={"prompts": ["theirs"]})
    studio_page.allow(REFUSED)
    page.fill("#set-text", "mine")
    page.click("form button:has-text('Save')")
    page.wait_for_selector("text=was changed by someone else")
    assert page.input_value("#set-text") == "mine"
    page.click("text=Save mine over it")
    page.wait_for_selector("form", state="detached")
    (prompt,) = served.call("GET", f"/prompt-sets/{made['id']}")["prompts"]
    assert prompt["text"] == "mine"
    page.click("button:has-text('New prompt set')")
    page.fill("#set-name", "ours")
    page.fill("#set-text", "again")
    page.click("form button:has-text('Save')")
    page.wait_for_selector("text=choose another name")
    assert page.input_value("#set-text") == "again"


def test_rewards_explain_themselves(studio_page: StudioPage) -> None:
    page = studio_page.open("/library?tab=rewards", wait="#try-video")
    page.click("button:has-text('Upload and score')")
    assert page.evaluate("document.activeElement.id") == "try-video"
    assert "Choose a video first" in page.inner_text(".fg-error")
    studio_page.allow(REFUSED)
    page.set_input_files("#try-video", {"name": "x.mp4", "mimeType": "video/mp4", "buffer": b"\x00\x01 no video"})
    page.click("button:has-text('Upload and score')")
    page.wait_for_selector("text=neither a video")
    page.click("#reward-card-colorfulness summary")
    assert "Oversaturated colours" in page.inner_text("#reward-card-colorfulness details ul")
    studio_page.accessible(page)


def test_models_and_downloads(studio_page: StudioPage, served: Served) -> None:
    page = studio_page.open("/library?tab=models", wait="#download-repo")
    page.click("button:has-text('Download')")
    assert "owner/name" in page.inner_text(".fg-error")
    page.click("button:has-text('Put into the form') >> nth=0")
    assert page.input_value("#download-repo").startswith("Wan-AI/")
    page.click("button:has-text('Download')")
    page.wait_for_selector(".fg-download .fg-state-queued")
    (job,) = served.call("GET", "/jobs?kind=download")["jobs"]
    served.call("POST", f"/jobs/{job['id']}/cancel")
    page.wait_for_selector(".fg-download .fg-state-cancelled")


def test_checkpoints_of_all_runs(studio_page: StudioPage, served: Served) -> None:
    job = served.submit(name="<b>run</b>")
    with served.store().writing() as session:
        session.add_all(
            [Checkpoint(job_id=job, update=4, path="x"), Checkpoint(job_id=job, update=8, path="y", best=True)]
        )
    page = studio_page.open("/library?tab=checkpoints", wait="tbody tr")
    assert page.locator("tbody tr").count() == 2
    page.check("#best-only")
    page.wait_for_function("document.querySelectorAll('tbody tr').length === 1")
    assert page.get_attribute("tbody th a", "href") == f"/run?id={job}"
    page.click("nav.fg-tabs >> text=Base models")
    page.wait_for_selector("#download-repo")
    page.go_back()
    page.wait_for_selector("text=<b>run</b>")


def test_in_chinese_on_a_phone(studio_page: StudioPage, served: Served) -> None:
    make(served, "长" * 150)
    page = studio_page.open("/library", language="zh", theme="dark", size=PHONE, wait="tbody tr")
    studio_page.no_sideways_scroll(page)
    studio_page.accessible(page)
    for tab, there in (("rewards", "#try-video"), ("models", "#download-repo"), ("checkpoints", "#best-only")):
        page.goto(f"/library?tab={tab}")
        page.wait_for_selector(there)
        studio_page.no_sideways_scroll(page)
