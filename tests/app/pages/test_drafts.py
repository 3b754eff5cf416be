"""A form that was begun: it is there after a reload, in another browser, and while the studio is away."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Route

from tests.app.pages.conftest import StudioPage

BUDGET = "#field-budget"


def type_budget(page: Any, text: str) -> None:
    """Set a budget, and wait until that was sent to the server."""
    with page.expect_response(lambda answer: "/drafts/new" in answer.url and answer.request.method == "PUT"):
        page.locator(BUDGET).fill(text)


def budget_is(page: Any, text: str) -> None:
    """Wait until the form shows that budget."""
    page.wait_for_function("([field, text]) => document.querySelector(field)?.value === text", arg=[BUDGET, text])


def test_another_browser_goes_on_where_the_first_one_was(studio_page: StudioPage) -> None:
    first = studio_page.open("/new", wait=BUDGET)
    type_budget(first, "11")
    other = studio_page.open("/new", wait="#fg-restored")
    budget_is(other, "11")
    other.get_by_role("button", name="Start over").click()
    other.wait_for_selector("#fg-restored", state="detached")
    budget_is(other, "")
    first.reload()
    first.wait_for_selector(BUDGET)
    budget_is(first, "")
    assert first.locator("#fg-restored").count() == 0, "what was dropped elsewhere does not come back"


def test_what_was_changed_just_before_a_reload_is_there_after_it(studio_page: StudioPage) -> None:
    page = studio_page.open("/new", wait=BUDGET)
    changed = (
        "(text) => { const box = document.querySelector('#field-budget'); box.value = text;"
        "for (const name of ['input', 'change']) box.dispatchEvent(new Event(name, { bubbles: true }));"
    )
    page.evaluate(f"{changed} location.reload(); }}", "12")
    page.wait_for_selector("#fg-restored")
    budget_is(page, "12")
    type_budget(page, "13")
    # The first one is on its way, its answer never heard, when the second one is made: neither is another window's.

    def answer_nothing(route: Route) -> None:
        if route.request.method == "PUT":
            route.fetch()
        else:
            route.continue_()

    page.route("**/drafts/new*", answer_nothing)
    with page.expect_request(lambda request: "/drafts/new" in request.url and request.method == "PUT"):
        page.locator(BUDGET).fill("14")
    page.wait_for_timeout(300)
    page.evaluate(f"{changed} }}", "15")
    page.reload()
    page.wait_for_selector("#fg-restored")
    budget_is(page, "15")
    assert page.locator("#fg-theirs").count() == 0


def test_of_two_windows_the_later_one_is_asked_whose_form_stays(studio_page: StudioPage) -> None:
    studio_page.allow("status of 409")
    first = studio_page.open("/new", wait=BUDGET)
    type_budget(first, "21")
    second = studio_page.open("/new", wait="#fg-restored")
    type_budget(first, "22")
    type_budget(second, "33")
    second.wait_for_selector("#fg-theirs[role=alert]")
    studio_page.accessible(second)
    second.get_by_role("button", name="Take theirs").click()
    budget_is(second, "22")
    type_budget(second, "44")
    assert second.locator("#fg-theirs").count() == 0
    type_budget(first, "55")
    first.wait_for_selector("#fg-theirs")
    with first.expect_response(lambda answer: answer.request.method == "PUT" and answer.ok):
        first.get_by_role("button", name="Keep mine").click()
    first.wait_for_selector("#fg-theirs", state="detached")
    second.reload()
    budget_is(second, "55")


def test_what_was_typed_while_the_studio_was_away_is_kept_and_sent_later(studio_page: StudioPage, own_web: Any) -> None:
    studio_page.allow("ERR_CONNECTION", "ERR_EMPTY_RESPONSE", "status of 503")
    page = studio_page.open("/new", served=own_web, wait=BUDGET)
    type_budget(page, "66")
    own_web.stop()
    page.locator(BUDGET).fill("77")
    page.wait_for_selector("#fg-kept")
    own_web.start()
    page.wait_for_selector("#fg-kept", state="detached")
    page.evaluate("localStorage.clear()")
    page.reload()
    page.wait_for_selector("#fg-restored")
    budget_is(page, "77")
