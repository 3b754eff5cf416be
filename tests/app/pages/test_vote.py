"""Vote in a real browser: blind until the choice, by buttons and keys, with results and bad luck."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from flash_grpo_studio.app.store.tables import Ballot
from tests.app.pages.conftest import PHONE, Served, StudioPage
from tests.app.pages.test_compare import UPDATE, run_of

UNLOCKED = "button[data-choice=left]:not([disabled])"
VIDEOS = "[...document.querySelector('fg-player').shadowRoot.querySelectorAll('video')]"
FETCHED = f"""Promise.all({VIDEOS}.map(async ({{ src }}) => {{
  const answer = await fetch(src);
  const headers = Object.fromEntries([...answer.headers].filter(([name]) => name !== "date"));
  return {{ address: src, headers, bytes: (await answer.arrayBuffer()).byteLength }};
}}))"""
END = "status of 404"  # of the request that finds no pair left


@pytest.fixture(autouse=True)
def no_jobs(served: Served) -> Iterator[None]:
    """Each test begins with an empty studio."""
    served.clear()
    with served.store().writing() as session:
        session.query(Ballot).delete()
    yield


def vote(studio_page: StudioPage, run: str, **options: Any) -> Any:
    """The page of a run's base model and checkpoint, a pair of them loaded."""
    page = studio_page.open(f"/vote?before={run}@0&after={run}@{UPDATE}", **options)
    page.wait_for_function("document.querySelector('fg-player')?.frames > 0")
    return page


def all_there_is(page: Any) -> str:
    """Document, shadow of the player and what its videos are called."""
    return str(
        page.evaluate(
            "document.documentElement.outerHTML + document.querySelector('fg-player').shadowRoot.innerHTML"
            " + performance.getEntriesByType('resource').map(entry => entry.name)"
        )
    )


def test_nothing_tells_the_sides_before_the_choice(served: Served, studio_page: StudioPage) -> None:
    run = run_of(served, ["one", "two", "three"])
    ids = [video["id"] for video in served.call("GET", f"/jobs/{run}/videos")["videos"]]
    said: list[str] = []
    page = studio_page.open(f"/vote?before={run}@0&after={run}@{UPDATE}")
    page.on("console", lambda message: said.append(message.text))
    page.wait_for_selector(UNLOCKED)
    shown = all_there_is(page)
    assert not [id_ for id_ in ids if id_ in shown], "the real videos' ids are known"
    assert ".mp4" not in shown, "a file's name is known"
    assert not page.locator("fg-player .badges li").count() and not page.locator("fg-player .chip").count()
    assert page.locator("fg-player .label").all_inner_texts()[:2] == ["Left", "Right"]
    left, right = page.evaluate(FETCHED)
    assert re.search(r"/ballots/[0-9a-f]+/left\?", left["address"]) and "/right?" in right["address"]
    assert (left["bytes"], left["headers"]) == (right["bytes"], right["headers"]), (
        "size or headers tell the sides apart"
    )
    assert not said, said
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#fg-next")
    assert not [id_ for id_ in ids if id_ in all_there_is(page)], "a choice reveals nothing by itself"
    page.keyboard.press("r")
    page.wait_for_selector("#fg-revealed")
    assert len([id_ for id_ in ids if id_ in all_there_is(page)]) == 2, "what would be found before, is found now"
    told = page.locator("#fg-revealed").inner_text()
    first = "base model" if told.startswith("Left: base model") else "update 4"
    page.wait_for_selector("fg-player .badges li")
    page.wait_for_function("document.querySelector('fg-player').frames > 0")
    boxes = {label.inner_text(): label.bounding_box()["x"] for label in page.locator("fg-player .pane .label").all()}
    assert min(boxes, key=lambda name: boxes[name]) == first, "each video stays where it was"


def test_buttons_unlock_after_both_played_and_one_choice_can_be_undone(served: Served, studio_page: StudioPage) -> None:
    run = run_of(served, ["one", "two", "three"])
    page = vote(studio_page, run)
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("t")
    assert page.locator("#fg-next").count() == 0, "a choice counted before both were seen"
    page.wait_for_selector(UNLOCKED)
    assert "Pair 1 of 3" in page.locator("[data-key=progress]").inner_text()
    prompt = page.locator(".fg-vote-prompt").inner_text()
    page.get_by_role("button", name="Both bad").click()
    page.wait_for_selector("#fg-next")
    assert page.evaluate("document.activeElement.id") == "fg-next"
    page.keyboard.press("u")
    page.wait_for_selector(UNLOCKED)
    page.keyboard.press("ArrowLeft")
    page.wait_for_selector("#fg-next")
    assert page.get_by_role("button", name="Undo").count() == 0, "a second undo is offered"
    page.keyboard.press("Enter")
    page.wait_for_function("old => document.querySelector('.fg-vote-prompt')?.innerText !== old", arg=prompt)
    assert "Pair 2 of 3" in page.locator("[data-key=progress]").inner_text()
    page.keyboard.press("n")
    page.keyboard.press("n")  # twice, and yet one pair is skipped
    page.wait_for_function("document.querySelector('[data-key=progress]').innerText.includes('3 of 3')")
    page.wait_for_selector(UNLOCKED)
    page.keyboard.press("t")
    page.wait_for_selector("#fg-next")
    page.keyboard.press("n")
    page.wait_for_selector("#fg-over")
    page.wait_for_selector("[data-whose=mine]")
    counts = page.locator("[data-whose=mine] dd").all_inner_texts()
    assert sorted(counts[:2]) == ["0", "1"] and counts[2:] == ["1", "0", "1"]
    words = page.locator("[data-whose=mine]").inner_text()
    assert "personal" in words and "preliminary" in words and "Not distinguishable" in words
    with page.expect_download() as download:
        page.get_by_role("link", name="Votes as CSV").click()
    rows = download.value.path().read_text(encoding="utf-8-sig").splitlines()
    assert len(rows) == 4 and rows[0].startswith("time,voter,prompt")
    studio_page.accessible(page)


def test_who_asked_for_stillness_starts_the_videos_himself(served: Served, studio_page: StudioPage) -> None:
    run = run_of(served, ["one", "two"])
    page = vote(studio_page, run, reduced_motion=True)
    page.wait_for_timeout(300)
    assert not page.evaluate("document.querySelector('fg-player').playing")
    assert page.locator("button[data-choice=left]").is_disabled()
    page.keyboard.press("k")
    page.wait_for_selector(UNLOCKED)


def test_two_tabs_and_a_pair_that_goes_away(served: Served, studio_page: StudioPage) -> None:
    studio_page.allow("status of 409", "status of 410", END)
    run = run_of(served, ["one", "two", "three", "<img src=x onerror='window.hacked=1'>"])
    page, other = vote(studio_page, run), vote(studio_page, run)
    prompt = page.locator(".fg-vote-prompt").inner_text()
    assert other.locator(".fg-vote-prompt").inner_text() == prompt, "both tabs show the ballot that waits for an answer"
    for tab in (page, other):
        tab.wait_for_selector(UNLOCKED)
        tab.keyboard.press("ArrowLeft")
    page.wait_for_selector("#fg-next")
    other.wait_for_selector("text=That pair was voted on already")
    assert other.locator(".fg-vote-prompt").inner_text() != prompt
    served.call("DELETE", f"/jobs/{run}")
    other.wait_for_selector(UNLOCKED)
    other.keyboard.press("t")
    other.wait_for_selector("#fg-gone")
    assert other.evaluate("window.hacked") is None


@pytest.mark.parametrize(
    ("address", "title"),
    [
        ("?before=x&after=y", "names no two models"),
        ("?job=0123456789abcdef", "is not there"),
        ("", "Nothing to compare yet"),
    ],
)
def test_addresses_that_name_nothing(studio_page: StudioPage, address: str, title: str) -> None:
    studio_page.allow(END)
    page = studio_page.open(f"/vote{address}", wait=".fg-empty")
    assert title in page.locator(".fg-empty h2").inner_text()


def test_vote_in_chinese_on_a_phone(served: Served, studio_page: StudioPage) -> None:
    run = run_of(served, ["长" * 300, "two"])
    page = vote(studio_page, run, size=PHONE, language="zh", theme="dark")
    page.wait_for_selector(UNLOCKED)
    studio_page.no_sideways_scroll(page)
    studio_page.accessible(page)
    studio_page.large_targets(page)
