"""Compare in a real browser: two models pair by pair, all of it in the address, and what is rendered on the spot."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from flash_grpo_studio.app.store.tables import Checkpoint, File, Job, Video
from tests import sides
from tests.app.pages.conftest import PHONE, Served, StudioPage

SCRIPT = "<img src=x onerror='window.hacked=1'> a red circle"
MISSING = "status of 404"
READY = "document.querySelector('fg-player')?.frames === 9"
MANY = 10_000
UPDATE = 4


@pytest.fixture(autouse=True)
def no_jobs(served: Served) -> Iterator[None]:
    """Each test begins with an empty studio."""
    served.clear()
    yield


def run_of(served: Served, prompts: list[str], name: str = "bigger subjects") -> str:
    """A finished run with real videos and scores of both sides."""
    return served.enter_with_videos({"name": name, "state": "succeeded", "update": UPDATE, "updates": UPDATE}, prompts)


def compare(studio_page: StudioPage, run: str, more: str = "", **options: Any) -> Any:
    """The page of a run's base model and checkpoint, its first pair loaded."""
    page = studio_page.open(f"/compare?before={run}@0&after={run}@{UPDATE}{more}", **options)
    page.wait_for_function(READY)
    return page


def shadow(page: Any, selector: str) -> str:
    """Text of a part of the player."""
    return str(page.locator(f"fg-player {selector}").first.inner_text())


def listed(page: Any) -> list[str]:
    """The prompts in the list, from above."""
    return [text.strip() for text in page.locator(".fg-pair-prompt").all_inner_texts()]


def wait_for_address(page: Any, part: str) -> None:
    """Wait until the address holds a part."""
    page.wait_for_function("part => decodeURIComponent(location.search).includes(part)", arg=part)


def values(page: Any) -> dict[str, str]:
    """The address' values."""
    found: dict[str, str] = page.evaluate("Object.fromEntries(new URLSearchParams(location.search))")
    return found


def succeed(served: Served, job_id: str) -> None:
    """Say that a job is done."""
    with served.store().writing() as session:
        session.get_one(Job, job_id).state = "succeeded"


def test_one_click_from_home_shows_the_newest_run(served: Served, studio_page: StudioPage) -> None:
    run = run_of(served, ["one", "two", "three"])
    page = studio_page.open("/")
    page.get_by_role("link", name="Compare", exact=True).click()
    page.wait_for_function(READY)
    assert values(page)["before"] == f"{run}@0" and values(page)["after"] == f"{run}@{UPDATE}"
    began = time.monotonic()
    page.reload()
    page.wait_for_function(READY)
    print(f"first comparison {time.monotonic() - began:.2f} s after the page was asked for, one click from Home")
    assert "Same prompt" in shadow(page, ".chip")
    badges = page.locator("fg-player .badges li").all_inner_texts()
    assert "subject_size" in badges[0] and "optimised" in badges[0] and any("watched" in text for text in badges)
    rows = page.locator("[data-key=summary] tbody tr").all_inner_texts()
    assert rows[0].startswith("subject_size optimised")
    assert all("better" in row or "worse" in row or "not distinguishable" in row for row in rows)
    assert page.locator(".fg-verdicts li").count() >= 1
    studio_page.accessible(page)


def test_the_address_holds_all_that_is_shown(served: Served, studio_page: StudioPage) -> None:
    run = run_of(served, ["one", "two", "three", "four"])
    page = compare(studio_page, run)
    first, second = listed(page)[:2]
    page.locator(".fg-pair-button").nth(1).click()
    page.wait_for_function(f"document.querySelector('.fg-chosen .fg-pair-prompt').title === '{second}'")
    page.wait_for_function(READY)
    page.keyboard.press("4")
    page.keyboard.press("k")
    page.keyboard.press(">")
    page.keyboard.press(",")
    wait_for_address(page, "frame=7")
    assert values(page)["mode"] == "difference"
    page.locator("#fg-sort").select_option("prompt")
    wait_for_address(page, "sort=prompt")
    page.wait_for_function("document.querySelector('.fg-pair-prompt').title === 'four'")
    page.go_back()
    page.wait_for_function(f"document.querySelector('.fg-chosen .fg-pair-prompt')?.title === '{second}'")
    page.reload()
    page.wait_for_function(READY)
    page.wait_for_function("document.querySelector('fg-player').frame === 7")
    state = page.evaluate("document.querySelector('fg-player').state()")
    assert state["mode"] == "difference" and not page.evaluate("document.querySelector('fg-player').playing")
    assert f"“{second}”" in shadow(page, ".prompt")
    page.locator("#fg-search").fill("ONE")
    page.wait_for_function("document.querySelectorAll('.fg-pair-button').length === 1")
    assert values(page)["search"] == "ONE" and listed(page) == ["one"]
    page.locator("#fg-search").fill("nowhere")
    page.wait_for_selector("text=No prompt holds these words")
    page.go_back()
    page.wait_for_function(f"document.querySelector('.fg-chosen .fg-pair-prompt')?.title === '{first}'")


def test_keys_lead_through_the_pairs(served: Served, studio_page: StudioPage) -> None:
    run = run_of(served, ["one", "two", "three"])
    page = compare(studio_page, run)
    prompts = listed(page)
    chosen = "place => document.querySelector('.fg-chosen')?.dataset.key === String(place)"
    page.keyboard.press("n")
    page.wait_for_function(chosen, arg=1)
    page.keyboard.press("n")
    page.wait_for_function(chosen, arg=2)
    assert page.get_by_role("button", name="Next").is_disabled()
    assert f"Pair 3 of 3: {prompts[2]}" in page.locator("[data-key=said]").inner_text()
    page.locator(".fg-pair-button").nth(2).focus()
    page.keyboard.press("ArrowUp")
    page.wait_for_function(chosen, arg=1)
    assert page.evaluate("document.activeElement.dataset.place") == "1"
    page.keyboard.press("p")
    page.wait_for_function(chosen, arg=0)
    page.locator("#fg-search").focus()
    page.keyboard.type("n")
    page.wait_for_timeout(400)
    assert page.input_value("#fg-search") == "n" and page.evaluate(chosen, 0), "what is typed is no short cut"


def test_sides_can_be_changed_and_swapped(served: Served, studio_page: StudioPage) -> None:
    other = run_of(served, ["one", "two"], "<b>other</b>")
    run = run_of(served, ["one", "two"])
    page = compare(studio_page, run)
    page.get_by_role("button", name="Swap the two sides").click()
    wait_for_address(page, f"before={run}@{UPDATE}")
    page.locator("[data-side=after][data-part=job]").select_option(other)
    wait_for_address(page, f"after={other}@0")
    # At once, before the page has what the choice before asked for.
    page.locator("[data-side=after][data-part=update]").select_option(str(UPDATE))
    wait_for_address(page, f"after={other}@{UPDATE}")
    page.wait_for_function(READY)
    labels = page.locator("fg-player .label").all_inner_texts()
    assert "<b>other</b>: update 4" in labels and "bigger subjects: update 4" in labels
    page.go_back()
    page.go_back()
    wait_for_address(page, f"after={run}@0")
    page.wait_for_function(f"document.querySelector('[data-side=after][data-part=job]').value === '{run}'")
    page.goto(f"/compare?before={run}@0&after={run}@0")
    page.wait_for_selector("text=Both sides are the same model")


def test_other_settings_give_no_gain(served: Served, studio_page: StudioPage) -> None:
    run, other = (run_of(served, ["one", "two"], name) for name in ("ours", "theirs"))
    with served.store().writing() as session:
        job = session.get_one(Job, other)
        job.spec = {**job.spec, "config": {**job.spec["config"], "evaluation_steps": 30}}
    page = studio_page.open(f"/compare?before={run}@{UPDATE}&after={other}@{UPDATE}", wait=".fg-pair-list")
    page.wait_for_selector("text=no reward difference is shown")
    assert "and 30" in page.locator("[data-key=summary] .fg-notice").inner_text()
    assert "▲" not in page.locator("[data-key=summary] table").inner_text()
    assert page.locator(".fg-pair-list .fg-way-up, .fg-pair-list .fg-way-down").count() == 0
    assert "steps" in shadow(page, ".chip.differs")


def test_what_a_prompt_holds_is_only_text(served: Served, studio_page: StudioPage) -> None:
    run = run_of(served, [SCRIPT, "two"], SCRIPT)
    page = compare(studio_page, run, "&search=onerror")
    assert listed(page) == [SCRIPT] and SCRIPT in shadow(page, ".prompt")
    assert page.evaluate("window.hacked") is None


@pytest.mark.parametrize(
    ("address", "title"),
    [
        ("?before=x&after=y", "names no two models"),
        ("?before=0123456789abcdef@0&after=0123456789abcdef@4", "is not there"),
        ("?job=0123456789abcdef", "is not there"),
        ("", "Nothing to compare yet"),
    ],
)
def test_addresses_that_name_nothing(studio_page: StudioPage, address: str, title: str) -> None:
    studio_page.allow(MISSING)
    page = studio_page.open(f"/compare{address}", wait=".fg-empty")
    assert title in page.locator(".fg-empty h2").inner_text()
    assert page.locator(".fg-page .fg-primary").count() == 1


def test_what_goes_away_while_one_compares(served: Served, studio_page: StudioPage) -> None:
    studio_page.allow(MISSING)
    run = run_of(served, ["one", "two"])
    page = compare(studio_page, run, "&pair=0123456789abcdef-0")
    assert "The pair of the address is gone" in page.locator("[data-key=said]").inner_text()
    for file in (served.workspace.job(run) / "run" / "videos").glob("*-after.mp4"):
        file.unlink()
    page.reload()
    page.wait_for_selector("[data-key=missing]")
    page.get_by_role("button", name="Render this pair again").click()
    prompt = page.input_value("[name=prompt]")
    assert prompt in ("one", "two") and page.evaluate("document.activeElement.textContent.trim()") == "Render"
    with served.store().writing() as session:
        session.query(Checkpoint).filter(Checkpoint.job_id == run).delete()
    page.reload()
    page.wait_for_selector("text=was deleted, so nothing new can be rendered")
    assert page.locator("[name=prompt]").count() == 0
    page.wait_for_selector(".fg-pair-list")
    served.call("DELETE", f"/jobs/{run}")
    page.keyboard.press("n")
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.locator("#fg-sort").select_option("prompt")
    page.wait_for_selector("#fg-gone h2:has-text('was deleted')")


def made(served: Served, kind: str) -> list[Mapping[str, Any]]:
    """What the jobs of a kind were asked for, oldest first."""
    jobs = served.call("GET", f"/jobs?kind={kind}&sort=created")["jobs"]
    return [served.call("GET", f"/jobs/{job['id']}/spec")["ask"] | {"id": job["id"]} for job in jobs]


def render(served: Served, run: str, ask: Mapping[str, Any], sides_: tuple[int, ...]) -> None:
    """What a worker would leave of a preview that is done."""
    with served.store().writing() as session:
        job = session.get_one(Job, ask["id"])
        facts = {
            "prompt": ask["prompts"][0],
            "prompt_id": "prompt-000",
            "seed": ask["seeds"][0],
            "noise": 1,
            "path": "",
        }
        for update in sides_:
            strength = ask["strength"] if update else None
            video = Video(owner_id=job.owner_id, job_id=job.id, update=update, strength=strength, **facts)
            video.path = f"jobs/none/{job.id}-{update}.mp4"
            session.add(video)
    succeed(served, str(ask["id"]))


def test_a_new_prompt_is_rendered_on_the_spot(served: Served, studio_page: StudioPage) -> None:
    studio_page.allow(MISSING)  # the files of this worker's videos are not there
    run = run_of(served, ["one", "two"])
    page = compare(studio_page, run)
    page.locator("[name=prompt]").fill("  a purple heart ")
    page.locator("[name=seed]").fill("7")
    page.get_by_role("button", name="Render", exact=True).click()
    page.wait_for_selector("fg-compare-render .fg-state-queued")
    (ask,) = made(served, "preview")
    assert (ask["side"], ask["checkpoint"], ask["prompts"], ask["seeds"]) == ("both", "4", ["a purple heart"], [7])
    page.reload()
    page.wait_for_selector("fg-compare-render .fg-state-queued")
    page.get_by_role("button", name="Cancel").click()
    page.wait_for_selector("fg-compare-render .fg-state-cancelled")
    page.locator("[name=prompt]").fill("a purple heart")
    page.get_by_role("button", name="Render", exact=True).click()
    page.wait_for_selector("fg-compare-render .fg-state-queued")
    render(served, run, made(served, "preview")[1], (0, UPDATE))
    page.wait_for_function("document.querySelector('.fg-chosen .fg-pair-prompt')?.title === 'a purple heart'")
    assert values(page)["sort"] == "newest" and page.locator("fg-compare-render progress").count() == 0
    assert "Rendered: a purple heart" in page.locator("[data-key=said]").inner_text()


def test_a_strength_nobody_rendered_offers_to_render_it(served: Served, studio_page: StudioPage) -> None:
    studio_page.allow(MISSING)
    run = run_of(served, ["one", "two"])
    page = compare(studio_page, run)
    page.locator("#fg-strength-after").fill("0.5")
    wait_for_address(page, f"after={run}@{UPDATE}*0.5")
    page.wait_for_selector("text=The two sides share no video")
    assert page.locator("main .fg-primary, .fg-page .fg-primary").count() == 1
    page.get_by_role("button", name="Render 2 prompts of this run").click()
    page.wait_for_selector("fg-compare-render .fg-state-queued")
    (ask,) = made(served, "preview")
    assert (ask["side"], ask["strength"], ask["prompts"]) == ("after", 0.5, ["one", "two"]), (
        "the base has these already"
    )
    render(served, run, ask, (UPDATE,))
    page.wait_for_function("document.querySelector('.fg-chosen .fg-pair-prompt')?.title === 'one'")
    labels = page.locator("fg-player .label").all_inner_texts()
    assert "update 4 at strength 0.5" in labels
    page.go_back()
    page.wait_for_function(READY)
    assert page.input_value("#fg-strength-after") == "1"


def test_ten_thousand_pairs_scroll_as_ten(served: Served, studio_page: StudioPage) -> None:
    studio_page.allow(MISSING)
    store, owner = served.store(), served.call("GET", "/me")["id"]
    run = sides.put_run(store, owner, name="many", config={"rewards": {"colorfulness": 1.0}})
    sides.put_videos(
        store, owner, run, sides.prompts(MANY), scores=lambda update, at: {"colorfulness": update * at / MANY}
    )
    address = f"before={run}@0&after={run}@{UPDATE}"
    far = served.call("GET", f"/comparison?{address}&offset=5050&limit=1")["pairs"][0]["key"]
    page = studio_page.open(f"/compare?{address}&pair={far}", wait=".fg-chosen")
    assert "Pair 5051 of 10000" in page.locator(".fg-pair-steps").inner_text()
    client = page.context.new_cdp_session(page)
    # Time of its own, not of its waiting for a processor that other tests use.
    client.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        facts = {fact["name"]: fact["value"] for fact in client.send("Performance.getMetrics")["metrics"]}
        return float(facts["TaskDuration"])

    before, jumps = busy(), 60
    page.evaluate(
        """async jumps => {
          const box = document.querySelector(".fg-pair-list");
          for (let jump = 0; jump <= jumps; jump++) {
            box.scrollTop = (jump / jumps) * box.scrollHeight;
            await new Promise(requestAnimationFrame);
          }
        }""",
        jumps,
    )
    spent = (busy() - before) / jumps
    page.wait_for_function("document.querySelector('.fg-pair-row:last-child .fg-pair-prompt')")
    assert page.locator(".fg-pair-row").count() < 40 and page.locator("[aria-posinset='10000']").count() == 1
    print(f"main thread {spent * 1000:.1f} ms per jump through {MANY} pairs")
    assert spent <= 0.03


def test_downloads_are_made_by_jobs(served: Served, studio_page: StudioPage) -> None:
    run = run_of(served, ["one", "two", "three"])
    page = compare(studio_page, run)
    page.get_by_role("button", name="Make the video").click()
    page.wait_for_selector("[data-key=composition] .fg-state-queued")
    (ask,) = made(served, "composition")
    pair = served.call("GET", f"/comparison?before={run}@0&after={run}@{UPDATE}&limit=1")["pairs"][0]
    assert (ask["left"], ask["right"]) == (pair["before"]["id"], pair["after"]["id"])
    assert ask["labels"] == ["base model", "update 4"] and ask["caption"] == pair["prompt"]
    with served.store().writing() as session:
        job = session.get_one(Job, ask["id"])
        name = "comparison.mp4"
        session.add(
            File(owner_id=job.owner_id, job_id=job.id, kind="composition", name=name, path=f"{job.folder}/x", bytes=9)
        )
    succeed(served, ask["id"])
    page.locator(".fg-pair-list input").nth(2).check()
    page.locator(".fg-pair-list input").nth(0).check()
    page.wait_for_selector("text=2 chosen pairs")
    page.get_by_role("button", name="Make the sheet").click()
    page.wait_for_selector("[data-key=contact_sheet] .fg-state-queued")
    (sheet,) = made(served, "contact_sheet")
    assert len(sheet["keys"]) == 2 and pair["key"] in sheet["keys"]


def test_compare_in_chinese_on_a_phone(served: Served, studio_page: StudioPage) -> None:
    run = run_of(served, ["长" * 300, "two"], "a-very-long-name-without-any-space-" * 5)
    page = compare(studio_page, run, size=PHONE, language="zh", theme="dark")
    assert "相同" in shadow(page, ".chip") and "最佳" in page.locator("fg-choose-sides").inner_text()
    studio_page.no_sideways_scroll(page)
    studio_page.accessible(page)
    studio_page.large_targets(page)
