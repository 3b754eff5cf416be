"""The New run page in a real browser: one click, prompts, mistakes, clones, Chinese, a phone, the keyboard alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx
import yaml

from flash_grpo.config import RunConfig, presets
from flash_grpo.rewards.registry import available
from flash_grpo_studio.app.pages.addresses import WEB
from tests.app.pages.conftest import PHONE, Served, StudioPage

REFUSED = "status of 4"
"""What Chromium says of an answer that refuses."""


def ready(page: Any) -> Any:
    """Wait until the form is there and checked."""
    page.wait_for_selector("#launch-top")
    settled(page)
    return page


def settled(page: Any) -> None:
    """Wait until the newest change was answered."""
    page.wait_for_function(
        "(() => { const p = document.querySelector('fg-new-run'); return !p.stale && !p.state.planning; })()"
    )


def launched(page: Any, served: Served) -> dict[str, Any]:
    """Wait for the run's page; the request of its job."""
    page.wait_for_url(re.compile(r"/run\?id=[0-9a-f]{16}"))
    id_ = page.url.rpartition("=")[2]
    found: dict[str, Any] = served.call("GET", f"/jobs/{id_}/spec")["ask"]
    return {**found, "id": id_}


def total(served: Served) -> int:
    """How many jobs there are."""
    return int(served.call("GET", "/jobs")["total"])


def test_one_click_launches_the_pocket_demo(studio_page: StudioPage, served: Served) -> None:
    before = total(served)
    page = studio_page.open("/new")
    page.wait_for_selector("#launch-top")
    page.dblclick("#launch-top")  # twice is once
    ask = launched(page, served)
    assert (ask["preset"], ask["overrides"], total(served)) == ("pocket", {}, before + 1)
    again = httpx.post(f"{served.url}/api/v1/jobs", json={k: v for k, v in ask.items() if k != "id"}, trust_env=False)
    assert (again.status_code, again.json()["id"]) == (200, ask["id"])  # its key is used up


def test_the_plan_says_how_long_and_what_to_change(studio_page: StudioPage, served: Served) -> None:
    page = ready(studio_page.open("/new"))
    assert "about" in page.inner_text(".fg-launch >> nth=0")
    page.check('[id="preset-wan2.1-14b"]')
    page.select_option("#new-plan-for", "RTX-4090")
    page.wait_for_selector("#new-fit .fg-error")
    assert page.get_attribute("#launch-top", "aria-disabled") == "true"
    before = total(served)
    page.click("#launch-top", force=True)
    page.wait_for_function("document.activeElement.id === 'new-fit'")
    assert total(served) == before
    page.click("#new-fit button >> nth=0")
    page.wait_for_selector("#new-advanced >> text=changed")
    page.select_option("#new-plan-for", "B200")
    page.wait_for_selector("#launch-top:not([aria-disabled])")


def test_own_prompts_and_an_upload(studio_page: StudioPage, served: Served) -> None:
    page = ready(studio_page.open("/new"))
    page.check("#preset-micro")
    page.check("#source-own")
    page.fill(
        "#new-text", "a red <b>circle</b>\na red <b>circle</b>\n" + "\n".join(f"a blue square {n}" for n in range(20))
    )
    page.wait_for_selector("text=1 repeated")
    content = b"prompt\n<script>alert(1)</script> a green star\n"
    page.set_input_files(
        '[data-key="own"] input[type=file]', {"name": "more.csv", "mimeType": "text/csv", "buffer": content}
    )
    page.wait_for_selector("text=23 prompts")
    assert page.input_value("#new-text").endswith("<script>alert(1)</script> a green star")
    page.focus("#new-share")
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    settled(page)
    studio_page.allow(REFUSED)
    binary = {"name": "x.txt", "mimeType": "text/plain", "buffer": bytes(range(256))}
    page.set_input_files('[data-key="own"] input[type=file]', binary)
    page.wait_for_selector("text=neither a video")
    page.reload()
    ready(page)
    assert page.input_value("#new-text").startswith("a red <b>circle</b>")  # a reload loses nothing
    page.click("#launch-top")
    ask = launched(page, served)
    assert len(ask["prompts"]) == len(ask["heldout"]) == 11
    assert "<script>alert(1)</script> a green star" in ask["prompts"] + ask["heldout"]
    assert served.call("GET", "/uploads")["total"] == 0  # only their prompts were wanted


def test_a_wrong_value_is_told_beside_its_field_and_nothing_is_lost(studio_page: StudioPage, served: Served) -> None:
    page = ready(studio_page.open("/new"))
    page.click("#new-advanced > summary")
    page.fill("#field-group_size", "1")
    assert "2 or more" in page.inner_text("#field-group_size-problem")  # without asking the server
    page.fill("#field-group_size", "twelve")
    page.fill("#field-frames", "10")
    page.fill("#field-negative_prompt", "<i>blurry</i>")
    page.wait_for_selector("#field-frames-problem")
    assert "nearest are 9 and 13" in page.inner_text("#field-frames-problem")
    before = total(served)
    page.click("#new-advanced > summary")  # closed: launching opens it again
    page.click("#launch-top")
    page.wait_for_function("document.activeElement.id === 'field-frames'")
    assert page.get_attribute("#field-frames", "aria-invalid") == "true"
    assert total(served) == before
    page.reload()
    ready(page)
    page.click("#new-advanced > summary")
    values = [page.input_value(f"#field-{key}") for key in ("group_size", "negative_prompt")]
    assert values == ["twelve", "<i>blurry</i>"]
    page.fill("#new-search", "denoising steps of a rollout")
    page.wait_for_function("document.querySelectorAll('#new-advanced .fg-form-field').length === 1")
    assert page.is_visible("#field-sampling_steps")


def test_every_field_of_the_configuration_is_there_and_accessible(studio_page: StudioPage) -> None:
    page = ready(studio_page.open("/new"))
    page.click("#new-advanced > summary")
    page.wait_for_selector("#field-updates")
    keys = page.eval_on_selector_all("#new-advanced [data-field]", "all => all.map(e => e.dataset.field)")
    assert set(RunConfig.model_fields) <= set(keys)
    studio_page.accessible(page)


def test_rewards_as_shares(studio_page: StudioPage, served: Served) -> None:
    page = ready(studio_page.open("/new?preset=micro"))
    page.check("#reward-flicker")
    page.fill("#weight-flicker", "3")
    page.wait_for_selector(".fg-shares >> text=75%")
    page.check("#watch-colorfulness")
    page.wait_for_selector(".fg-shares >> text=100%")
    page.click("#launch-top")
    ask = launched(page, served)
    assert ask["overrides"]["rewards"] == {"colorfulness": 0, "sharpness": 0, "flicker": 3}


def test_a_clone_marks_what_changed_and_sets_it_back(studio_page: StudioPage, served: Served) -> None:
    first = served.submit(overrides={"updates": 3, "seed": 7}, name="first <b>run</b>")
    page = ready(studio_page.open(f"/new?clone={first}"))
    assert "first <b>run</b>" in page.inner_text(".fg-notice")
    page.click("#new-advanced > summary")
    assert page.input_value("#field-updates") == "3"
    assert page.locator("#new-advanced .fg-changed").count() == 0
    page.fill("#field-updates", "5")
    page.fill("#field-seed", "8")
    page.wait_for_selector('[data-key="updates"].fg-changed >> text=Changed from 3')
    page.click('[data-key="seed"] button')
    page.wait_for_selector('[data-key="seed"]:not(.fg-changed)')
    assert page.input_value("#field-seed") == "7"
    page.click("#launch-top")
    ask = launched(page, served)
    assert (ask["overrides"]["updates"], ask["overrides"]["seed"]) == (5, 7)
    assert served.call("GET", f"/jobs/{ask['id']}")["cloned_from"] == first


def test_a_clone_of_nothing_says_so(studio_page: StudioPage) -> None:
    studio_page.allow(REFUSED)
    page = ready(studio_page.open("/new?clone=0123456789abcdef"))
    assert "no job" in page.inner_text(".fg-error")


def test_saved_loaded_and_shared(studio_page: StudioPage, served: Served, tmp_path: Path) -> None:
    page = ready(studio_page.open("/new?preset=micro&set=updates=5&set=nope=1"))
    studio_page.allow(REFUSED)
    page.wait_for_selector("text=unknown configuration key 'nope'")  # a link of another version
    page.goto("/new?preset=micro&set=updates=5")
    ready(page)
    page.click("text=Save, load, share")
    with page.expect_download() as saved:
        page.click("text=Save the configuration (YAML)")
    values = yaml.safe_load(Path(saved.value.path()).read_text(encoding="utf-8"))
    assert RunConfig(**values).updates == 5
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump({**values, "updates": 6}), encoding="utf-8")
    page.set_input_files('input[accept=".json,.yaml,.yml"]', file)
    page.wait_for_selector(".fg-launch >> text=6 updates")
    file.write_text("a: [", encoding="utf-8")
    page.set_input_files('input[accept=".json,.yaml,.yml"]', file)
    page.wait_for_selector("text=neither YAML nor JSON")
    assert "6 updates" in page.inner_text(".fg-launch >> nth=0")


def test_a_link_with_nonsense_leaves_the_form_usable(studio_page: StudioPage) -> None:
    wrong = (
        "rewards=null",
        'reward_options={"sharpness":1}',
        "lora_targets=1",
        'updates={"a":1}',
        "model=[1]",
        "frames=<b>",
    )
    studio_page.allow(REFUSED)
    page = ready(studio_page.open("/new?preset=<script>&" + "&".join(f"set={entry}" for entry in wrong)))
    assert "must be mended first" in page.inner_text(".fg-launch >> nth=0")
    page.click("#new-advanced > summary")
    assert page.input_value("#field-frames") == "<b>"
    assert page.is_checked("#preset-pocket")


def test_in_chinese_on_a_phone_in_the_dark(studio_page: StudioPage) -> None:
    page = ready(studio_page.open("/new", language="zh", theme="dark", size=PHONE))
    assert page.inner_text("#launch-top") == "开始训练"
    page.click("#new-advanced > summary")
    page.wait_for_selector("#field-updates")
    assert re.search(r"[\u4e00-\u9fff]", page.inner_text('[data-key="learning_rate"]'))
    page.check("#source-own")
    studio_page.no_sideways_scroll(page)
    small = page.evaluate(
        "[...document.querySelectorAll('fg-new-run :is(button, select, summary, input[type=text], .fg-button)')]"
        ".filter(e => e.offsetParent && e.getBoundingClientRect().height < 43.5).map(e => e.outerHTML.slice(0, 90))"
    )
    assert not small
    studio_page.accessible(page)


def test_the_keyboard_alone_launches(studio_page: StudioPage, served: Served) -> None:
    page = ready(studio_page.open("/new"))
    page.focus("#fg-theme")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "launch-top"  # the first stop of the page
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    assert page.is_checked("#preset-micro")
    settled(page)
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    assert launched(page, served)["preset"] == "micro"


def test_what_the_api_describes_is_told_in_chinese_too() -> None:
    words = json.loads((WEB / "form_zh.json").read_text(encoding="utf-8"))
    assert set(words["fields"]) == set(RunConfig.model_fields)
    assert set(words["presets"]) == set(presets())
    assert set(words["rewards"]) == set(available())
    for name, card in available().items():
        assert len(words["rewards"][name]["exploits"]) == len(card.exploits)
        assert set(words["rewards"][name].get("option_words", {})) == set(card.options)
