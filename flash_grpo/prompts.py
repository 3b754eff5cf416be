"""Prompts: built-in sets and files, each prompt with a stable id and its metadata. Imports no torch."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path

from flash_grpo.errors import InputError, unknown_name

SPLITS = ("train", "validation", "heldout")
BUILT_IN = tuple(
    f"{name}:{split}" for name in ("pocket", "pocket-single", "pocket-open", "starter") for split in SPLITS
)
TEXT_COLUMNS = ("prompt", "text", "caption")

# Changing a seed or a count changes which prompts a run sees, and so every published figure.
_TRAIN_SEED, _EVALUATION_SEED = 101, 202
_COUNTS = {  # train, validation, held-out
    "pocket": (4000, 200, 400),
    "pocket-single": (3000, 200, 400),
    "pocket-open": (1200, 60, 140),
}

_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Prompt:
    """One prompt; two prompts of the same text but different ids are different groups."""

    id: str
    text: str
    metadata: Mapping[str, object] = field(default_factory=dict)


def load_prompts(source: str, limit: int | None = None) -> list[Prompt]:
    """The prompts of a built-in set (`pocket:train`) or a .txt, .csv or .jsonl file, the first `limit` of them.

    Text files hold a prompt a line; CSV a column prompt, text or caption; JSON lines an object with one of these keys.
    Other columns and keys become metadata; `id` is taken where given, else it is the file's name and the position.
    Raises InputError: unknown set, or a file that is missing, not UTF-8, empty, malformed or repeats an id.
    """
    if limit is not None and limit < 1:
        raise InputError(f"expected a limit of at least 1 prompt, got {limit}")
    prompts = _built_in(source) if source in BUILT_IN else _from_file(source)
    return list(prompts[:limit])


@lru_cache(maxsize=len(BUILT_IN))
def _built_in(source: str) -> tuple[Prompt, ...]:
    name, _, split = source.partition(":")
    return _starter(split) if name == "starter" else _pocket(name, split)


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


def _starter(split: str) -> tuple[Prompt, ...]:
    file = resources.files("flash_grpo") / "prompts_data" / "starter.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return tuple(Prompt(row["id"], row["prompt"], {"theme": row["theme"]}) for row in rows if row["split"] == split)


def _from_file(source: str) -> tuple[Prompt, ...]:
    path = Path(source)
    readers = {".txt": _rows_txt, ".csv": _rows_csv, ".jsonl": _rows_jsonl}
    if not path.suffix and ":" in source:
        raise unknown_name("prompt set", source, BUILT_IN)
    if path.suffix.lower() not in readers:
        raise InputError(
            f"expected prompts as a .txt, .csv or .jsonl file or a built-in set ({', '.join(BUILT_IN)}), got {source!r}"
        )
    rows = list(readers[path.suffix.lower()](path, _read_text(path)))
    if not rows:
        raise InputError(f"expected at least one prompt in {path}, got none; write one prompt a line")
    prompts = tuple(_prompt(path, index, row) for index, row in enumerate(rows))
    _check_ids(path, prompts)
    return prompts


def _read_text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"the prompt file {path} does not exist; check the path") from None
    except OSError as error:
        raise InputError(f"cannot read the prompt file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"expected UTF-8 text in {path}, got byte 0x{error.object[error.start]:02x} at offset {error.start}; "
            "save the file as UTF-8"
        ) from error


@dataclass(frozen=True)
class _Row:
    """One prompt as read: where it stands (for messages), its text, its id if given, and the rest."""

    line: int
    text: object
    id: object
    rest: Mapping[str, object]


def _rows_txt(path: Path, content: str) -> Iterable[_Row]:
    del path
    for number, line in enumerate(content.splitlines(), start=1):
        if line.strip():
            yield _Row(number, line, None, {})


def _rows_csv(path: Path, content: str) -> Iterable[_Row]:
    reader = csv.DictReader(io.StringIO(content, newline=""), strict=True)
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


def _rows_jsonl(path: Path, content: str) -> Iterable[_Row]:
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: not valid JSON ({error}); write one object a line") from error
        key = next((name for name in TEXT_COLUMNS if name in fields), None) if isinstance(fields, dict) else None
        if key is None:
            raise InputError(f'{path}, line {number}: expected an object such as {{"prompt": "..."}}, got {line[:60]}')
        rest = {name: value for name, value in fields.items() if name not in (key, "id")}
        yield _Row(number, fields[key], fields.get("id"), rest)


def _prompt(path: Path, index: int, row: _Row) -> Prompt:
    text = " ".join(row.text.split()) if isinstance(row.text, str) else ""
    if not text:
        raise InputError(f"{path}, line {row.line}: expected the text of a prompt, got {row.text!r}")
    given = str(row.id).strip() if row.id is not None else ""
    if given and not _ID.fullmatch(given):
        raise InputError(
            f"{path}, line {row.line}: expected an id of at most 100 letters, digits, dots, dashes and underscores "
            f"(it names video files), got {given!r}"
        )
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem)[:90].strip("-") or "prompt"
    return Prompt(given or f"{stem}-{index:06d}", text, row.rest)


def _check_ids(path: Path, prompts: Iterable[Prompt]) -> None:
    seen: set[str] = set()
    for prompt in prompts:
        name = prompt.id.casefold()  # video files are named by id, and some file systems ignore case
        if name in seen:
            raise InputError(f"expected each id once in {path}, got {prompt.id!r} twice; make the ids unique")
        seen.add(name)
