"""What the server says, on Chinese pages: every sentence is recognised, with what is put into it."""

from __future__ import annotations

import json
import re
from typing import Any

from flash_grpo_studio.app.pages.addresses import WEB
from tests.app.pages.conftest import Served, StudioPage
from tests.app.pages.seed import Seed

NESTED = [
    ("ann asked to pause; it stands at update 8", "ann 要求暂停；停在第 8 次更新"),
    (
        "lost (its process crashed (SIGSEGV)); resuming from update 8, try 1 of 3",
        "已中断（进程崩溃（SIGSEGV））；将从第 8 次更新继续，第 1 次尝试（共 3 次）",
    ),
    (
        "the job is paused, so it cannot resume; 2.5 device-minutes of its budget of 2 are used: raise its budget "
        "above that first",
        "任务已暂停，因此不能继续；预算为 2 设备分钟，已用 2.5：请先把预算提高到此值以上",
    ),
    (
        "updates: input should be greater than or equal to 1, got 0 (updates to train.)",
        "updates：应大于或等于 1，得到 0",
    ),
    (
        "frames: must be 4n+1, got 10; the nearest are 9 and 13; width: must be a multiple of 16, got 100; the nearest "
        "are 96 and 112",
        "frames：必须是 4n+1，得到 10；最接近的是 9 和 13；width：必须是 16 的倍数，得到 100；最接近的是 96 和 112",
    ),
    (
        "unknown configuration key 'updatez'; did you mean 'updates'?",
        "未知的配置键 'updatez'；您是指 'updates' 吗？",
    ),
    (
        "the disk is full; free some space in the workspace, then press Retry\nwriting\nOSError",
        "磁盘已满；请在工作区腾出空间，然后按“重试”\nwriting\nOSError",
    ),
]
TRANSLATE = "texts => import('/web/server_words.js').then(({ translated }) => texts.map(translated))"


def translated(page: Any, texts: list[str]) -> list[str | None]:
    """What the page makes of sentences."""
    found: list[str | None] = page.evaluate(TRANSLATE, texts)
    return found


def test_every_template_is_recognised_and_no_other_is_taken_for_it(studio_page: StudioPage) -> None:
    page = studio_page.open("/help", language="zh")
    sentences = json.loads((WEB / "server_zh.json").read_text(encoding="utf-8"))["sentences"]

    def filled(text: str) -> str:
        return re.sub(r"\{(\d+)\}", r"'value-\1'", text)

    found = translated(page, [filled(text) for text in sentences])
    wrong = {text: got for (text, words), got in zip(sentences.items(), found, strict=True) if got != filled(words)}
    assert not wrong, wrong
    assert translated(page, ["An exception nobody foresaw: it's 5 o'clock", "", "a: b"]) == [None, None, None]


def test_sentences_within_sentences(studio_page: StudioPage) -> None:
    page = studio_page.open("/help", language="zh")
    cases = dict(NESTED)
    assert dict(zip(cases, translated(page, list(cases)), strict=True)) == cases
    long = "; ".join(f"{number}: nobody knows, got {number} (this)" for number in range(40))
    page.evaluate("performance.mark('before')")
    assert translated(page, [long]) == [None]
    took = page.evaluate("performance.measure('it', 'before').duration")
    assert took < 2000, f"{took} ms for a long text in which nothing is known"
    english = studio_page.open("/help", language="en")
    assert translated(english, list(cases)) == [None] * len(cases)


def test_a_failed_run_a_warning_and_a_form_speak_chinese(served: Served, studio_page: StudioPage) -> None:
    seed = Seed(served, state="failed", message="its process crashed (SIGSEGV)")
    seed.tell("warning", {"code": "disk", "message": "every reward that has a self-test passed it"})
    seed.tell("warning", {"code": "other", "message": "Nobody foresaw this."})
    page = studio_page.open(seed.url, language="zh", wait="#fg-warnings")
    assert page.locator(".fg-run-said").inner_text() == "进程崩溃（SIGSEGV）"
    assert "所有带自检的奖励都已通过" in page.locator("#fg-warnings").inner_text()
    assert page.locator("#fg-warnings [lang=en]").inner_text() == "Nobody foresaw this."
    studio_page.allow("status of 422")
    form = studio_page.open("/new?preset=micro&set=frames=10", language="zh", wait=".fg-launch .fg-error")
    assert "必须是 4n+1，得到 10；最接近的是 9 和 13" in form.locator(".fg-launch").first.inner_text()
    assert "must be" not in form.locator(".fg-page").inner_text()
