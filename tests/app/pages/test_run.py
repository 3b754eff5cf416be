"""The Run page in a real browser, on runs put into the store: charts, samples, events, log, configuration, files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import insert

from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.metrics import put_points
from flash_grpo_studio.app.store.tables import Checkpoint, Metric, MetricSeries
from tests.app.pages.conftest import DESKTOP, PHONE, Served, StudioPage
from tests.app.pages.seed import Seed, point

SCRIPT = "<script>window.hacked=1</script><img src=x onerror='window.hacked=1'>"


def wait_for_label(page: Any, card: str, part: str) -> None:
    """Wait until a chart says `part` of itself."""
    page.wait_for_function(
        "([card, part]) => document.querySelector(`[data-key='${card}'] canvas`)?.ariaLabel?.includes(part)",
        arg=[card, part],
        polling=100,
    )


def label(page: Any, card: str) -> str:
    """What a chart says of itself to those who cannot see it, once it has been drawn with values."""
    selector = f'[data-key="{card}"] canvas'
    page.locator(selector).scroll_into_view_if_needed()  # a chart draws while it is in sight
    page.wait_for_function(f"/\\d/.test(document.querySelector('{selector}').ariaLabel)")
    found: str = page.locator(selector).get_attribute("aria-label")
    return found


def test_the_charts_show_what_was_measured_and_go_on_by_themselves(served: Served, studio_page: StudioPage) -> None:
    seed = Seed(served)
    seed.measure(1, 5)
    seed.evaluate(0, 0.2)
    page = studio_page.open(f"{seed.url}&tab=rewards", wait="canvas")
    page.wait_for_selector('[data-key="evaluation-colorfulness"] canvas')
    assert label(page, "reward-colorfulness").endswith("mean 0.05")
    assert page.locator(".fg-chart-box .fg-badge").first.inner_text() == "optimised"
    assert "validation 0.2" in label(page, "evaluation-colorfulness")
    seed.measure(6, 8)
    seed.evaluate(8, 0.3)
    page.wait_for_function("document.querySelector('[data-key=reward-colorfulness] canvas').ariaLabel.endsWith('0.08')")
    page.wait_for_function(
        "document.querySelector('[data-key=evaluation-colorfulness] canvas').ariaLabel.endsWith('0.3')"
    )
    page.locator('[data-key="reward-colorfulness"] .fg-data summary').click()
    page.wait_for_selector('[data-key="reward-colorfulness"] .fg-data tbody tr:nth-child(8)')  # filled once it is open
    rows = page.locator('[data-key="reward-colorfulness"] .fg-data tr').all_inner_texts()
    assert [row.split() for row in rows[1:]] == [[str(n), str(n / 100)] for n in range(1, 9)]
    page.locator('[data-key="reward-colorfulness"] canvas').focus()
    page.keyboard.press("End")
    assert (
        "mean: 0.08 (−0.02 – 0.18)".replace("−", "-")
        in page.locator('[data-key="reward-colorfulness"] .fg-tip').inner_text()
    )


def test_every_curve_is_there_with_what_it_means_and_its_settings_are_in_the_address(
    served: Served, studio_page: StudioPage
) -> None:
    seed = Seed(served)
    seed.measure(1, 6)
    page = studio_page.open(f"{seed.url}&tab=training&log=1&smooth=0.5", wait="canvas")
    titles = page.locator(".fg-chart-box h3").all_inner_texts()
    assert len(titles) == 11
    assert "Gradient norm" in titles and "Seconds per phase" in titles
    assert "step 0 1.25, step 1 0.75" in label(page, "branch_weight")
    assert "all phases 2" in label(page, "seconds")
    assert page.locator("[data-key=kl]").first.inner_text().count("kl_weight") == 1
    assert page.locator("#fg-log").is_checked()
    assert page.locator("#fg-smooth").input_value() == "0.5"
    page.locator("#fg-log").uncheck()
    assert "log=" not in page.url
    page.locator("[data-key=drift] .fg-meaning summary").first.click()
    assert "Healthy:" in page.locator("[data-key=drift] .fg-meaning").first.inner_text()


def test_head_tabs_and_back(served: Served, studio_page: StudioPage) -> None:
    seed = Seed(served, budget=30.0, device_seconds=90.0)
    seed.measure(1, 5)
    page = studio_page.open(seed.url, wait="#fg-progress")
    head = page.locator(".fg-run-head").inner_text()
    for words in (
        "running",
        "Update 5 of 20",
        "about 12–15 min left",
        "1 min 30 s of about 14–17 min",
        "30 min 0 s",
        "2 s",
        "cuda:0 on here",
        "close this tab",
    ):
        assert words in head, head
    page.get_by_role("link", name="Training").click()
    assert "tab=training" in page.url
    page.get_by_role("link", name="Config").click()
    page.wait_for_selector("#fg-config")
    page.go_back()
    page.wait_for_selector("[data-key=grad_norm]")
    page.reload()
    page.wait_for_selector("[data-key=grad_norm]")
    page.locator("#fg-rename").click()
    page.keyboard.press("Control+A")
    page.keyboard.type("a better name")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('h1').textContent === 'a better name'")


def test_cancelling_asks_first_and_says_so_until_it_is_over(served: Served, studio_page: StudioPage) -> None:
    seed = Seed(served)
    page = studio_page.open(seed.url, wait="#fg-cancel")
    page.locator("#fg-cancel").click()
    assert page.evaluate("document.activeElement.id") == "fg-confirm-no"
    page.keyboard.press("Escape")
    page.wait_for_selector("#fg-cancel")
    page.locator("#fg-cancel").click()
    page.locator("#fg-confirm-yes").click()
    page.wait_for_selector(".fg-run-head .fg-state-cancelling")
    assert "until its processes are really gone" in page.locator("#fg-situation").inner_text()
    assert "cancelling" in page.locator("#fg-announce").inner_text()
    seed.set(state="cancelled")
    page.wait_for_selector(".fg-run-head .fg-state-cancelled")
    page.locator("#fg-resume").click()
    page.wait_for_selector(".fg-run-head .fg-state-queued")
    assert "place 1" in page.locator("#fg-situation").inner_text()


@pytest.mark.parametrize(
    ("message", "cause", "words"),
    [
        ("the device ran out of memory; lower rollout_batch", "device_memory", "gradient_checkpointing"),
        ("the training diverged (numbers were not finite)", "nan", "learning_rate"),
        ("the disk is full; free some space", "disk", "Free some space"),
        ("no model folder /models/wan was found", "missing", "Download the model"),
    ],
)
def test_each_failure_has_its_own_words_and_retry(
    served: Served, studio_page: StudioPage, message: str, cause: str, words: str
) -> None:
    seed = Seed(served, state="failed", message=message)
    page = studio_page.open(seed.url, wait="#fg-failure")
    box = page.locator("#fg-failure")
    assert box.get_attribute("data-cause") == cause
    said = box.text_content()
    assert message in said and words in said and seed.id in said
    assert page.locator("#fg-retry").is_visible()


def test_samples_by_prompt_and_update_with_the_keyboard(served: Served, studio_page: StudioPage) -> None:
    seed = Seed(served)
    seed.videos(["a red circle", SCRIPT], [0, 4, 8])
    page = studio_page.open(f"{seed.url}&tab=samples&prompt=p000|0&update=4", wait=".fg-samples video")
    heads = page.get_by_role("columnheader").all_inner_texts()
    assert heads[:3] == ["before", "update 4", "update 8"]
    cell = page.locator('[role=gridcell][tabindex="0"]')
    assert cell.get_attribute("aria-label") == "update 4, a red circle, colorfulness 0.04"
    assert page.locator("#fg-chosen figure").count() == 2
    assert page.locator("#fg-chosen").inner_text().count("+0.04") == 1
    cell.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.wait_for_function("document.activeElement.dataset.update === '8'")
    assert "update=8" in page.url and "p001" in page.url
    assert SCRIPT in page.locator(".fg-sample-prompt").nth(1).inner_text()
    studio_page.accessible(page)
    page.keyboard.press("Enter")
    page.wait_for_function("!document.activeElement.querySelector('video').paused")
    assert page.evaluate("window.hacked") is None


def test_a_large_grid_has_elements_only_for_what_is_in_sight(served: Served, studio_page: StudioPage) -> None:
    seed = Seed(served)
    seed.videos([f"prompt {number}" for number in range(12)], list(range(0, 600, 10)))
    page = studio_page.open(f"{seed.url}&tab=samples", wait=".fg-samples video")
    assert page.locator(".fg-samples video").count() < 80
    page.evaluate("document.querySelector('.fg-samples').scrollTo(1e6, 1e6)")
    page.wait_for_selector('[role=columnheader][data-key="590"]')
    assert "prompt 11" in page.locator(".fg-sample-prompt").last.inner_text()
    assert page.locator(".fg-samples video").count() < 80


def test_events_log_and_warnings_show_markup_as_text(served: Served, studio_page: StudioPage) -> None:
    seed = Seed(served, name=SCRIPT, message=SCRIPT)
    seed.tell("warning", {"message": f"half the groups are dead {SCRIPT}", "code": "dead_groups"}, 3)
    seed.tell("checkpoint", {"update": 3, "path": "checkpoints/000003", "best": True}, 3)
    (seed.folder / "run" / "log.txt").write_text(f"first line\nneedle {SCRIPT}\nlast line\n", encoding="utf-8")
    page = studio_page.open(seed.url, wait="#fg-warnings")
    assert SCRIPT in page.locator("h1").inner_text()
    assert "Raise group_size" in page.locator("#fg-warnings").inner_text()
    page.get_by_role("link", name="Events & log").click()
    page.wait_for_selector("#fg-events")
    assert page.locator("#fg-events tbody tr").count() == 2
    page.locator("#fg-event-type").select_option("checkpoint")
    page.wait_for_function("document.querySelectorAll('#fg-events tbody tr').length === 1")
    assert "type=checkpoint" in page.url
    page.locator("#fg-log-search").fill("NEEDLE")
    page.wait_for_function("document.querySelector('#fg-log-text mark')?.textContent === 'needle'")
    assert "first line" not in page.locator("#fg-log-text").inner_text()
    assert SCRIPT in page.locator("#fg-log-text").inner_text()
    assert page.evaluate("window.hacked") is None


def test_configuration_difference_and_files(served: Served, studio_page: StudioPage) -> None:
    seed = Seed(served, name="one")
    other = Seed(served, name="other", config={"learning_rate": 0.5, "rewards": {"sharpness": 2.0}})
    with seed.store.writing() as session:
        session.add(Checkpoint(job_id=seed.id, update=4, path="x", best=True))
    (seed.folder / "run" / "config.yaml").write_text("seed: 0\n", encoding="utf-8")
    page = studio_page.open(f"{seed.url}&tab=config", wait="#fg-config")
    assert "learning_rate:" in page.locator("#fg-config").inner_text()
    page.locator("#fg-choose-run").click()
    page.get_by_role("option", name="other").click()
    page.wait_for_selector("#fg-difference")
    rows = page.locator("#fg-difference tbody tr").all_inner_texts()
    found = {row.split("\t")[0].strip(): row.split("\t")[1:] for row in rows}
    assert found["learning_rate"] == ["0.0003", "0.5"]
    assert found["rewards.colorfulness"] == ["1", "not set"]
    assert other.id in page.url
    page.get_by_role("link", name="Files").click()
    page.wait_for_selector("#fg-files")
    assert "the best so far" in page.locator("#fg-checkpoints").inner_text()
    with page.expect_download() as download:
        page.get_by_role("link", name="run/config.yaml").click()
    assert Path(download.value.path()).read_text(encoding="utf-8") == "seed: 0\n"


def test_unknown_and_deleted_runs_say_so(served: Served, studio_page: StudioPage) -> None:
    studio_page.allow("status of 404")
    page = studio_page.open("/run?id=0123456789abcdef", wait="#fg-gone")
    assert "No such run" in page.locator("h1").inner_text()
    assert page.get_by_role("link", name="All runs").get_attribute("href") == "/runs"
    seed = Seed(served, state="cancelled")
    page = studio_page.open(seed.url, wait="#fg-delete")
    served.call("DELETE", f"/jobs/{seed.id}")
    page.wait_for_selector("#fg-gone", timeout=10_000)
    assert "deleted" in page.locator("h1").inner_text()


def test_a_job_of_another_kind_has_a_smaller_page(served: Served, studio_page: StudioPage) -> None:
    seed = Seed(served, kind="download", state="succeeded", result={"folder": "models/x", "bytes": 5})
    page = studio_page.open(seed.url, wait=".fg-nested")
    assert page.locator(".fg-tabs a").all_inner_texts() == ["Overview", "Samples", "Events & log", "Files"]
    assert "models/x" in page.locator(".fg-nested").inner_text()


def test_phone_width_in_chinese(served: Served, studio_page: StudioPage) -> None:
    seed = Seed(served, name="a-very-long-name-without-any-space-" * 5, message="a/very/long/path/" * 12)
    seed.measure(1, 3)
    seed.videos(["a red circle on a very long background " * 4], [0, 4])
    seed.tell("warning", {"message": "half the groups are dead", "code": "dead_groups"}, 3)
    (seed.folder / "run" / "config.yaml").write_text("seed: 0\n", encoding="utf-8")
    tabs = {"概览": "#fg-warnings", "样本": ".fg-samples video", "奖励": "canvas", "训练": "[data-key=drift] canvas"}
    tabs |= {"事件与日志": "#fg-events", "配置": "#fg-config", "文件": "#fg-files"}
    page = studio_page.open(seed.url, size=PHONE, language="zh", theme="dark", wait="#fg-warnings")
    assert "运行中" in page.locator(".fg-run-head").inner_text()
    for name, there in tabs.items():
        page.locator(".fg-tabs").get_by_role("link", name=name, exact=True).click()
        page.wait_for_selector(there)
        studio_page.no_sideways_scroll(page)
        studio_page.large_targets(page)
        if name != "训练":  # the same elements as under 奖励
            studio_page.accessible(page)


def seed_many(store: Store, id_: str, count: int) -> None:
    """A long run's metrics: the series of one real point, and rows of the same shape written in bulk."""
    with store.writing() as session:
        put_points(session, id_, [point(1)])
        width = session.query(MetricSeries).filter(MetricSeries.job_id == id_).count()
        names = session.query(MetricSeries.name).filter(MetricSeries.job_id == id_).order_by(MetricSeries.position)
        grad_norm = [name for (name,) in names].index("grad_norm")
        table = np.full((count + 1, width), 0.5)
        table[:, grad_norm] = np.arange(count + 1) + 1.0
        rows = [
            {"job_id": id_, "update": update, "attempt": 1, "time": 1.0, "values": table[update].tobytes()}
            for update in range(2, count + 1)
        ]
        session.execute(insert(Metric), rows)


def test_a_live_update_of_a_long_run_is_cheap(served: Served, studio_page: StudioPage) -> None:
    seed = Seed(served, updates=100_100)
    seed_many(seed.store, seed.id, 100_000)
    seed.measure(100_000, 100_000)
    page = studio_page.open(f"{seed.url}&tab=training", size=DESKTOP, wait="canvas")
    wait_for_label(page, "grad_norm", "99,901")
    page.evaluate(
        "() => { window.tasks = [];"
        " const told = list => tasks.push(...list.getEntries().map(e => e.duration));"
        " new PerformanceObserver(told).observe({type: 'longtask'}) }"
    )
    client = page.context.new_cdp_session(page)
    # Time of its own, not of its waiting for a processor that other tests use.
    client.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        facts = {fact["name"]: fact["value"] for fact in client.send("Performance.getMetrics")["metrics"]}
        return float(facts["TaskDuration"])

    before = busy()
    for update in range(100_001, 100_005):
        seed.measure(update, update)
        wait_for_label(page, "grad_norm", f"{update + 1:,}")
    spent = (busy() - before) / 4
    print(f"main thread {spent * 1000:.0f} ms per update, long tasks {page.evaluate('tasks')}")
    assert spent <= 0.1
