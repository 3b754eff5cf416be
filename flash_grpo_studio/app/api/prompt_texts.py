"""Prompts from whatever they come in, read as the command line reads them, with what is odd about them."""

from __future__ import annotations

import json
import random
import statistics
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, model_validator

from flash_grpo.errors import InputError
from flash_grpo.prompts import Prompt, duplicate_warning, load_prompts
from flash_grpo_studio.app.api.base import Strict
from flash_grpo_studio.app.jobs.spec import MAX_PROMPTS, Identifier

LONG_WORDS = 200
SHOWN = 20


class PromptItem(Strict):
    """A prompt with an id of its own, by which its videos are named."""

    id: str = Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,99}$")
    text: str = Field(min_length=1, max_length=4000)


Text = Annotated[str, Field(min_length=1, max_length=4000)]
Prompts = Annotated[list[Text | PromptItem], Field(min_length=1, max_length=MAX_PROMPTS)]


class PromptSource(Strict):
    """Exactly one of a list, a pasted text with a prompt a line, or the id of an uploaded file."""

    prompts: Prompts | None = None
    text: str | None = Field(None, min_length=1, max_length=10_000_000)
    file_id: Identifier | None = Field(None, description="An uploaded .txt, .csv or .jsonl file.")
    remove_duplicates: bool = False
    heldout_share: float = Field(0.0, ge=0, le=0.5, description="Share of the texts that is never trained on.")
    seed: int = Field(0, ge=0, lt=2**31, description="Of the draw of held-out prompts.")

    @model_validator(mode="after")
    def _one_source(self) -> PromptSource:
        given = [name for name in ("prompts", "text", "file_id") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of prompts, text and file_id, got {', '.join(given) or 'none'}")
        return self


class LongPrompt(BaseModel):
    """A prompt that models are likely to cut."""

    id: str
    words: int


class PromptReport(BaseModel):
    """What is to be known about prompts."""

    count: int
    duplicates: int = Field(description="Prompts whose text came before.")
    warning: str | None = Field(None, description="A sentence about repeated texts.")
    shortest_words: int
    median_words: float
    longest_words: int
    long: list[LongPrompt] = Field(description=f"The first {SHOWN} with more than {LONG_WORDS} words.")


class ParsedPrompts(BaseModel):
    """Prompts as they would be kept."""

    prompts: list[PromptItem]
    heldout: list[PromptItem]
    report: PromptReport


def read_source(source: PromptSource, file: Path | None) -> ParsedPrompts:
    """Read, check and split. `file` is the upload that `file_id` names. Raises InputError."""
    prompts = _read(source, file)
    if len(prompts) > MAX_PROMPTS:
        raise InputError(f"expected at most {MAX_PROMPTS} prompts, got {len(prompts)}; split the file")
    if strange := next((prompt for prompt in prompts if "\0" in prompt.text), None):
        raise InputError(f"the prompt {strange.id!r} holds a zero byte; leave it out")
    if too_long := next((prompt for prompt in prompts if len(prompt.text) > 4000), None):
        raise InputError(f"the prompt {too_long.id!r} has more than 4000 signs; shorten it")
    report = describe(prompts)
    if source.remove_duplicates:
        first: dict[str, Prompt] = {}
        for prompt in prompts:
            first.setdefault(prompt.text, prompt)
        prompts = list(first.values())
    training, heldout = split(prompts, source.heldout_share, source.seed)
    return ParsedPrompts(prompts=_items(training), heldout=_items(heldout), report=report)


def _items(prompts: Sequence[Prompt]) -> list[PromptItem]:
    return [PromptItem(id=prompt.id, text=prompt.text) for prompt in prompts]


def _read(source: PromptSource, file: Path | None) -> list[Prompt]:
    if file is not None:
        return _load(file)
    with tempfile.TemporaryDirectory(prefix="flash-grpo-prompts-") as folder:
        if source.text is not None:
            path = Path(folder) / "prompt.txt"
            path.write_text(source.text, encoding="utf-8")
        else:
            path = Path(folder) / "prompt.jsonl"
            path.write_text("\n".join(map(_line, source.prompts or ())), encoding="utf-8")
        return _load(path)


def _line(prompt: str | PromptItem) -> str:
    fields: dict[str, Any] = {"prompt": prompt} if isinstance(prompt, str) else {"id": prompt.id, "prompt": prompt.text}
    return json.dumps(fields)


def _load(path: Path) -> list[Prompt]:
    try:
        return load_prompts(str(path), MAX_PROMPTS + 1)
    except InputError as error:  # where the file lies is nobody's business
        raise InputError(str(error).replace(str(path), path.name)) from error


def describe(prompts: Sequence[Prompt]) -> PromptReport:
    """Counts, lengths and repeated texts."""
    words = [len(prompt.text.split()) for prompt in prompts]
    counts = Counter(prompt.text for prompt in prompts)
    long = [LongPrompt(id=p.id, words=n) for p, n in zip(prompts, words, strict=True) if n > LONG_WORDS]
    return PromptReport(
        count=len(prompts),
        duplicates=len(prompts) - len(counts),
        warning=duplicate_warning("the list", prompts),
        shortest_words=min(words),
        median_words=statistics.median(words),
        longest_words=max(words),
        long=long[:SHOWN],
    )


def split(prompts: Sequence[Prompt], share: float, seed: int) -> tuple[list[Prompt], list[Prompt]]:
    """Training and held-out prompts; all copies of a text go to the same side, and one text at least is trained on."""
    texts = sorted({prompt.text for prompt in prompts})
    count = min(round(share * len(texts)), len(texts) - 1)
    kept_out = set(random.Random(seed).sample(texts, count))
    return [p for p in prompts if p.text not in kept_out], [p for p in prompts if p.text in kept_out]
