"""What is chosen on a run's page beside its own figures: another run to compare with, and a larger budget."""

from __future__ import annotations

from tests.app.pages.conftest import PHONE, Served, StudioPage
from tests.app.pages.seed import Seed

MANY = 230
"""More runs than any one answer of the API was asked for."""


def test_any_run_can_be_found_to_compare_with(served: Served, studio_page: StudioPage) -> None:
    oldest = Seed(served, name="the very first", config={"learning_rate": 0.5})
    served.enter([{"name": f"run {number}"} for number in range(MANY)])
    seed = Seed(served, name="newest")
    page = studio_page.open(f"{seed.url}&tab=config", wait="#fg-choose-run", theme="dark")
    field = page.get_by_role("combobox", name="Compare with")
    field.click()
    page.get_by_text(f"{MANY + 1 - 20} more: type a part of the name").wait_for()
    assert page.locator("[role=listbox] [role=option]").count() == 20
    assert "newest" not in page.locator("[role=listbox]").inner_text(), "a run compared with itself"
    studio_page.accessible(page)
    field.type("very f")
    page.wait_for_function("document.querySelectorAll('[role=option]').length === 1")
    field.press("ArrowDown")
    assert field.get_attribute("aria-activedescendant") == "fg-choose-0"
    field.press("Enter")
    page.wait_for_selector("#fg-difference")
    assert page.locator("#fg-difference th a").inner_text() == "the very first"
    assert field.input_value() == "the very first" and oldest.id in page.url
    page.reload()
    page.wait_for_selector("#fg-difference")
    page.wait_for_function("document.querySelector('#fg-choose-run').value === 'the very first'")
    field.fill("nothing like it")
    page.get_by_text("No run is called that").wait_for()
    field.press("Escape")
    assert field.input_value() == "the very first", "what was chosen stays"
    page.get_by_role("button", name="Take back").click()
    page.wait_for_selector("#fg-difference", state="detached")
    assert "with=" not in page.url


def test_a_run_whose_budget_is_spent_goes_on_with_a_larger_one(served: Served, studio_page: StudioPage) -> None:
    seed = Seed(served, name="spent", state="paused", budget=2.0, device_seconds=121.0)
    page = studio_page.open(seed.url, wait="#fg-budget", size=PHONE)
    studio_page.allow("status of 409")
    page.locator("#fg-resume").click()
    page.get_by_text("2.017 device-minutes of its budget of 2 are used: raise its budget above that first").wait_for()
    studio_page.no_sideways_scroll(page)
    assert page.get_by_label("New budget in device-minutes").input_value() == "4"
    page.get_by_label("New budget in device-minutes").fill("5")
    page.get_by_role("button", name="Raise the budget and go on").click()
    page.wait_for_selector("#fg-budget", state="detached")
    job = served.call("GET", f"/jobs/{seed.id}")
    assert (job["state"], job["budget"]) == ("queued", 5.0)
