"""Prompts: built-in sets and files, each prompt with a stable id and its metadata. Imports no torch."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from flash_grpo.errors import InputError, unknown_name

SPLITS = ("train", "validation", "heldout")
SHIPPED = ("starter", "studio")
"""Written for real models and kept by category in prompts_data/; the others are drawn from the pocket world."""
SETS = ("pocket", "pocket-single", "pocket-open", *SHIPPED)
BUILT_IN = tuple(f"{name}:{split}" for name in SETS for split in SPLITS)
TEXT_COLUMNS = ("prompt", "text", "caption")

# Changing a seed or a count changes which prompts a run sees, and so every published figure.
_TRAIN_SEED, _EVALUATION_SEED = 101, 202
_COUNTS = {  # train, validation, held-out
    "pocket": (4000, 200, 400),
    "pocket-single": (3000, 200, 400),
    "pocket-open": (1200, 60, 140),
}

_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHOWN = 60
_AS_UTF8 = "save the file as UTF-8"


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt; two prompts of the same text but different ids are different groups."""

    id: str
    text: str
    metadata: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BuiltInSet:
    """Size of a built-in set by split, whole and of each category; sets of the pocket world have no categories."""

    name: str
    counts: Mapping[str, int]
    categories: Mapping[str, Mapping[str, int]]


def load_prompts(source: str, limit: int | None = None) -> list[Prompt]:
    """The prompts of a built-in set or a .txt, .csv or .jsonl file, the first `limit` of them.

    A built-in set is named with its split (`pocket:train`), and some categories of it alone where it has categories
    (`studio:train:people+animals`).
    Text files hold a prompt a line; CSV a column prompt, text or caption; JSON lines an object with one of these keys.
    Other columns and keys become metadata; `id` is taken where given, else it is the file's name and the position.
    Blank lines are skipped, repeated prompts are kept (see `duplicate_warning`); a file is read up to `limit`.
    Raises InputError: unknown set, or a file that is missing, not UTF-8, empty, malformed or repeats an id.
    """
    if limit is not None and limit < 1:
        raise InputError(f"expected a limit of at least 1 prompt, got {limit}")
    if is_built_in(source):
        whole, wanted = _parts(source)
        found = (prompt for prompt in _built_in(whole) if wanted is None or prompt.metadata["category"] in wanted)
        return list(islice(found, limit))
    return _from_file(source, limit)


def is_built_in(source: str) -> bool:
    """Whether `source` names a built-in set; InputError if it names categories that the set does not have."""
    whole, wanted = _parts(source)
    if whole not in BUILT_IN:
        return False
    name = whole.partition(":")[0]
    known = built_in_set(name).categories
    if wanted is not None and not known:
        raise InputError(f"the prompt set {name} has no categories, got {source!r}; name it as {whole}")
    for category in sorted((wanted or set()) - known.keys()):
        raise unknown_name(f"category of {name}", category, known)
    return True


def _parts(source: str) -> tuple[str, set[str] | None]:
    """The set with its split, and the categories that are asked for; None stands for all."""
    whole, _, categories = source.rpartition(":")
    return (whole, set(categories.split("+"))) if ":" in whole else (source, None)


@lru_cache(maxsize=len(SETS))
def built_in_set(name: str) -> BuiltInSet:
    """What there is of a built-in set, without drawing the pocket world's captions."""
    if name in _COUNTS:
        return BuiltInSet(name, dict(zip(SPLITS, _COUNTS[name], strict=True)), {})
    counts = {split: Counter(str(p.metadata["category"]) for p in _built_in(f"{name}:{split}")) for split in SPLITS}
    categories = {category: {split: counts[split][category] for split in SPLITS} for category in counts["train"]}
    return BuiltInSet(name, {split: counts[split].total() for split in SPLITS}, categories)


def duplicate_warning(key: str, prompts: Sequence[Prompt]) -> str | None:
    """A sentence if texts repeat in the prompts of configuration key `key`, with their count and an example; else None.

    Repeated prompts are no error: in training they are drawn as often as they are listed.
    """
    counts = Counter(prompt.text for prompt in prompts)
    if len(counts) == len(prompts):
        return None
    text, times = counts.most_common(1)[0]
    return (
        f"{key} repeats {len(prompts) - len(counts)} of its {len(prompts)} prompts, such as {_short(text)} ({times} "
        "times); each counts as often as it is listed, remove the copies if that is not meant"
    )


def cut_warning(texts: Sequence[str], tokens: Sequence[int], limit: int) -> str | None:
    """A sentence if prompts of `tokens` text tokens each are longer than `limit` and so are cut; else None."""
    long = [(count, text) for text, count in zip(texts, tokens, strict=True) if count > limit]
    if not long:
        return None
    count, text = max(long)
    return (
        f"{len(long)} of {len(texts)} prompts are longer than {limit} text tokens and what follows is cut, such as "
        f"{_short(text)} ({count} tokens); shorten them or raise max_sequence_length"
    )


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}...")


@lru_cache(maxsize=len(BUILT_IN))
def _built_in(whole: str) -> tuple[Prompt, ...]:
    name, _, split = whole.partition(":")
    return _shipped(name, split) if name in SHIPPED else _pocket(name, split)


def _pocket(name: str, split: str) -> tuple[Prompt, ...]:
    """Captions of the pocket world; validation and held-out are one draw of unique captions, cut in two.

    `pocket-single` names one subject each, `pocket-open` no size either: what captions leave open, a reward may shape.
    """
    from flash_grpo.models.pocket import world  # numpy waits until prompts are needed

    mix = {
        "pocket": world.SceneMix(),
        "pocket-single": world.SceneMix(pair_share=0.0),
        "pocket-open": world.SceneMix(pair_share=0.0, open_size_share=1.0),
    }[name]
    train, validation, heldout = _COUNTS[name]
    if split == "train":
        scenes = world.sample_scenes(_TRAIN_SEED, train, held_out=False, mix=mix, unique=True)
    else:
        drawn = world.sample_scenes(_EVALUATION_SEED, validation + heldout, held_out=True, mix=mix, unique=True)
        scenes = drawn[:validation] if split == "validation" else drawn[validation:]
    return tuple(
        Prompt(f"{name}-{split}-{index:06d}", scene.caption(), {"subjects": len(scene.subjects)})
        for index, scene in enumerate(scenes)
    )


def _shipped(name: str, split: str) -> tuple[Prompt, ...]:
    file = resources.files("flash_grpo") / "prompts_data" / f"{name}.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return tuple(
        Prompt(row["id"], row["prompt"], {"category": row["category"]}) for row in rows if row["split"] == split
    )


def _from_file(source: str, limit: int | None) -> list[Prompt]:
    path = Path(source)
    readers = {".txt": _rows_txt, ".csv": _rows_csv, ".jsonl": _rows_jsonl}
    if not path.suffix and ":" in source:
        raise unknown_name("prompt set", source, BUILT_IN)
    if path.suffix.lower() not in readers:
        raise InputError(
            f"expected prompts as a .txt, .csv or .jsonl file or a built-in set ({', '.join(BUILT_IN)}), got {source!r}"
        )
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem)[:90].strip("-") or "prompt"
    rows = readers[path.suffix.lower()](path, _lines(path))
    try:
        prompts = [_prompt(path, f"{stem}-{index:06d}", row) for index, row in enumerate(islice(rows, limit))]
    except OSError as error:
        raise InputError(f"cannot read the prompt file {path}: {error.strerror}; check the path") from error
    if not prompts:
        raise InputError(f"expected at least one prompt in {path}, got none; write one prompt a line")
    _check_ids(path, prompts)
    return prompts


def _lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file with their ends, one at a time: a file of a million prompts is never held twice."""
    offset = 0
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file):
                line = raw.decode("utf-8-sig" if number == 0 else "utf-8")
                if "\0" in line:
                    raise InputError(f"expected UTF-8 text in {path}, got a zero byte in line {number + 1}; {_AS_UTF8}")
                yield line
                offset += len(raw)
    except FileNotFoundError:
        raise InputError(f"the prompt file {path} does not exist; check the path") from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"expected UTF-8 text in {path}, got byte 0x{error.object[error.start]:02x} at offset "
            f"{offset + error.start}; {_AS_UTF8}"
        ) from error


class _Row(NamedTuple):
    """One prompt as read: where it stands (for messages), its text, its id if given, and the rest."""

    line: int
    text: object
    id: object
    rest: Mapping[str, object]


def _rows_txt(path: Path, lines: Iterable[str]) -> Iterator[_Row]:
    del path
    number = 0
    for read in lines:
        for line in read.splitlines():  # a file may also end its lines in the old ways
            number += 1
            if line.strip():
                yield _Row(number, line, None, {})


def _rows_csv(path: Path, lines: Iterable[str]) -> Iterator[_Row]:
    reader = csv.DictReader(_csv_lines(lines), strict=True)
    try:
        names = [name.strip() for name in reader.fieldnames or ()]
        column = next((name for name in TEXT_COLUMNS if name in names), None)
        if column is None:
            raise InputError(
                f"expected a column named prompt, text or caption in {path}, "
                f"got {', '.join(names) or 'no header'}; name the column in the first line"
            )
        reader.fieldnames = names
        for fields in reader:
            if None in fields or None in fields.values():
                raise InputError(
                    f"{path}, line {reader.line_num}: expected {len(names)} columns; quote a prompt that holds a comma"
                )
            rest: dict[str, object] = {key: value for key, value in fields.items() if key not in (column, "id")}
            yield _Row(reader.line_num, fields[column], fields.get("id"), rest)
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not valid CSV ({error}); check its quotes") from error


def _csv_lines(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        if "\r" in line.rstrip("\r\n"):
            yield from io.StringIO(line, newline="")
        else:
            yield line


def _rows_jsonl(path: Path, lines: Iterable[str]) -> Iterator[_Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number}: not valid JSON ({error}); write one object a line") from error
        key = next((name for name in TEXT_COLUMNS if name in fields), None) if isinstance(fields, dict) else None
        if key is None:
            start = line.strip()[:_SHOWN]
            raise InputError(f'{path}, line {number}: expected an object such as {{"prompt": "..."}}, got {start}')
        rest = {name: value for name, value in fields.items() if name not in (key, "id")}
        yield _Row(number, fields[key], fields.get("id"), rest)


def _prompt(path: Path, default_id: str, row: _Row) -> Prompt:
    text = " ".join(row.text.split()) if isinstance(row.text, str) else ""
    if not text:
        raise InputError(f"{path}, line {row.line}: expected the text of a prompt, got {row.text!r}")
    if not text.isascii() and _SURROGATE.search(text):
        raise InputError(f"{path}, line {row.line}: expected text, got half a surrogate pair in {text!r}; {_AS_UTF8}")
    given = str(row.id).strip() if row.id is not None else ""
    if given and not _ID.fullmatch(given):
        raise InputError(
            f"{path}, line {row.line}: expected an id of at most 100 letters, digits, dots, dashes and underscores "
            f"(it names video files), got {given!r}"
        )
    return Prompt(given or default_id, text, row.rest)


def _check_ids(path: Path, prompts: Iterable[Prompt]) -> None:
    seen: set[str] = set()
    for prompt in prompts:
        name = prompt.id.casefold()  # video files are named by id, and some file systems ignore case
        if name in seen:
            raise InputError(f"expected each id once in {path}, got {prompt.id!r} twice; make the ids unique")
        seen.add(name)
