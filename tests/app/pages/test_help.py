"""Help in a real browser: every entry that another page may link to is there."""

from __future__ import annotations

import json
from typing import Any

from flash_grpo_studio.app.pages.addresses import WEB


def test_every_reward_curve_warning_and_failure_has_an_entry(studio_page: Any, served: Any) -> None:
    page = studio_page.open("/help", wait="[id^=reward-]")
    there = set(page.evaluate("[...document.querySelectorAll('.fg-term')].map(entry => entry.id)"))
    words = json.loads((WEB / "texts" / "en.json").read_text(encoding="utf-8"))
    parts = {"curve": ("curve.", ".meaning"), "warning": ("run.advice.", ""), "failure": ("run.remedy.", "")}
    wanted = {f"reward-{card['name']}" for card in served.call("GET", "/rewards")}
    for kind, (start, end) in parts.items():
        names = [
            key.removeprefix(start).removesuffix(end) for key in words if key.startswith(start) and key.endswith(end)
        ]
        wanted |= {f"{kind}-{name}" for name in names}
    assert wanted - there == {"warning-other"}, "each has an entry; advice on unknown warnings has none"
    assert len(there) > 50


def test_an_entry_in_the_address_is_shown_and_focused(studio_page: Any) -> None:
    page = studio_page.open("/help#curve-drift", wait="[id^=reward-]")
    page.wait_for_function("document.activeElement.id === 'curve-drift'")
    box = page.locator("#curve-drift").bounding_box()
    assert 0 <= box["y"] < 400
    page.evaluate("location.hash = '#reward-flicker'")
    page.wait_for_function("document.activeElement.id === 'reward-flicker'")
    assert "A still video scores 1." in page.locator("#reward-flicker").inner_text()
    page.evaluate("location.hash = '#no-such-entry'")
    page.wait_for_timeout(100)


def test_help_in_chinese(studio_page: Any) -> None:
    page = studio_page.open("/help", language="zh", wait="[id^=reward-]")
    assert "漂移" in page.locator("#curve-drift h3").inner_text()
    words = json.loads((WEB / "form_zh.json").read_text(encoding="utf-8"))["rewards"]["flicker"]
    shown = page.locator("#reward-flicker").inner_text()
    assert words["title"] in shown and words["measures"] in shown and words["exploits"][0] in shown
    assert page.locator("#reward-flicker [lang=en]").count() == 0
