"""What a person asks of a run on its page, and what a screen reader is told meanwhile."""

from __future__ import annotations

import pytest

from tests.app.pages.conftest import Served, StudioPage
from tests.app.pages.seed import Seed

# Every text the live region ever held since the page was opened.
LISTEN = """() => {
  window.heard = [];
  const region = document.querySelector("#fg-announce");
  new MutationObserver(() => window.heard.push(region.textContent)).observe(region, {
    childList: true, characterData: true, subtree: true,
  });
}"""


@pytest.mark.parametrize(
    ("button", "words"),
    [("save", "saves a checkpoint"), ("sample", "renders videos")],
)
def test_save_and_sample_now_reach_the_run(served: Served, studio_page: StudioPage, button: str, words: str) -> None:
    seed = Seed(served)
    (seed.folder / "run" / "config.yaml").write_text("seed: 0\n", encoding="utf-8")
    page = studio_page.open(seed.url, wait=f"#fg-{button}")
    page.locator(f"#fg-{button}").click()
    page.wait_for_selector(".fg-notice")
    assert words in page.locator(".fg-notice").inner_text()
    asked = [path.name for path in (seed.folder / "run" / "control").iterdir()]
    assert asked == [button], "exactly this lies in the run's control folder, where the run looks"


def test_a_screen_reader_hears_states_and_no_ticks(served: Served, studio_page: StudioPage) -> None:
    seed = Seed(served)
    seed.measure(1, 3)
    page = studio_page.open(seed.url, wait="#fg-updates")
    page.evaluate(LISTEN)
    for update in (4, 5):
        seed.measure(update, update)
        page.wait_for_function("n => document.querySelector('#fg-updates').textContent.includes(`${n}`)", arg=update)
    assert page.evaluate("window.heard") == [], "progress is shown and not read out"
    seed.set(state="pausing")
    page.wait_for_function("window.heard.length > 0")
    seed.set(state="paused")
    page.wait_for_function("window.heard.length > 1")
    assert ["pausing" in page.evaluate("window.heard")[0], "paused" in page.evaluate("window.heard")[1]] == [True, True]
