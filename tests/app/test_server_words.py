"""Every sentence that the server can show to a person has Chinese words."""

from __future__ import annotations

import json
import re
from typing import Any

from flash_grpo_studio.app.pages.addresses import WEB
from tests.app.sentences import MODULES, ROOT, all_templates, templates

IN_DOCUMENTS = {
    "Not logged in.",
    "Not allowed for this user or token, or the request came from another site.",
    "No such thing, or not this user's.",
    "Not possible in the present state.",
    "No longer there.",
    "Larger than the server takes.",
    "A kind of file that is not taken.",
    "Something in the request cannot be used; `fields` says what.",
    "Too many attempts.",
    "The database or another part is away for the moment.",
    "The disk is full.",
    "The part or parts that were asked for by `Range`.",
    "Not changed since the ETag sent.",
    "A `Range` that cannot be read.",
    "A `Range` beyond the file.",
    "A preset as it is",
    "Own prompts, rewards and settings",
    "a red circle moves to the left",
    "a blue square grows",
    "Videos of a prompt before and after alignment",
}
"""Texts of the API's own document, which is in English."""
NEVER_ON_A_PAGE = {
    "`accelerate launch --cpu` starts one process and leaves the others to MPI; use `accelerate launch --multi_gpu` or "
    "torchrun, which start several on CPUs too",
    "a large red square standing still on a black background",
}
PLACE = re.compile(r"\{\d+\}")
CHINESE = re.compile(r"[\u3400-\u9fff]")


def _catalogue() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((WEB / "server_zh.json").read_text(encoding="utf-8"))
    return found


def problems(needed: dict[str, str], sentences: dict[str, str]) -> list[str]:
    """What is missing, superfluous or differs in what is put in."""
    found = [f"{needed[text]}: no Chinese for {text!r}" for text in needed if text not in sentences]
    found += [f"nothing says {text!r} any more" for text in sentences if text not in needed]
    for text, words in sentences.items():
        if set(PLACE.findall(text)) != set(PLACE.findall(words)):
            found.append(f"other places for values in {words!r}")
        if not CHINESE.search(words):
            found.append(f"not Chinese: {words!r}")
    return found


def test_every_sentence_of_the_server_has_chinese_words() -> None:
    needed = {text: module for text, module in all_templates().items() if text not in IN_DOCUMENTS | NEVER_ON_A_PAGE}
    assert len(needed) > 400, "the sentences are no longer found in the source"
    found = problems(needed, _catalogue()["sentences"])
    assert not found, "\n".join(found) + "\n(web/server_zh.json)"
    assert all((ROOT / module).is_file() for module in MODULES)


def test_single_words_and_others_messages_are_chinese_too() -> None:
    catalogue = _catalogue()
    for text, words in {**catalogue["more"], **catalogue["words"]}.items():
        assert set(PLACE.findall(words)) <= set(PLACE.findall(text)), text
        assert CHINESE.search(words) or PLACE.sub("", words).strip("：，") == "", text


def test_what_is_missing_would_be_seen() -> None:
    source = '''
"""A module that says much."""
def say(job, n, why):
    "Nor this."
    log.warning("a log line is not shown to anybody")
    thing(help="nor is the help of an option", text=f"{n} {'job is' if n == 1 else 'jobs are'} before it")
    if why:
        raise InputError(f"the job {job.name!r} is gone" + f"; {why} was asked")
    return {"no-sentence": "a/path/of/something", "key": "one"}
'''
    assert templates(source) == ["{1} job is before it", "{1} jobs are before it", "the job {1} is gone; {2} was asked"]
    needed: dict[str, Any] = dict.fromkeys(templates(source), "module")
    good = {"{1} job is before it": "前面有 {1}", "{1} jobs are before it": "前面有 {1}"}
    last = "the job {1} is gone; {2} was asked"
    assert problems(needed, {**good, last: "任务 {1}，{2}"}) == []
    assert problems(needed, good) == [f"module: no Chinese for {last!r}"]
    assert problems(needed, {**good, last: "任务 {1}"}) == ["other places for values in '任务 {1}'"]
    assert problems(needed, {**good, last: "{1} {2}"}) == ["not Chinese: '{1} {2}'"]
    assert problems(needed, {**good, last: "任务 {1}，{2}", "more": "更多"}) == ["nothing says 'more' any more"]
