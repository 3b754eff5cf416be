"""Home and the finished example in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flash_grpo_studio.app.pages.addresses import WEB
from flash_grpo_studio.app.pages.example import MOST_BYTES, make

EXAMPLE = WEB / "example"
HELDOUT = {
    "subject_size": {"before": 0.804, "after": 0.982, "gain": 0.178, "ci95": [0.154, 0.203], "win_rate": 0.87},
    "flicker": {"before": 0.737, "after": 0.687, "gain": -0.05, "ci95": [-0.058, -0.042], "win_rate": 0.07},
    "sharpness": {"before": 3.0, "after": 3.01, "gain": 0.01, "ci95": [-0.02, 0.04], "win_rate": 0.5},
}


@pytest.fixture(autouse=True)
def no_jobs(served: Any) -> Iterator[None]:
    """Each test begins with an empty studio."""
    served.clear()
    yield


def finished_run(served: Any, pairs: int) -> str:
    """A run that has ended well, with the example's videos as its own."""
    result = {"heldout": HELDOUT, "rewards": {"subject_size": 1.0, "flicker": 0.0, "sharpness": 0.0}}
    row = {"name": "bigger subjects", "state": "succeeded", "result": result, "update": 8}
    return str(served.enter_with_videos(row, [f"prompt {place}" for place in range(pairs)]))


def playing(page: Any) -> str:
    """A condition: both videos of the first pair play."""
    return "[...document.querySelectorAll('.fg-pair video')].slice(0, 2).every(v => !v.paused && v.currentTime > 0)"


def test_an_empty_studio_offers_the_example_and_ones_own(studio_page: Any) -> None:
    page = studio_page.open("/", wait=".fg-hero")
    primary = page.locator(".fg-page .fg-primary")
    assert primary.count() == 1 and primary.get_attribute("href") == "/new"
    page.wait_for_function(playing(page))
    assert page.get_by_text("real results").is_visible()
    page.get_by_role("link", name="See a finished example").first.click()
    page.wait_for_url("**/example")
    page.wait_for_selector("fg-example table")


def test_the_small_demo_is_one_click_and_one_run_however_often_pressed(studio_page: Any, served: Any) -> None:
    page = studio_page.open("/", wait=".fg-hero")
    page.get_by_role("button", name="Run the small demo now").dblclick()
    page.wait_for_url("**/run?id=*")
    jobs = served.call("GET", "/jobs")["jobs"]
    assert [(job["preset"], job["state"]) for job in jobs] == [("pocket", "queued")]
    assert page.url.endswith(jobs[0]["id"])
    page.wait_for_selector(".fg-page h1")


def test_what_runs_and_the_newest_result(studio_page: Any, served: Any) -> None:
    job = finished_run(served, 2)
    progress = {"phase": "rollout", "eta_low_seconds": 90.0, "eta_high_seconds": 110.0}
    rows = [{"name": "at work", "state": "running", "update": 20, "updates": 80, "progress": progress}]
    running = served.enter([*rows, *({"name": f"waits {place}", "state": "queued"} for place in range(8))])[0]
    page = studio_page.open("/", wait=".fg-pair")
    card = page.locator(f"[data-key='{running}']")
    assert "20 / 80 · 25%" in card.inner_text() and "about 2 min left" in card.inner_text()
    assert card.locator("a").get_attribute("href") == f"/run?id={running}"
    assert page.get_by_text("more runs wait").is_visible()
    assert page.locator(".fg-page .fg-primary").get_attribute("href") == "/new"

    newest = page.locator("[aria-labelledby=fg-newest]")
    assert newest.get_by_role("link", name="bigger subjects").get_attribute("href") == f"/run?id={job}"
    changes = newest.locator(".fg-changes li").all_inner_texts()
    assert "subject_size" in changes[0] and "0.804 → 0.982" in changes[0] and "[+0.154, +0.203]" in changes[0]
    assert [way.inner_text() for way in newest.locator(".fg-change .fg-hidden").all()] == [
        "better beyond doubt", "worse beyond doubt", "no sure difference",
    ]  # fmt: skip
    page.wait_for_function(playing(page))
    assert "prompt 0" in newest.locator("figcaption").inner_text()
    newest.get_by_role("button", name="Another prompt").click()
    page.get_by_text("prompt 1").wait_for()
    page.wait_for_function(playing(page))
    newest.get_by_role("button", name="Stop the videos").click()
    page.wait_for_function("[...document.querySelectorAll('video')].every(v => v.paused)")
    studio_page.accessible(page)


def test_nothing_moves_for_who_asked_for_stillness(studio_page: Any) -> None:
    page = studio_page.open("/example", reduced_motion=True, wait="table")
    page.wait_for_function("document.querySelector('fg-player').frames > 0")
    page.wait_for_timeout(500)
    state = "[document.querySelector('fg-player').playing, document.querySelector('fg-player').frame]"
    assert page.evaluate(state) == [False, 0]
    page.keyboard.press("k")
    page.wait_for_function("document.querySelector('fg-player').frame > 0")


def test_the_example_shows_the_runs_own_figures_curves_and_videos(studio_page: Any) -> None:
    facts = json.loads((EXAMPLE / "example.json").read_text(encoding="utf-8"))
    page = studio_page.open("/example", wait="table")
    row = page.locator("tr", has_text="subject_size").first.inner_text()
    found = facts["heldout"]["subject_size"]
    assert f"{found['before']:.3f}" in row and f"+{found['gain']:.3f}" in row and "optimised" in row
    assert page.get_by_text("pocket model").first.is_visible()
    assert page.locator("#fg-prompt option").count() == len(facts["pairs"]) == 12
    page.wait_for_function("document.querySelector('fg-player').frame > 0")
    page.keyboard.press("n")
    page.locator("fg-player .prompt", has_text=facts["pairs"][1]["prompt"]).wait_for()
    first_badge = page.locator("fg-player .badges li").first.inner_text()
    assert "subject_size" in first_badge and "optimised" in first_badge
    page.locator("[data-series='reward/subject_size']").scroll_into_view_if_needed()
    page.wait_for_function(
        "(() => { const canvas = document.querySelector(\"[data-series='reward/subject_size'] canvas\");"
        "const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        "return data.some(value => value > 0); })()"
    )
    assert page.locator("fg-chart").count() == len(facts["series"])


def test_the_example_is_small_and_complete() -> None:
    facts = json.loads((EXAMPLE / "example.json").read_text(encoding="utf-8"))
    assert sum(path.stat().st_size for path in EXAMPLE.iterdir()) <= MOST_BYTES
    wanted = {pair[side] for pair in facts["pairs"] for side in ("before", "after")} | {"example.json"}
    assert wanted == {path.name for path in EXAMPLE.iterdir()}
    assert facts["model"] == "pocket" and facts["updates"] == len(facts["series"]["drift"]["update"])


def test_an_example_can_be_made_of_any_finished_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for update in ("000000", "000002"):
        (run / "videos" / update).mkdir(parents=True)
        (run / "videos" / update / "p0-3.mp4").write_bytes(b"video of " + update.encode())
        scores = {
            "seed": 3,
            "prompts": [{"id": "p0", "text": "one"}, {"id": "p1", "text": "two"}],
            "rewards": {"r": [0, 1]},
        }
        (run / "videos" / update / "scores-heldout.json").write_text(json.dumps(scores))
    files = {"videos_before": "videos/000000", "videos_after": "videos/000002"}
    plain = {
        "preset": "p",
        "seed": 3,
        "updates": 2,
        "minutes": 1,
        "nfe": 2,
        "cost": 3,
        "rewards": {"r": 1},
        "heldout": {},
    }
    (run / "summary.json").write_text(json.dumps({**plain, "files": files}))
    (run / "config.yaml").write_text("model: pocket\n")
    metrics = {"rewards": {"r": {"mean": 0.5, "group_spread": 0.25}}, "grad_norm": None, "drift": 0, "clip_fraction": 0}
    evaluation = {"split": "heldout", "rewards": {}}
    events = [
        {"type": "run_started", "config": {"model": "pocket"}, "versions": {}},
        *({"type": "metrics", "update": update, **metrics} for update in (1, 2)),
        {"type": "evaluation", "update": 2, **evaluation},
    ]
    common = {"v": 1, "attempt": 1, "time": 1.0}
    lines = [json.dumps({**common, "seq": place + 1, **event}) + "\n" for place, event in enumerate(events)]
    (run / "events.jsonl").write_text("".join(lines))
    made = make(run, tmp_path / "example")
    assert made["series"]["reward/r"] == {"update": [1, 2], "value": [0.5] * 2, "low": [0.25] * 2, "high": [0.75] * 2}
    assert made["series"]["grad_norm"]["value"] == [None, None]
    assert [(pair["prompt"], pair["scores"]) for pair in made["pairs"]] == [("one", {"r": [0, 0]})]
    assert (tmp_path / "example" / "00-after.mp4").read_bytes() == b"video of 000002"
