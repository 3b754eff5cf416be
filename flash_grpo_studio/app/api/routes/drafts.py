"""What a person has begun on the page of a new run, so that it is there after a reload and in another browser."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, Field

from flash_grpo_studio.app.api.base import Done, Strict, subject
from flash_grpo_studio.app.api.errors import Refused, problems
from flash_grpo_studio.app.api.who import Parts, Reader, Writer
from flash_grpo_studio.app.store.drafts import drop_draft, put_draft, read_draft

router = subject("drafts")
MOST_BYTES = 256 * 1024
Address = Annotated[
    str, Query(max_length=1000, pattern=r"^[ -~]*$", description="What of the page's address stands behind /new.")
]


class DraftView(BaseModel):
    """A draft; version 0 and no form where there is none."""

    version: int
    form: dict[str, Any] | None
    changed: float | None


class DraftEdit(Strict):
    """A form to keep; `version` is of the draft it is a later state of, 0 where there was none."""

    version: int = Field(ge=0, lt=2**31 - 1)
    form: dict[str, Any]


class DraftKept(BaseModel):
    """The version that was kept."""

    version: int


@router.get("/drafts/new", response_model=DraftView, summary="The draft of a new run")
def get_new_draft(studio: Parts, actor: Reader, address: Address = "") -> DraftView:
    """One's own draft of that address."""
    with studio.store.reading() as session:
        draft = read_draft(session, actor.user_id, address)
        if draft is None:
            return DraftView(version=0, form=None, changed=None)
        return DraftView(version=draft.version, form=draft.form, changed=draft.changed)


@router.put("/drafts/new", response_model=DraftKept, responses=problems(409), summary="Keep the draft of a new run")
def put_new_draft(studio: Parts, actor: Writer, edit: DraftEdit, address: Address = "") -> DraftKept:
    """Refused (409) where the draft was changed meanwhile, as by another window: look at it, then decide."""
    if len(json.dumps(edit.form)) > MOST_BYTES:
        raise Refused(413, "too_large", f"a draft may hold {MOST_BYTES // 1024} kB; keep the prompts as a prompt set")
    version = put_draft(studio.store, actor.user_id, address, edit.version, edit.form)
    if version is None:
        message = "the draft was changed in another window in the meantime; nothing was saved"
        raise Refused(409, "changed_elsewhere", message, "look at it as it is now, then save your own over it")
    return DraftKept(version=version)


@router.delete("/drafts/new", response_model=Done, summary="Forget the draft of a new run")
def delete_new_draft(studio: Parts, actor: Writer, address: Address = "") -> Done:
    """The next one begins anew."""
    with studio.store.writing() as session:
        drop_draft(session, actor.user_id, address)
    return Done()
