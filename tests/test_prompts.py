"""Prompt sets and files: disjoint splits, stable ids, one sentence for bad input."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest

from flash_grpo.config import build_config
from flash_grpo.errors import InputError
from flash_grpo.models.pocket import world
from flash_grpo.prompts import (
    BUILT_IN,
    SETS,
    SPLITS,
    Prompt,
    built_in_set,
    cut_warning,
    duplicate_warning,
    is_built_in,
    load_prompts,
)


def texts(source: str) -> set[str]:
    return {prompt.text for prompt in load_prompts(source)}


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("pocket", (4000, 200, 400)),
        ("pocket-single", (3000, 200, 400)),
        ("pocket-open", (1200, 60, 140)),
        ("starter", (48, 16, 64)),
        ("studio", (240, 48, 72)),
    ],
)
def test_splits_are_unique_and_disjoint(name: str, counts: tuple[int, int, int]) -> None:
    train, validation, heldout = (texts(f"{name}:{split}") for split in ("train", "validation", "heldout"))
    assert (len(train), len(validation), len(heldout)) == counts
    assert not train & validation
    assert not train & heldout
    assert not validation & heldout


@pytest.mark.parametrize("name", ["pocket", "pocket-single", "pocket-open"])
def test_only_evaluation_prompts_hold_the_held_out_combinations(name: str) -> None:
    for split, expected in (("train", False), ("validation", True), ("heldout", True)):
        scenes = [world.parse_caption(text) for text in texts(f"{name}:{split}")]
        assert {world.is_held_out(scene) for scene in scenes} == {expected}
        subjects = {len(scene.subjects) for scene in scenes}
        assert subjects == ({1, 2} if name == "pocket" else {1})


@pytest.mark.parametrize("source", BUILT_IN)
def test_built_in_sets_are_the_same_every_time_and_limits_take_the_first(source: str) -> None:
    everything = load_prompts(source)
    assert load_prompts(source, 7) == everything[:7]
    assert len({prompt.id for prompt in everything}) == len(everything)
    assert everything[0].id == f"{source.replace(':', '-')}-000000"


@pytest.mark.parametrize("name", ["starter", "studio"])
@pytest.mark.parametrize("split", SPLITS)
def test_the_first_prompts_cover_every_category(name: str, split: str) -> None:
    """A limit, as evaluations have one, keeps the mix."""
    categories = built_in_set(name).categories
    first = load_prompts(f"{name}:{split}", len(categories))
    assert [prompt.metadata["category"] for prompt in first] == list(categories)


def test_the_prompts_for_real_models_are_many_of_every_category_and_evenly_split() -> None:
    known = built_in_set("studio")
    assert sum(known.counts.values()) >= 300 and len(known.categories) >= 10
    for category, sizes in known.categories.items():
        assert sum(sizes.values()) >= 20, f"{category} holds only {sizes}"
        assert sizes == next(iter(known.categories.values())), f"{category} is split differently"


def near(texts: list[str], limit: float = 0.6) -> list[tuple[str, str]]:
    """Pairs of texts that share more than `limit` of their words."""
    words = [(text, set(re.findall(r"[a-z0-9']+", text.lower()))) for text in texts]
    return [(one, two) for (one, a), (two, b) in combinations(words, 2) if len(a & b) >= limit * len(a | b)]


def test_no_two_prompts_for_real_models_are_nearly_the_same() -> None:
    everything = [
        prompt.text for name in ("starter", "studio") for split in SPLITS for prompt in load_prompts(f"{name}:{split}")
    ]
    assert not near(everything)
    copy = everything[5].replace("a ", "the ")
    assert near([*everything, copy]) == [(everything[5], copy)]


def test_the_prompts_for_real_models_are_never_cut() -> None:
    """A token stands for one sign at least, so a text has no more tokens than signs, and two that begin and end it."""
    limit = build_config("wan2.1-1.3b").max_sequence_length
    for split in SPLITS:
        for prompt in load_prompts(f"studio:{split}"):
            assert 40 <= len(prompt.text) <= limit - 2, prompt
            assert prompt.text.isascii() and prompt.text.isprintable(), prompt
            if prompt.metadata["category"] == "text":
                assert re.search('"[^"]+"', prompt.text), f"no text to render is quoted in {prompt}"


def test_some_categories_alone() -> None:
    for split in SPLITS:
        whole, some = load_prompts(f"studio:{split}"), load_prompts(f"studio:{split}:food+animals")
        assert some == [prompt for prompt in whole if prompt.metadata["category"] in ("food", "animals")]
        assert some == load_prompts(f"studio:{split}:animals+food")
        assert load_prompts(f"studio:{split}:animals+food", 3) == some[:3]
        counts = Counter(str(prompt.metadata["category"]) for prompt in whole)
        assert counts == {name: sizes[split] for name, sizes in built_in_set("studio").categories.items()}


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("studio:train:peple", "unknown category of studio 'peple'; did you mean 'people'"),
        ("studio:train:", "unknown category of studio ''; known: animals"),
        ("studio:train:food+", "unknown category of studio ''"),
        ("pocket:train:food", "pocket has no categories, got 'pocket:train:food'; name it as pocket:train"),
        ("studio:trian", "did you mean 'studio:train'"),
        ("studio:train:food:text", "unknown prompt set"),
        ("studio", "a built-in set"),
    ],
)
def test_categories_that_are_none_are_one_sentence(source: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        load_prompts(source)


def test_sizes_are_told_without_loading() -> None:
    for name in SETS:
        for split in SPLITS:
            source = f"{name}:{split}"
            assert is_built_in(source)
            assert built_in_set(name).counts[split] == len(load_prompts(source))
    assert not any(map(is_built_in, ("studio", "train", "prompts.txt", "", "a:b", "studio:all")))


def test_duplicate_lines_stay_separate_prompts(tmp_path: Path) -> None:
    file = tmp_path / "my prompts.txt"
    file.write_text("a cat\n\n  a   dog \na cat\n", encoding="utf-8")
    prompts = load_prompts(str(file))
    assert [p.text for p in prompts] == ["a cat", "a dog", "a cat"]
    assert [p.id for p in prompts] == ["my-prompts-000000", "my-prompts-000001", "my-prompts-000002"]


def test_csv_columns_become_metadata(tmp_path: Path) -> None:
    file = tmp_path / "set.csv"
    file.write_bytes('\ufeffcaption,id,style\r\n"a cat, asleep",one,oil\r\na dog,,ink\r\n'.encode())
    first, second = load_prompts(str(file))
    assert (first.id, first.text, first.metadata) == ("one", "a cat, asleep", {"style": "oil"})
    assert second.id == "set-000001"


def test_json_lines_keep_their_types(tmp_path: Path) -> None:
    file = tmp_path / "set.jsonl"
    file.write_text('{"text": "a cat", "id": 7, "target": 0.3}\n{"prompt": "größer"}\n', encoding="utf-8")
    first, second = load_prompts(str(file))
    assert (first.id, first.metadata) == ("7", {"target": 0.3})
    assert (second.id, second.text) == ("set-000001", "größer")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", b"", "at least one prompt"),
        ("a.txt", b"\n  \n", "at least one prompt"),
        ("a.txt", b"caf\xe9\n", "UTF-8.*0xe9 at offset 3; save the file as UTF-8"),
        ("a.txt", b"a cat\ncaf\xe9\n", "UTF-8.*0xe9 at offset 9"),
        ("a.txt", "a cat\n".encode("utf-16"), "UTF-8.*0xff at offset 0"),
        ("a.txt", "a cat\n".encode("utf-16-le"), "UTF-8.*zero byte in line 1; save the file as UTF-8"),
        ("a.csv", b"prompt\ncaf\xe9\n", "UTF-8.*0xe9 at offset 10"),
        ("a.jsonl", b'{"prompt": "a"}\n{"prompt": "\xff"}\n', "UTF-8.*0xff at offset 28"),
        ("a.jsonl", b'{"prompt": "a \\ud800"}\n', "line 1: expected text, got half a surrogate pair"),
        ("a.jsonl", b"[" * 100_000, "line 1: not valid JSON"),
        ("a.csv", b"", "column named prompt.*no header"),
        ("a.csv", b"title,style\nx,y\n", "column named prompt.*title, style"),
        ("a.csv", b"prompt\n", "at least one prompt"),
        ("a.csv", b"prompt\na cat, asleep\n", "line 2: expected 1 columns"),
        ("a.csv", b'prompt\n"a cat\n', "not valid CSV"),
        ("a.csv", b'prompt,id\n" ",x\n', "line 2: expected the text"),
        ("a.jsonl", b'{"prompt": "a"}\n{"prompt": \n', "line 2: not valid JSON"),
        ("a.jsonl", b'["a"]\n', "line 1: expected an object"),
        ("a.jsonl", b'{"prompt": 3}\n', "line 1: expected the text of a prompt, got 3"),
        ("a.jsonl", b'{"prompt": "a", "id": "x"}\n{"prompt": "b", "id": "X"}\n', "each id once.*twice"),
        ("a.jsonl", b'{"prompt": "a", "id": "../x"}\n', "line 1: expected an id of.*'../x'"),
        ("a.json", b"[]", "a .txt, .csv or .jsonl file"),
    ],
)
def test_bad_files_are_one_sentence(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(InputError, match=sentence) as caught:
        load_prompts(str(file))
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_a_missing_file_and_an_unknown_set_say_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        load_prompts(str(tmp_path / "none.txt"))
    with pytest.raises(InputError, match="cannot read the prompt file"):
        (tmp_path / "folder.txt").mkdir()
        load_prompts(str(tmp_path / "folder.txt"))
    with pytest.raises(InputError, match="did you mean 'pocket:train'"):
        load_prompts("pocket:trian")
    with pytest.raises(InputError, match="limit of at least 1"):
        load_prompts("pocket:train", 0)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", ["a.txt", "a.csv"])
def test_lines_may_end_in_any_way(tmp_path: Path, name: str, end: str) -> None:
    file = tmp_path / name
    file.write_bytes(end.join(["prompt", "a cat", "", "a dog", ""]).encode())
    assert [p.text for p in load_prompts(str(file))][-2:] == ["a cat", "a dog"]


@pytest.mark.parametrize("name", ["many.txt", "many.csv", "many.jsonl"])
def test_a_long_file_is_read_a_line_at_a_time_and_no_further_than_asked(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    texts = [f"a small red circle moving slowly left past number {index}" for index in range(50_000)]
    lines = {
        "many.txt": texts,
        "many.csv": ["prompt", *texts],
        "many.jsonl": [json.dumps({"prompt": text}) for text in texts],
    }[name]
    file.write_text("\n".join(lines), encoding="utf-8")
    assert load_prompts(str(file))[-1] == Prompt("many-049999", texts[-1])
    tracemalloc.start()
    assert len(load_prompts(str(file), limit=100)) == 100
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500_000, f"reading 100 of 50000 prompts held {peak} bytes at once"


def test_repeated_prompts_are_told_with_their_count() -> None:
    prompts = [Prompt(str(index), text) for index, text in enumerate(["a cat", "a dog", "a cat", "a cat", "a dog"])]
    sentence = duplicate_warning("prompts", prompts)
    assert sentence is not None and "\n" not in sentence
    assert sentence.startswith("prompts repeats 3 of its 5 prompts, such as 'a cat' (3 times);")
    assert duplicate_warning("prompts", prompts[:2]) is None


def test_prompts_that_will_be_cut_are_told_with_the_longest() -> None:
    long = "a cat " * 40
    sentence = cut_warning(["a cat", "a dog on a mat", long], [3, 7, 81], 6)
    assert sentence is not None
    assert sentence.startswith("2 of 3 prompts are longer than 6 text tokens")
    assert "...' (81 tokens)" in sentence and len(sentence) < 250
    assert cut_warning(["a cat", "a dog on a mat"], [3, 6], 6) is None


def test_a_round_trip_through_json_lines_keeps_ids(tmp_path: Path) -> None:
    prompts = load_prompts("starter:heldout")
    file = tmp_path / "copy.jsonl"
    rows = [json.dumps({"id": p.id, "prompt": p.text, **p.metadata}) for p in prompts]
    file.write_text("\n".join(rows), encoding="utf-8")
    assert load_prompts(str(file)) == prompts
