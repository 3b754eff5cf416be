"""The Run page beside a real run: progress, a closed tab, a killed server, cancel, resume, result."""

from __future__ import annotations

import time

from tests.app.pages.conftest import Served, StudioPage
from tests.chaos import tagged

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
RECOVERY_SECONDS = 10.0


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
