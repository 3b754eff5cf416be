"""Prices and ranges in a real browser: a rate is set, plans and runs tell prices, a budget may be given as one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.app.pages.conftest import PHONE, Served, StudioPage
from tests.app.pages.test_new_run import launched, ready, settled

NO_CONFIG = "status of 409"  # a run entered as a row has no configuration to show
LINK = "text=Set a rate to see prices"


@pytest.fixture(autouse=True)
def no_rate(served: Served) -> Iterator[None]:
    """Each test begins without a rate."""
    served.call("PATCH", "/price", json={"device_hour_rate": None})
    yield


def set_rate(served: Served, rate: float) -> None:
    served.call("PATCH", "/price", json={"device_hour_rate": rate, "currency": "EUR"})


def test_a_price_appears_once_a_rate_is_set(studio_page: StudioPage, served: Served) -> None:
    page = ready(studio_page.open("/new"))
    assert "EUR" not in page.inner_text("fg-new-run")
    assert page.locator(LINK).count() == 2
    page.locator(LINK).first.click()
    page.wait_for_selector("#fg-rate")
    page.fill("#fg-rate", "-1")
    page.click("fg-price button")
    page.wait_for_selector("#fg-rate[aria-invalid]")
    assert "0 or more" in page.inner_text("#fg-rate-problem")
    page.fill("#fg-rate", "6")
    page.click("fg-price button")
    page.wait_for_selector("text=Name the currency")
    page.fill("#fg-currency", "<b>€</b>")
    page.click("fg-price button")
    page.wait_for_selector("text=Saved: 6.00 <b>€</b> for an hour of one device.")
    assert served.call("GET", "/price")["device_hour_rate"] == 6
    studio_page.accessible(page)
    page.goto("/new")
    ready(page)
    assert page.locator(LINK).count() == 0
    verdict = page.locator(".fg-verdict").first.inner_text()
    assert "about" in verdict and "<b>€</b>" in verdict, "the price is shown as text"
    assert "–" in verdict, "time and price are ranges"
    assert "assumed speed" in page.inner_text("#step-review ~ .fg-table-box")


def test_a_budget_as_a_price_is_kept_in_minutes(studio_page: StudioPage, served: Served) -> None:
    set_rate(served, 3)
    page = ready(studio_page.open("/new?preset=micro"))
    page.fill("#field-budget", "30")
    page.wait_for_selector("#new-budget-is:has-text('1.50 EUR')")
    page.check("#budget-price")
    assert page.input_value("#field-budget") == "1.5"
    page.fill("#field-budget", "2,5")
    page.wait_for_selector("#new-budget-is:has-text('50 device-minutes')")
    page.fill("#field-budget", "much")
    page.wait_for_selector("#field-budget-problem")
    settled(page)
    page.reload()
    ready(page)
    assert page.is_checked("#budget-price")
    page.fill("#field-budget", "7")
    page.wait_for_selector("#new-budget-is:has-text('140 device-minutes')")
    settled(page)
    studio_page.accessible(page)
    page.click("#launch-top")
    assert launched(page, served)["budget"] == 140


def running(served: Served) -> str:
    """A run that has used half an hour of a device and has 12 to 15 minutes left."""
    progress = {"phase": "rollout", "eta_low_seconds": 725.0, "eta_high_seconds": 905.0, "time": time.time()}
    row = {"name": "at work", "state": "running", "update": 4, "progress": progress, "device_seconds": 1800.0}
    return served.enter([row])[0]


def test_a_run_tells_what_is_left_and_what_it_costs(studio_page: StudioPage, served: Served) -> None:
    studio_page.allow(NO_CONFIG)
    served.clear()
    job = running(served)
    page = studio_page.open(f"/run?id={job}", wait="#fg-left")
    facts = page.locator(".fg-run-facts")
    assert page.inner_text("#fg-left") == "about 12–15 min left"
    assert "30 min 0 s of about 40–45 min" in facts.inner_text()
    assert page.locator("[data-key=price]").count() == 0
    set_rate(served, 6)
    page.wait_for_selector("[data-key=price]")
    assert "3.00 EUR of about 4.20–4.50 EUR" in facts.inner_text()
    page.goto("/runs")
    row = page.locator(f"tr[data-key='{job}']")
    row.wait_for()
    assert "about 12–15 min left · 3.00 EUR" in row.inner_text()


def test_a_run_that_waits_tells_what_was_planned(studio_page: StudioPage, served: Served) -> None:
    set_rate(served, 60)
    page = studio_page.open(f"/run?id={served.submit(overrides={'updates': 2000})}", wait="[data-key=device_time]")
    planned = page.inner_text("[data-key=device_time]")
    assert "0 s of about" in planned and "as planned" in planned
    assert "0.00 EUR of about" in page.inner_text("[data-key=price]")


def test_ranges_in_chinese_on_a_phone(studio_page: StudioPage, served: Served) -> None:
    studio_page.allow(NO_CONFIG)
    served.clear()
    set_rate(served, 6)
    job = running(served)
    page: Any = studio_page.open(f"/run?id={job}", language="zh", theme="dark", size=PHONE, wait="#fg-left")
    assert page.inner_text("#fg-left") == "约剩 12–15 分钟"
    assert "已用 3.00 EUR，共约 4.20–4.50 EUR" in page.inner_text(".fg-run-facts")
    studio_page.no_sideways_scroll(page)
    ready(page.goto("/new") and page)
    assert "费用" in page.inner_text("#step-review ~ .fg-table-box")
    studio_page.no_sideways_scroll(page)
