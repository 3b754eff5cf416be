"""Both languages have the words the pages use, no more and no fewer."""

from __future__ import annotations

import json
import re
from pathlib import Path

from flash_grpo_studio.app.pages.addresses import WEB

WHOLE = re.compile(r"""\bt\(\s*["']([\w.-]+)["']""")
BUILT = re.compile(r"""\bt\(\s*`([\w.-]*)\$\{[^}]*\}([\w.-]*)`""")
CHOSEN = re.compile(r"""\bt\(\s*[^"'`()]*\?\s*["']([\w.-]+)["']\s*:\s*["']([\w.-]+)["']""")
QUOTED = re.compile(r"""["']([a-z_]+(?:\.[\w-]+)+)["']""")
PLACE = re.compile(r"\{(\w+)\}")


def _sources(folder: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.js")))


def _words(folder: Path, language: str) -> dict[str, str]:
    text = (folder / "texts" / f"{language}.json").read_text(encoding="utf-8")
    pairs: list[tuple[str, str]] = json.loads(text, object_pairs_hook=list)
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), f"{language}: twice {[key for key in set(keys) if keys.count(key) > 1]}"
    return dict(pairs)


def problems(source: str, english: dict[str, str], chinese: dict[str, str]) -> list[str]:
    """What is missing, superfluous, or differs between the languages."""
    whole = set(WHOLE.findall(source)) | {key for pair in CHOSEN.findall(source) for key in pair}
    built = {(start, end) for start, end in BUILT.findall(source) if start}
    # A key may be handed on through a variable: then it stands somewhere as a word of its own.
    named = whole | set(QUOTED.findall(source))
    found = [f"{key} is used and has no words" for key in sorted(whole - set(english))]
    found += [
        f"nothing begins with {start} and ends with {end!r}"
        for start, end in sorted(built)
        if not any(key.startswith(start) and key.endswith(end) for key in english)
    ]
    found += [
        f"{key} is used nowhere"
        for key in sorted(set(english) - named)
        if not any(key.startswith(start) and key.endswith(end) and len(key) > len(start + end) for start, end in built)
    ]
    found += [f"{key} is in one language only" for key in sorted(set(english) ^ set(chinese))]
    for key in sorted(set(english) & set(chinese)):
        if set(PLACE.findall(english[key])) != set(PLACE.findall(chinese[key])):
            found.append(f"{key} has other places for values in Chinese")
        if not english[key].strip() or not chinese[key].strip():
            found.append(f"{key} is empty")
    return found


def test_every_key_has_words_in_both_languages_and_none_is_superfluous() -> None:
    found = problems(_sources(WEB), _words(WEB, "en"), _words(WEB, "zh"))
    assert not found, "\n".join(found)


def test_chinese_words_are_chinese() -> None:
    english, chinese = _words(WEB, "en"), _words(WEB, "zh")
    names = re.compile(r"^[\W\d]*$|^\{\w+\}$")
    same = [key for key in english if english[key] == chinese.get(key) and not names.match(english[key])]
    left = [key for key in same if re.search(r"[a-z]{3,}", re.sub(r"\{\w+\}", "", english[key]))]
    assert not left, left


def test_the_player_speaks_chinese() -> None:
    source = (WEB / "player" / "words.js").read_text(encoding="utf-8").partition("export")[0]
    english = dict(re.findall(r'^  (\w+): "(.*)",$', source, re.MULTILINE))
    chinese: dict[str, str] = json.loads((WEB / "player_zh.json").read_text(encoding="utf-8"))
    assert english and english.keys() == chinese.keys(), sorted(english.keys() ^ chinese.keys())
    other = [key for key in english if set(PLACE.findall(english[key])) != set(PLACE.findall(chinese[key]))]
    assert not other, f"other places for values in Chinese: {other}"


def test_what_is_wrong_would_be_seen() -> None:
    source = 't("a.used"); t(`state.${state}`); t(on ? "a.yes" : "a.no")'
    good = {"a.used": "x {n}", "state.queued": "q", "a.yes": "y", "a.no": "n"}
    assert problems(source, good, good) == []
    assert problems(source, {**good, "a.more": "x"}, {**good, "a.more": "x"}) == ["a.more is used nowhere"]
    less = {key: text for key, text in good.items() if key != "a.no"}
    assert problems(source, less, less) == ["a.no is used and has no words"]
    assert problems(source, good, less) == ["a.no is in one language only"]
    assert problems(source, good, {**good, "a.used": "x {m}"}) == ["a.used has other places for values in Chinese"]
    none = {key: text for key, text in good.items() if key != "state.queued"}
    assert problems(source, none, none) == ["nothing begins with state. and ends with ''"]
