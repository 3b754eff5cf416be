"""The list of runs in a real browser."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

PHONE = (360, 740)
HOSTILE = '<img src=x onerror=alert(1)><script>alert(2)</script> & "quoted" name'


@pytest.fixture(autouse=True)
def no_jobs(served: Any) -> Iterator[None]:
    """Each test begins with an empty studio."""
    served.clear()
    yield


def names(page: Any) -> list[str]:
    """Names in the order of the table."""
    return page.locator("tbody .fg-name a").all_inner_texts()


def wait_for_names(page: Any, wanted: list[str]) -> None:
    """Wait until the table shows these."""
    page.wait_for_function(
        "wanted => JSON.stringify([...document.querySelectorAll('tbody .fg-name a')].map(a => a.innerText)) === wanted",
        arg=json.dumps(wanted, separators=(",", ":")),
    )


def test_an_empty_studio_has_one_thing_to_do(studio_page: Any) -> None:
    page = studio_page.open("/runs", wait=".fg-empty")
    assert page.locator(".fg-page .fg-primary").count() == 1
    assert page.locator(".fg-page .fg-primary").get_attribute("href") == "/new"


def test_filters_stand_in_the_address(studio_page: Any, served: Any) -> None:
    states = ("queued", "succeeded", "failed", "lost", "cancelled")
    served.enter([{"name": state, "state": state} for state in states])
    served.enter([{"name": "zebra export", "state": "succeeded", "kind": "export"}])
    page = studio_page.open("/runs", wait="tbody tr")
    assert len(names(page)) == 6
    page.get_by_role("button", name=re.compile("Failed")).click()
    wait_for_names(page, ["lost", "failed"])
    assert page.url.endswith("/runs?state=failed&state=lost")
    page.reload()
    wait_for_names(page, ["lost", "failed"])
    assert page.locator(".fg-chip[aria-pressed=true]").inner_text().split() == ["Failed", "2"]
    page.get_by_role("button", name=re.compile("Failed")).click()
    page.locator("#fg-kind").select_option("export")
    wait_for_names(page, ["zebra export"])
    assert "kind=export" in page.url
    page.go_back()
    page.wait_for_url("**/runs")
    page.wait_for_function("document.querySelectorAll('tbody tr').length === 6")
    assert page.locator("#fg-kind").input_value() == ""
    page.locator("#fg-sort").select_option("name")
    wait_for_names(page, ["cancelled", "failed", "lost", "queued", "succeeded", "zebra export"])
    page.get_by_role("button", name="Run", exact=True).click()
    wait_for_names(page, ["zebra export", "succeeded", "queued", "lost", "failed", "cancelled"])
    page.locator("#fg-text").fill("EXPORT")
    wait_for_names(page, ["zebra export"])
    assert "text=EXPORT" in page.url and "sort=-name" in page.url
    page.locator("#fg-text").fill("no such run")
    page.get_by_role("button", name="Show all runs").click()
    page.wait_for_function("document.querySelectorAll('tbody tr').length === 6")
    page.goto("/runs?state=nonsense&kind=nothing&sort=sideways")
    page.wait_for_function("document.querySelectorAll('tbody tr').length === 6")


def test_many_at_once_with_a_result_for_each(studio_page: Any, served: Any) -> None:
    one, two, gone = (served.submit(name=name) for name in ("one", "two", "gone"))
    page = studio_page.open("/runs", wait="tbody tr")
    page.get_by_label("Choose all runs shown").check()
    served.call("DELETE", f"/jobs/{gone}")
    page.get_by_role("button", name="Pause (3)").click()
    page.locator("#fg-result").get_by_text("2 runs are paused").wait_for()
    assert "gone: " in page.locator("#fg-result li").inner_text()
    assert {served.call("GET", f"/jobs/{job}")["state"] for job in (one, two)} == {"paused"}
    page.get_by_role("button", name="Choose none").click()

    page.get_by_label("Choose one").check()
    page.get_by_role("button", name="Cancel (1)").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep").click()
    assert served.call("GET", f"/jobs/{one}")["state"] == "paused", "the question was answered with no"
    page.get_by_role("button", name="Cancel (1)").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.locator("#fg-result").get_by_text("1 run is cancelled").wait_for()
    assert served.call("GET", f"/jobs/{one}")["state"] == "cancelled"

    page.get_by_label("Choose one").check()
    page.get_by_role("button", name="Resume (1)").click()
    page.locator("#fg-result").get_by_text("1 run is queued again").wait_for()
    page.get_by_label("Choose two").check()
    page.get_by_role("button", name="Delete (1)").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    wait_for_names(page, ["one"])
    assert page.locator("p[role=status]").inner_text() == "1 run was deleted."


def test_the_queue_is_reordered_by_keyboard(studio_page: Any, served: Any) -> None:
    ids = [served.submit(name=name) for name in ("first", "second", "third")]
    served.call("PATCH", f"/jobs/{ids[2]}", json={"priority": -1})
    page = studio_page.open("/runs?sort=queue", wait="tbody tr")
    wait_for_names(page, ["first", "second", "third"])
    page.get_by_role("button", name="Up in the queue: second").focus()
    page.keyboard.press("Enter")
    wait_for_names(page, ["second", "first", "third"])
    assert "at place 1" in page.locator("p[role=status]").inner_text()
    focused = "document.activeElement.dataset.move + document.activeElement.dataset.id"
    assert page.evaluate(focused) == f"up{ids[1]}", "the button that was pressed has lost the focus"
    page.get_by_role("button", name="Down in the queue: first").press("Enter")
    wait_for_names(page, ["second", "third", "first"])  # though it waited with less priority
    page.get_by_role("button", name="To the top of the queue: first").press("Enter")
    wait_for_names(page, ["first", "second", "third"])
    page.get_by_role("button", name="To the top of the queue: first").press("Enter")
    page.locator("p[role=status]").get_by_text("there already").wait_for(state="attached")


def test_more_rows_come_page_by_page(studio_page: Any, served: Any) -> None:
    served.enter([{"name": f"run {place:03d}", "state": "succeeded"} for place in range(120)])
    page = studio_page.open("/runs", wait="tbody tr")
    assert names(page)[0] == "run 119" and len(names(page)) == 50
    page.get_by_role("button", name="Show 50 more").click()
    page.wait_for_function("document.querySelectorAll('tbody tr').length === 100")
    page.get_by_role("button", name="Show 20 more").click()
    page.wait_for_function("document.querySelectorAll('tbody tr').length === 120")
    assert page.get_by_text("120 of 120 shown").is_visible()
    assert len(set(names(page))) == 120


def test_looks_at_most_once_a_second_and_not_while_hidden(studio_page: Any, served: Any) -> None:
    served.enter([{"name": "waits", "state": "queued"}])
    page = studio_page.open("/runs", wait="tbody tr")
    asked: list[float] = []
    page.on("request", lambda request: asked.append(time.monotonic()) if "/api/v1/jobs" in request.url else None)
    page.wait_for_timeout(2200)
    assert 1 <= len(asked) <= 3, asked
    page.evaluate(
        "Object.defineProperty(document, 'hidden', { value: true, configurable: true });"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.wait_for_timeout(300)
    asked.clear()
    page.wait_for_timeout(1300)
    assert not asked, "a hidden page asks the server"
    page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_timeout(500)
    assert asked, "the page was shown again and did not look"


def test_a_phone_shows_cards_and_text_stays_text(studio_page: Any, served: Any) -> None:
    served.enter([{"name": HOSTILE, "state": "failed", "message": "x" * 300}, {"name": "a" * 200, "state": "queued"}])
    for language, theme in (("en", "light"), ("zh", "dark")):
        page = studio_page.open("/runs", language=language, theme=theme, size=PHONE, wait="tbody tr")
        studio_page.no_sideways_scroll(page)
        page.locator("input[data-id]").first.check()
        studio_page.no_sideways_scroll(page)
        assert names(page)[1] == HOSTILE
        assert page.locator("tbody img, tbody script").count() == 0
        small = page.evaluate(
            "[...document.querySelectorAll('.fg-page :is(button, select, input:not([type=checkbox]))')]"
            ".filter(e => e.offsetParent && e.getBoundingClientRect().height < 43.5).map(e => e.outerHTML.slice(0, 90))"
        )
        assert not small, f"too small to touch: {small}"
        studio_page.accessible(page)


def test_five_thousand_runs_stay_fast(studio_page: Any, served: Any) -> None:
    states = ("succeeded", "failed", "cancelled", "queued")
    served.enter(
        [{"name": f"run {place}", "state": states[place % 4], "position": float(place)} for place in range(5000)]
    )
    began = time.monotonic()
    page = studio_page.open("/runs", wait="tbody tr")
    opened = time.monotonic() - began
    look = page.evaluate(
        "async () => { const began = performance.now(); await (await fetch('/api/v1/jobs?limit=50')).json();"
        " return performance.now() - began; }"
    )
    shown = page.evaluate(
        "async () => { const view = document.querySelector('fg-runs'); const began = performance.now();"
        " view.update(); await Promise.resolve(); await Promise.resolve(); return performance.now() - began; }"
    )
    print(f"5,000 runs: rows after {opened:.2f} s, a look takes {look:.0f} ms, showing it {shown:.1f} ms")
    assert page.get_by_text("50 of 5000 shown").is_visible()
    assert opened < 8 and look < 1000 and shown < 100
    page.locator("#fg-text").fill("run 4999")
    wait_for_names(page, ["run 4999"])
