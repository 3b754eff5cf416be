"""Built-in prompts by category in a real browser: chosen for a run, looked at in the Library."""

from __future__ import annotations

from typing import Any

from flash_grpo.prompts import built_in_set, load_prompts
from tests.app.pages.conftest import PHONE, Served, StudioPage
from tests.app.pages.test_new_run import launched, ready, settled

KNOWN = built_in_set("studio")


def shown(page: Any) -> list[str]:
    """The prompts of the preview."""
    found: list[str] = page.locator("#step-prompts ~ * .fg-prompts li").all_text_contents()
    return found


def test_categories_of_the_studio_prompts_make_exactly_these_prompts(studio_page: StudioPage, served: Served) -> None:
    page = ready(studio_page.open("/new?preset=micro"))
    assert page.locator("#new-categories").count() == 0, "the pocket world has no categories"
    page.select_option("#new-family", "studio")
    page.wait_for_selector("#new-categories")
    assert page.locator("[data-category]:checked").count() == len(KNOWN.categories)
    assert f"{KNOWN.counts['train']} prompts to train on" in page.inner_text("#new-sizes")
    page.click("text=Choose none")
    page.wait_for_selector("#problem-prompts")
    assert "at least one" in page.inner_text("#problem-prompts")
    page.click("#launch-top")
    page.wait_for_function("document.activeElement.dataset.category === 'people'")
    page.check("#category-food")
    page.check("#category-camera")
    sizes = {split: sum(KNOWN.categories[name][split] for name in ("food", "camera")) for split in KNOWN.counts}
    expected = f"{sizes['train']} prompts to train on, {sizes['validation']} for validation"
    page.wait_for_selector(f"#new-sizes:has-text('{expected}')")
    page.click("text=Look at some of them")
    chosen = {prompt.text for prompt in load_prompts("studio:train:camera+food")}
    page.wait_for_function(f"document.querySelectorAll('.fg-prompts li').length === {len(chosen)}")
    assert set(shown(page)) == chosen
    page.reload()
    ready(page)
    assert page.locator("[data-category]:checked").count() == 2, "a reload loses nothing"
    studio_page.accessible(page)
    page.click("#launch-top")
    ask = launched(page, served)
    config = served.call("GET", f"/jobs/{ask['id']}/config")["config"]
    assert {prompt.text for prompt in load_prompts(config["prompts"])} == chosen
    for key, split in (("validation_prompts", "validation"), ("heldout_prompts", "heldout")):
        assert len(load_prompts(config[key])) == sizes[split]


def test_all_categories_are_the_whole_set(studio_page: StudioPage) -> None:
    page = ready(studio_page.open("/new?preset=micro&set=prompts=studio:train:text", size=PHONE))
    assert page.locator("[data-category]:checked").count() == 1
    page.click("text=Choose all")
    settled(page)
    assert page.evaluate("document.querySelector('fg-new-run').config().prompts") == "studio:train"
    studio_page.no_sideways_scroll(page)


def test_the_library_shows_the_built_in_sets(studio_page: StudioPage) -> None:
    page = studio_page.open("/library", wait="#fg-built-in", language="zh")
    row = page.locator("[data-key=studio]")
    counts = [row.locator("td").nth(place).inner_text() for place in range(4)]
    assert counts == [*(str(count) for count in KNOWN.counts.values()), str(len(KNOWN.categories))]
    row.locator("button").click()
    page.wait_for_selector("#fg-looked-at")
    page.select_option("#fg-category", "weather")
    first = load_prompts("studio:train:weather")[0].text
    page.wait_for_selector(f"#fg-looked-at li:has-text('{first}')")
    assert page.locator("#fg-looked-at li").count() == sum(KNOWN.categories["weather"].values())
    studio_page.accessible(page)
    row.locator("a").click()
    ready(page)
    assert page.input_value("#new-family") == "studio"
    assert page.is_checked('[id="preset-wan2.1-1.3b"]')
