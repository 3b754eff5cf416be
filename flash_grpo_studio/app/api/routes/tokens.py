"""Tokens for programs."""

from __future__ import annotations

import time
from typing import Literal

from pydantic import BaseModel, Field

from flash_grpo_studio.app.api.base import Done, Strict, TokenId, subject
from flash_grpo_studio.app.api.errors import problems
from flash_grpo_studio.app.api.who import Parts, Reader
from flash_grpo_studio.app.jobs.access import Actor, Forbidden
from flash_grpo_studio.app.store.tables import ApiToken

router = subject("tokens")
Scope = Literal["read", "write", "admin"]


class TokenAsk(Strict):
    """A token to make."""

    name: str = Field(min_length=1, max_length=100, description="What it is for.")
    scopes: list[Scope] = Field(["read"], min_length=1, max_length=3)
    days: float | None = Field(90, gt=0, le=3650, description="Until it expires; null is never.")


class TokenView(BaseModel):
    """A token, without its text, which nobody has any more."""

    id: str
    name: str
    scopes: list[Scope]
    created: float
    expires: float | None
    last_used: float | None


class NewToken(TokenView):
    """A token with its text, shown this once."""

    token: str = Field(description="Send it as `Authorization: Bearer TOKEN`. It is not shown again.")


class TokenList(BaseModel):
    """One's own tokens."""

    tokens: list[TokenView]


def _view(row: ApiToken) -> TokenView:
    return TokenView(**{name: getattr(row, name) for name in TokenView.model_fields})


def _may_manage(actor: Actor) -> None:
    """Viewers may have tokens too; a token that only reads makes and removes none."""
    if "write" not in actor.scopes and actor.role != "viewer":
        raise Forbidden("this token may only read; use one with the scope write")


@router.get("/tokens", response_model=TokenList, summary="One's own tokens")
def list_tokens(studio: Parts, actor: Reader) -> TokenList:
    """Names, scopes and use of one's tokens."""
    return TokenList(tokens=[_view(row) for row in studio.accounts.tokens(actor.user_id)])


@router.post("/tokens", status_code=201, response_model=NewToken, summary="Make a token")
def make_token(studio: Parts, actor: Reader, asked: TokenAsk) -> NewToken:
    """Make a token with at most one's own scopes; its text is shown once and kept nowhere."""
    _may_manage(actor)
    if excess := [scope for scope in asked.scopes if scope not in actor.scopes]:
        raise Forbidden(f"you do not have the scope {', '.join(excess)} yourself")
    expires = time.time() + asked.days * 86400 if asked.days is not None else None
    made = studio.accounts.issue(actor, "token", asked.name, asked.scopes, expires)
    return NewToken(**_view(made.row).model_dump(), token=made.text)


@router.delete("/tokens/{token_id}", response_model=Done, responses=problems(404), summary="Revoke a token")
def remove_token(studio: Parts, actor: Reader, token_id: TokenId) -> Done:
    """From now on it is not accepted any more."""
    _may_manage(actor)
    studio.accounts.remove_token(actor, token_id)
    return Done()
