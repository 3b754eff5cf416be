"""Prompt sets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, Field
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, defer

from flash_grpo.errors import InputError, unknown_name
from flash_grpo.prompts import BUILT_IN, is_built_in, load_prompts
from flash_grpo_studio.app.api.base import Cursor, Done, Limit, PageOf, Person, PromptSetId, Strict, subject
from flash_grpo_studio.app.api.errors import Refused, problems
from flash_grpo_studio.app.api.prompt_texts import (
    ParsedPrompts,
    PromptItem,
    Prompts,
    PromptSource,
    read_source,
)
from flash_grpo_studio.app.api.studio import Studio
from flash_grpo_studio.app.api.who import Parts, Reader, Writer
from flash_grpo_studio.app.jobs.access import Actor, fetch, visible
from flash_grpo_studio.app.jobs.change import tell
from flash_grpo_studio.app.store.listing import paged, user_names
from flash_grpo_studio.app.store.tables import File, PromptSet

router = subject("prompts")


class PromptSetBrief(BaseModel):
    """A prompt set in lists."""

    id: str
    name: str
    owner: Person
    mine: bool
    shared: bool
    count: int
    heldout_count: int
    created: float
    changed: float


class PromptSetView(PromptSetBrief):
    """A prompt set with its prompts."""

    prompts: list[PromptItem]
    heldout: list[PromptItem]


class PromptSetPage(PageOf):
    """A page of prompt sets."""

    prompt_sets: list[PromptSetBrief]


class PromptSetAsk(PromptSource):
    """A prompt set to make."""

    name: str = Field(min_length=1, max_length=200)
    shared: bool = Field(False, description="Whether other users may use it.")


class PromptSetEdit(Strict):
    """What to change; fields that are left out stay."""

    name: str | None = Field(None, min_length=1, max_length=200)
    shared: bool | None = None
    prompts: Prompts | None = None
    heldout: Annotated[list[Any], Field(max_length=0)] | Prompts | None = None
    unless_changed_since: float | None = Field(
        None, description="The set's `changed` as it was read; where somebody has changed it since, nothing happens."
    )


class BuiltInPrompt(PromptItem):
    """A prompt of a built-in set."""

    category: str | None = Field(None, description="Null in sets that have no categories.")


class BuiltInPrompts(BaseModel):
    """Prompts of a built-in set."""

    name: str
    prompts: list[BuiltInPrompt]


@contextmanager
def unique_name(what: str, name: str | None) -> Iterator[None]:
    """Turn the database's complaint about a name that one has used already into a sentence."""
    try:
        yield
    except IntegrityError as error:
        raise Refused(409, "name_taken", f"you have a {what} named {name!r} already; choose another name") from error


def _brief(session: Session, actor: Actor, rows: list[tuple[PromptSet, int, int]]) -> list[PromptSetBrief]:
    names = user_names(session, [row.owner_id for row, _, _ in rows])
    return [
        PromptSetBrief(
            id=row.id,
            name=row.name,
            owner=Person(id=row.owner_id, name=names.get(row.owner_id, "")),
            mine=row.owner_id == actor.user_id,
            shared=row.shared,
            count=count,
            heldout_count=heldout,
            created=row.created,
            changed=row.changed,
        )
        for row, count, heldout in rows
    ]


def _whole(session: Session, actor: Actor, row: PromptSet) -> PromptSetView:
    brief = _brief(session, actor, [(row, len(row.prompts), len(row.heldout))])[0]
    return PromptSetView(**brief.model_dump(), prompts=row.prompts, heldout=row.heldout)


@router.get("/built-in-prompts", response_model=BuiltInPrompts, summary="Prompts of a built-in set")
def get_built_in_prompts(
    actor: Reader,
    name: Annotated[str, Query(max_length=300, examples=["starter:train", "studio:train:people+animals"])],
    limit: Annotated[int, Query(ge=1, le=5000)] = 100,
) -> BuiltInPrompts:
    """The first prompts of a set that ships with the package, or of some of its categories."""
    if not is_built_in(name):
        raise unknown_name("prompt set", name, BUILT_IN)
    found = [
        BuiltInPrompt(id=prompt.id, text=prompt.text, category=prompt.metadata.get("category"))
        for prompt in load_prompts(name, limit)
    ]
    return BuiltInPrompts(name=name, prompts=found)


@router.post("/prompt-sets/parse", response_model=ParsedPrompts, responses=problems(404), summary="Try prompts out")
def parse_prompts(studio: Parts, actor: Reader, source: PromptSource) -> ParsedPrompts:
    """Read prompts, report duplicates and lengths, and split them, without keeping anything."""
    return _parsed(studio, actor, source)


def _parsed(studio: Studio, actor: Actor, source: PromptSource) -> ParsedPrompts:
    path = None
    if source.file_id is not None:
        with studio.store.reading() as session:
            row = fetch(session, actor, File, source.file_id)
        if row.kind != "prompts":
            raise InputError(f"{row.name} is no prompt file; upload a .txt, .csv or .jsonl file")
        path = studio.workspace.inside(row.path)
    return read_source(source, path)


@router.get("/prompt-sets", response_model=PromptSetPage, summary="Prompt sets")
def list_prompt_sets(studio: Parts, actor: Reader, limit: Limit = 100, cursor: Cursor = None) -> PromptSetPage:
    """One's own prompt sets and shared ones by name, without their prompts."""
    query = select(PromptSet).where(visible(actor, PromptSet))
    query = query.options(defer(PromptSet.prompts), defer(PromptSet.heldout))
    counts = select(PromptSet.id, func.json_array_length(PromptSet.prompts), func.json_array_length(PromptSet.heldout))
    with studio.store.reading() as session:
        page = paged(session, query, [(PromptSet.name, False), (PromptSet.id, False)], limit, cursor)
        found = session.execute(counts.where(PromptSet.id.in_([row.id for row in page.rows]))).all()
        by_id = {id_: (count, heldout) for id_, count, heldout in found}
        shown = _brief(session, actor, [(row, *by_id[row.id]) for row in page.rows])
    return PromptSetPage(prompt_sets=shown, total=page.total, next=page.next)


@router.post(
    "/prompt-sets",
    status_code=201,
    response_model=PromptSetView,
    responses=problems(404, 409),
    summary="Make a prompt set",
)
def make_prompt_set(studio: Parts, actor: Writer, asked: PromptSetAsk) -> PromptSetView:
    """Keep prompts under a name, with a share that is never trained on."""
    parsed = _parsed(studio, actor, asked)
    with unique_name("prompt set", asked.name), studio.store.writing() as session:
        row = PromptSet(
            owner_id=actor.user_id,
            name=asked.name,
            shared=asked.shared,
            prompts=[item.model_dump() for item in parsed.prompts],
            heldout=[item.model_dump() for item in parsed.heldout],
        )
        session.add(row)
        session.flush()
        tell(session, None, "prompt_set_made", actor.user_id, prompt_set=row.id, name=row.name)
        return _whole(session, actor, row)


@router.get(
    "/prompt-sets/{prompt_set_id}", response_model=PromptSetView, responses=problems(404), summary="A prompt set"
)
def get_prompt_set(studio: Parts, actor: Reader, prompt_set_id: PromptSetId) -> PromptSetView:
    """A prompt set with its prompts."""
    with studio.store.reading() as session:
        return _whole(session, actor, fetch(session, actor, PromptSet, prompt_set_id))


@router.patch(
    "/prompt-sets/{prompt_set_id}",
    response_model=PromptSetView,
    responses=problems(404, 409),
    summary="Change a prompt set",
)
def edit_prompt_set(studio: Parts, actor: Writer, prompt_set_id: PromptSetId, edit: PromptSetEdit) -> PromptSetView:
    """Another name, other prompts, shared or not. Jobs that were submitted keep the prompts they had."""
    replaced: dict[str, list[Any]] = {}
    for key in ("prompts", "heldout"):
        given = getattr(edit, key)
        if given is not None:
            parsed = read_source(PromptSource(prompts=given), None).prompts if given else []
            replaced[key] = [item.model_dump() for item in parsed]
    with unique_name("prompt set", edit.name), studio.store.writing() as session:
        row = fetch(session, actor, PromptSet, prompt_set_id, change=True)
        if edit.unless_changed_since not in (None, row.changed):
            raise Refused(
                409,
                "changed_meanwhile",
                f"the prompt set {row.name!r} was changed by someone else in the meantime; nothing was saved",
                "look at the set as it is now, then save your own version over it or give it another name",
            )
        for key, value in {"name": edit.name, "shared": edit.shared, **replaced}.items():
            if value is not None:
                setattr(row, key, value)
        row.changed = time.time()
        session.flush()
        tell(session, None, "prompt_set_changed", actor.user_id, prompt_set=row.id, name=row.name)
        return _whole(session, actor, row)


@router.delete(
    "/prompt-sets/{prompt_set_id}", response_model=Done, responses=problems(404), summary="Delete a prompt set"
)
def delete_prompt_set(studio: Parts, actor: Writer, prompt_set_id: PromptSetId) -> Done:
    """Remove a prompt set; jobs that were submitted keep the prompts they had."""
    with studio.store.writing() as session:
        row = fetch(session, actor, PromptSet, prompt_set_id, change=True)
        session.delete(row)
        tell(session, None, "prompt_set_deleted", actor.user_id, prompt_set=row.id, name=row.name)
    return Done()
