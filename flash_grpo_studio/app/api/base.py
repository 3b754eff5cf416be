"""What the routers share: how they are made, the parameters many take, and models used by several subjects."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field

from flash_grpo_studio.app.api.checked import CheckedRoute
from flash_grpo_studio.app.api.errors import problems

MAX_PAGE = 500


def operation_id(route: APIRoute) -> str:
    """The function's name; programs made from the document call it so."""
    return route.name


def subject(tag: str) -> APIRouter:
    """A router of one subject; each route may answer with the common errors."""
    return APIRouter(
        tags=[tag], route_class=CheckedRoute, responses=problems(), generate_unique_id_function=operation_id
    )


Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Most rows of the page.")]
Cursor = Annotated[str | None, Query(max_length=2000, description="`next` of the page before.")]


def _id(what: str) -> Any:
    return Path(description=f"Identifier of the {what}.", examples=["0123456789abcdef"], max_length=200)


JobId = Annotated[str, _id("job")]
VideoId = Annotated[str, _id("video")]
FileId = Annotated[str, _id("file")]
PromptSetId = Annotated[str, _id("prompt set")]
ProfileId = Annotated[str, _id("reward profile")]
WorkerId = Annotated[str, _id("worker")]
UserId = Annotated[str, _id("user")]
BallotId = Annotated[str, _id("ballot")]
TokenId = Annotated[str, _id("token")]


class Strict(BaseModel):
    """A request body: unknown fields are refused, so that a misspelt one is not silently without effect."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Done(BaseModel):
    """It is done, and there is nothing to tell."""

    done: Literal[True] = True


class Person(BaseModel):
    """A user as others see him."""

    id: str
    name: str


class PageOf(BaseModel):
    """What all pages tell beside their rows."""

    total: int = Field(description="Rows on all pages together.")
    next: str | None = Field(None, description="`cursor` of the next page; null on the last.")
