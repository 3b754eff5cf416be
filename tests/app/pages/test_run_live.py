"""The pages beside a real worker: a run's progress, a closed tab, a killed server, cancel, resume, result; a prompt
rendered on the spot, a composed video and an export; a base model from the hub.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import av
import pytest
from safetensors.numpy import load_file

from tests.app.pages.conftest import Served, StudioPage
from tests.chaos import tagged
from tests.hub_server import COMMIT, HubState, serving

STUDIO = "whole"
SMALL = {
    "updates": 500,
    "checkpoint_every": 2,
    "evaluate_every": 250,
    "validation_limit": 2,
    "heldout_limit": 2,
    "videos_saved": 1,
    "prompts_per_update": 2,
    "group_size": 3,
    "threads": 1,
}
TINY = {**SMALL, "updates": 2, "checkpoint_every": 1, "evaluate_every": 1, "videos_saved": 2}
RECOVERY_SECONDS = 10.0
WORKS_MS = 60_000


@pytest.fixture(scope="module", autouse=True)
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The hub that the studio's worker downloads from; `served` starts after it."""
    weights = "transformer/diffusion_pytorch_model.safetensors"
    state = HubState({"model_index.json": b'{"_class_name": "WanPipeline"}', weights: b"x" * 5000}, {weights})
    with serving(state) as endpoint, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_ENDPOINT", endpoint)
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("home")))
        yield


def test_watch_close_kill_cancel_resume_and_reach_the_result(served: Served, studio_page: StudioPage) -> None:
    studio_page.allow("ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE", "status of 503")
    assert served.processes is not None
    job = served.submit(overrides=SMALL, name="watched", idempotency_key="watched")
    reached = "n => Number(document.querySelector('#fg-progress')?.value) >= n"
    page = studio_page.open(f"/run?id={job}", wait="#fg-progress")
    page.wait_for_function(reached, arg=1, timeout=60_000)
    page.close()
    page = studio_page.open(f"/run?id={job}&tab=samples", wait="#fg-progress")
    page.wait_for_function(reached, arg=2, timeout=30_000)
    page.wait_for_selector(".fg-samples video")
    assert served.call("GET", "/jobs")["total"] == 1

    assert served.processes.kill("web app")
    killed = time.monotonic()
    page.wait_for_selector("#fg-away", timeout=5_000)
    page.wait_for_selector("#fg-away", state="detached", timeout=30_000)
    known = int(page.locator("#fg-progress").get_attribute("value"))
    page.wait_for_function(reached, arg=known + 1)
    recovered = time.monotonic() - killed
    print(f"the page was right again {recovered:.1f} s after the server was killed")
    assert recovered <= RECOVERY_SECONDS

    page.locator("#fg-cancel").click()
    page.locator("#fg-confirm-yes").click()
    page.wait_for_selector(".fg-run-head .fg-state-cancelled", timeout=30_000)
    assert tagged([job]) == []
    # Few updates are left, so that the test need not wait for all of them.
    last = int(served.call("GET", f"/jobs/{job}")["progress"]["update"]) + 2
    served.call("PATCH", f"/jobs/{job}", json={"overrides": {"updates": last}})
    page.locator("#fg-resume").click()
    page.get_by_role("link", name="Overview").click()
    page.wait_for_selector(".fg-run-head .fg-state-succeeded", timeout=90_000)
    page.wait_for_selector("#fg-result")
    assert f"Update {last} of {last}" in page.locator(".fg-run-head").inner_text()
    assert page.locator("#fg-result tbody tr").count() == 2
    page.wait_for_selector("[data-key=newest] video")


def test_a_prompt_is_rendered_a_pair_composed_and_a_checkpoint_exported(
    served: Served, studio_page: StudioPage
) -> None:
    run = served.submit(overrides=TINY, name="tiny")
    page = studio_page.open(f"/run?id={run}", wait="#fg-compare-link")
    page.wait_for_selector(".fg-run-head .fg-state-succeeded", timeout=WORKS_MS)
    page.locator("#fg-compare-link").click()
    page.wait_for_function("document.querySelector('fg-player')?.frames > 0")
    assert page.locator("[data-key=summary] tbody tr").count() == 2

    page.locator("[name=prompt]").fill("a green square")
    page.locator("[name=seed]").fill("3")
    page.get_by_role("button", name="Render", exact=True).click()
    shown = "document.querySelector('.fg-chosen .fg-pair-prompt')?.title === 'a green square'"
    page.wait_for_function(f"{shown} && document.querySelector('fg-player').frames > 0", timeout=WORKS_MS)
    assert "Same prompt" in page.locator("fg-player .chip").inner_text()

    page.get_by_role("button", name="Make the video").click()
    link = page.locator("[data-key=composition] a.fg-primary")
    link.wait_for(timeout=WORKS_MS)
    with page.expect_download() as download:
        link.click()
    with av.open(str(download.value.path())) as video:
        frames = sum(1 for _ in video.decode(video=0))
        assert frames >= 9 and video.streams.video[0].width > video.streams.video[0].height

    page.goto(f"/run?id={run}&tab=files")
    page.locator("fg-export form button").first.click()
    page.wait_for_selector("[data-key=made]", timeout=WORKS_MS)
    row = page.locator("[data-key=made] tbody tr").filter(has_text=".safetensors")
    told = row.locator("code").inner_text()
    with page.expect_download() as download:
        row.get_by_role("link").click()
    adapter = Path(download.value.path())
    assert hashlib.sha256(adapter.read_bytes()).hexdigest() == told
    assert any(name.endswith("lora_B.weight") and value.any() for name, value in load_file(adapter).items())
    page.locator("#fg-card summary").click()
    assert "tiny" in page.locator("#fg-card pre").inner_text() or "pocket" in page.locator("#fg-card pre").inner_text()
    with page.expect_download() as download:
        page.get_by_role("link", name="zip").click()
    assert download.value.path().stat().st_size > adapter.stat().st_size


def test_a_model_from_the_hub_becomes_a_base_model(served: Served, studio_page: StudioPage) -> None:
    studio_page.allow("status of 422")  # what this hub has is no pipeline, and the form says so
    page = studio_page.open("/library?tab=models", wait="#download-repo")
    page.locator("#download-repo").fill("someone/small")
    page.get_by_role("button", name="Download", exact=True).click()
    row = page.locator("tbody tr").filter(has_text="someone/small")
    row.wait_for(timeout=WORKS_MS)
    assert COMMIT[:12] in row.inner_text() and "apache-2.0" in row.inner_text()
    page.wait_for_selector(".fg-download .fg-state-succeeded")
    name = served.call("GET", "/base-models")["base_models"][-1]["name"]
    row.get_by_role("link").click()
    page.wait_for_function("name => document.querySelector('#new-model')?.value === name", arg=name)
    page.get_by_text("expected the folder of a diffusers pipeline").first.wait_for()
