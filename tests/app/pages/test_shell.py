"""The frame of every page in a real browser: navigation, languages, themes, banner, login, unknown addresses."""

from __future__ import annotations

from typing import Any

import pytest

PHONE = (360, 740)
PAGES = {
    "home": "/",
    "new": "/new",
    "runs": "/runs",
    "library": "/library",
    "machines": "/machines",
    "settings": "/settings",
    "help": "/help",
}
OWN = ("/", "/example", "/runs", "/machines", "/settings", "/help")
"""The pages whose own tests look at nothing else than the frame has."""
GONE = ("ERR_CONNECTION", "status of 503", "ERR_EMPTY_RESPONSE")


def test_navigation_is_real_links_with_titles_and_the_present_page_marked(studio_page: Any) -> None:
    page = studio_page.open("/help")
    for name, address in PAGES.items():
        link = page.locator(f"#fg-nav a[href='{address}']")
        assert (link.get_attribute("aria-current") == "page") == (name == "help")
    page.locator("#fg-nav a[href='/machines']").click()
    page.wait_for_url("**/machines")
    page.get_by_role("heading", name="Machines", exact=True).wait_for()
    page.go_back()
    page.get_by_role("heading", name="Help", exact=True).wait_for()


def test_the_skip_link_is_first_and_leads_to_the_content(studio_page: Any) -> None:
    page = studio_page.open("/help")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "fg-skip"
    page.keyboard.press("Enter")
    page.wait_for_function("document.activeElement.id === 'fg-main'")


def test_language_and_theme_stay_after_a_reload(studio_page: Any) -> None:
    page = studio_page.open("/help")
    page.locator("#fg-language").select_option("zh")
    page.get_by_role("heading", name="帮助", exact=True).wait_for()
    assert page.evaluate("document.documentElement.lang") == "zh-Hans"
    page.locator("#fg-theme").select_option("dark")
    page.reload()
    page.get_by_role("heading", name="帮助", exact=True).wait_for()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(20, 23, 28)"


def test_the_system_theme_is_followed(studio_page: Any) -> None:
    page = studio_page.open("/help", theme="system", color_scheme="dark")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.emulate_media(color_scheme="light")
    page.wait_for_function("document.documentElement.dataset.theme === 'light'")


def test_the_menu_of_a_phone_opens_and_closes_by_keyboard(studio_page: Any) -> None:
    page = studio_page.open("/help", size=PHONE)
    menu = page.get_by_role("button", name="Menu")
    assert menu.get_attribute("aria-expanded") == "false" and not page.locator("#fg-nav").is_visible()
    menu.press("Enter")
    page.locator("#fg-nav a[href='/runs']").wait_for()
    studio_page.no_sideways_scroll(page)
    page.keyboard.press("Escape")
    page.locator("#fg-nav").wait_for(state="hidden")


def test_every_page_fits_a_phone_and_can_be_used_by_all(studio_page: Any) -> None:
    page = studio_page.open("/", language="zh", theme="dark", size=PHONE)
    for address in OWN:
        page.goto(address)
        page.wait_for_selector(".fg-page h1")
        page.wait_for_timeout(300)
        studio_page.no_sideways_scroll(page)
        studio_page.accessible(page)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_can_be_used_by_all_on_a_desktop(studio_page: Any, theme: str) -> None:
    page = studio_page.open("/", theme=theme)
    for address in OWN:
        page.goto(address)
        page.wait_for_selector(".fg-page h1")
        page.wait_for_timeout(300)
        studio_page.accessible(page)


def test_what_axe_must_find_is_found(studio_page: Any) -> None:
    page = studio_page.open("/help")
    page.evaluate("document.querySelector('#fg-main').insertAdjacentHTML('beforeend', '<img src=\"/web/icon.svg\">')")
    with pytest.raises(AssertionError, match="image-alt"):
        studio_page.accessible(page)


def test_an_unknown_address_has_a_page_with_a_way_back(studio_page: Any) -> None:
    studio_page.allow("status of 404")
    page = studio_page.open("/runs/<b>nowhere", theme="dark", wait="h1:has-text('There is no such page')")
    assert page.locator("fg-missing b").count() == 0
    studio_page.accessible(page)
    page.get_by_role("link", name="To the home page").click()
    page.wait_for_selector("fg-home h1")


def test_the_banner_comes_when_the_server_goes_and_leaves_by_itself(studio_page: Any, own_web: Any) -> None:
    studio_page.allow(*GONE)
    busy = studio_page.open("/runs", served=own_web)
    calm = studio_page.open("/help", served=own_web)  # it asks for nothing, so the frame must
    own_web.stop()
    calm.evaluate("import('/web/api.js').then(({ api }) => api.get('/health')).catch(() => {})")
    for page in (busy, calm):
        page.wait_for_selector("#fg-away")
        assert page.locator(".fg-banners").get_attribute("aria-live") == "polite"
    own_web.start()
    for page in (busy, calm):
        page.wait_for_selector("#fg-away", state="detached")


def test_who_is_not_logged_in_gets_the_form_and_comes_back_to_the_page(studio_page: Any, own_web: Any) -> None:
    studio_page.allow("status of 401")
    own_web.call("POST", "/users", json={"name": "ann", "role": "admin", "password": "correct horse"})
    page = studio_page.open("/runs", served=own_web, wait="#fg-main, fg-runs")
    page.wait_for_selector(".fg-login")
    assert page.evaluate("document.activeElement.name") == "name", "the first field has the focus"
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(1500)
    assert not asked, f"asks on while nobody is logged in: {asked}"
    studio_page.accessible(page)
    page.keyboard.type("ann")
    page.keyboard.press("Tab")
    page.keyboard.type("wrong horse")
    page.keyboard.press("Enter")
    page.get_by_text("The name or the password is wrong.").wait_for()
    page.locator("[name=password]").fill("correct horse")
    page.keyboard.press("Enter")
    page.wait_for_selector(".fg-login", state="detached")
    page.wait_for_selector(".fg-empty .fg-primary")
    assert page.url.endswith("/runs")

    page.locator("#fg-theme").select_option("dark")
    page.wait_for_timeout(300)
    other = studio_page.open("/help", served=own_web, wait="#fg-main, fg-help")
    other.locator(".fg-login [name=name]").fill("ann")
    other.locator(".fg-login [name=password]").fill("correct horse")
    other.keyboard.press("Enter")
    other.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    other.get_by_role("button", name="Log out ann").click()
    other.wait_for_selector(".fg-login")
