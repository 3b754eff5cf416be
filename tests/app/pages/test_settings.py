"""Settings in a real browser."""

from __future__ import annotations

from typing import Any

import httpx


def test_a_token_is_shown_once_works_and_is_revoked(studio_page: Any, served: Any) -> None:
    page = studio_page.open("/settings", wait="#fg-new-token")
    form = page.locator("#fg-new-token")
    form.locator("[name=name]").fill("<b>ComfyUI</b>")
    form.get_by_label("start and change runs").check()
    form.locator("[name=days]").select_option("7")
    form.get_by_role("button", name="Make a token").click()
    token = page.locator("#fg-token").inner_text()
    assert token.startswith("fgs_")
    answer = httpx.get(f"{served.url}/api/v1/me", headers={"Authorization": f"Bearer {token}"}, trust_env=False)
    assert answer.json()["scopes"] == ["read", "write"]
    assert page.locator("tbody th", has_text="<b>ComfyUI</b>").is_visible(), "the name is shown as text"
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == token
    page.reload()
    page.wait_for_selector("#fg-new-token")
    assert token not in page.content() and page.locator("#fg-made").count() == 0
    page.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    page.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    page.get_by_text("You have no tokens.").wait_for()
    answer = httpx.get(f"{served.url}/api/v1/me", headers={"Authorization": f"Bearer {token}"}, trust_env=False)
    assert answer.status_code == 401


def test_what_is_refused_is_said_and_loses_no_input(studio_page: Any) -> None:
    studio_page.allow("status of 422")
    page = studio_page.open("/settings", wait="#fg-new-user")
    page.locator("#fg-new-user [name=name]").fill("two words")
    page.locator("#fg-new-user [name=password]").fill("long enough")
    page.get_by_role("button", name="Add the user").click()
    page.locator(".fg-error").wait_for()
    page.wait_for_timeout(1200)
    assert page.locator(".fg-error").is_visible(), "it stays until the next action"
    assert page.locator("#fg-new-user [name=name]").input_value() == "two words"


def test_users_and_the_own_password(studio_page: Any, own_web: Any) -> None:
    studio_page.allow("status of 401", "status of 403", "status of 409", "status of 422")
    page = studio_page.open("/settings", served=own_web, wait="#fg-new-user")
    page.locator("#fg-new-user [name=name]").fill("ann")
    page.locator("#fg-new-user [name=password]").fill("correct horse")
    page.locator("#fg-new-user [name=role]").select_option("admin")
    page.get_by_role("button", name="Add the user").click()
    page.locator(".fg-login [name=name]").fill("ann")  # from now on there is a login
    page.locator(".fg-login [name=password]").fill("correct horse")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Your password").wait_for()

    page.locator("#fg-new-user [name=name]").fill("bob")
    page.locator("#fg-new-user [name=password]").fill("battery staple")
    page.get_by_role("button", name="Add the user").click()
    page.get_by_label("Role of bob").wait_for()
    page.get_by_label("Role of bob").select_option("viewer")
    page.get_by_label("Role of ann").select_option("creator")
    page.locator(".fg-error").wait_for()  # the last administrator stays one
    assert page.get_by_label("Role of ann").input_value() == "admin"
    page.locator("tr", has_text="bob").get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    page.get_by_label("Role of bob").wait_for(state="detached")

    page.locator("[name=old_password]").fill("correct horse")
    page.locator("[name=new_password]").fill("another horse")
    page.get_by_role("button", name="Change the password").click()
    page.locator(".fg-login [name=name]").fill("ann")
    page.locator(".fg-login [name=password]").fill("another horse")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Your password").wait_for()


def test_theme_and_language_follow_the_settings(studio_page: Any) -> None:
    page = studio_page.open("/settings", size=(360, 740), wait="#fg-new-token")
    page.locator("#fg-own-theme").select_option("dark")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    studio_page.accessible(page)
    page.locator("#fg-own-language").select_option("zh")
    page.get_by_role("heading", name="设置", exact=True).wait_for()
    studio_page.no_sideways_scroll(page)
