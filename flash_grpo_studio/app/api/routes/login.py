"""Logging in and out, and who one is."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from flash_grpo_studio.app import hub_tokens
from flash_grpo_studio.app.accounts import SCOPES, SESSION_SECONDS, allowed_scopes
from flash_grpo_studio.app.api.base import Done, Strict, subject
from flash_grpo_studio.app.api.errors import NotLoggedIn, Refused, problems
from flash_grpo_studio.app.api.who import COOKIE, Parts, Reader, Throttle
from flash_grpo_studio.app.jobs.access import Forbidden
from flash_grpo_studio.app.store.tables import Role, User

router: APIRouter = subject("login")
throttle = Throttle()
SETTINGS_LENGTH = 8192


class Credentials(Strict):
    """Name and password."""

    name: str = Field(min_length=1, max_length=64)
    password: str = Field(min_length=1, max_length=1000, json_schema_extra={"format": "password"})


class Me(BaseModel):
    """Who one is."""

    id: str
    name: str
    role: Role
    scopes: list[str]
    login_needed: bool = Field(description="False on a studio without logins, where everybody is its administrator.")
    hub_token: bool = Field(description="Whether a token for a hub is kept; it is shown to nobody.")
    settings: dict[str, Any]


class MeEdit(Strict):
    """What to change about oneself; fields that are left out stay."""

    settings: dict[str, Any] | None = Field(None, description="Language, theme and the like; replaces the former ones.")
    password: str | None = Field(None, min_length=8, max_length=1000, json_schema_extra={"format": "password"})
    old_password: str | None = Field(None, max_length=1000, json_schema_extra={"format": "password"})


@router.post("/login", response_model=Me, responses=problems(429), summary="Log in")
def log_in(studio: Parts, request: Request, response: Response, given: Credentials) -> Me:
    """Get a session cookie. Who does not exist and whose password is wrong are told the same."""
    address = request.client.host if request.client else ""
    throttle.check(given.name, address)
    user = studio.accounts.check_password(given.name, given.password)
    if user is None:
        throttle.failed(given.name, address)
        raise NotLoggedIn("the name or the password is wrong")
    throttle.succeeded(given.name, address)
    expires = time.time() + SESSION_SECONDS
    scopes = allowed_scopes(user.role)
    session = studio.accounts.issue(user, "session", request.headers.get("user-agent", "")[:100], scopes, expires)
    secure = request.url.scheme == "https" or request.headers.get("x-forwarded-proto") == "https"
    response.set_cookie(
        COOKIE, session.text, max_age=int(SESSION_SECONDS), httponly=True, samesite="lax", secure=secure, path="/"
    )
    response.headers["Cache-Control"] = "no-store"
    return _me(studio, user, list(scopes), True)


@router.post("/logout", response_model=Done, summary="Log out")
def log_out(studio: Parts, request: Request, response: Response) -> Done:
    """End the session of the cookie; without one, nothing happens."""
    if session := request.cookies.get(COOKIE):
        studio.accounts.end_session(session)
    response.delete_cookie(COOKIE, path="/")
    return Done()


def _me(studio: Parts, user: User, scopes: list[str], login_needed: bool) -> Me:
    return Me(
        id=user.id,
        name=user.name,
        role=user.role,
        scopes=scopes,
        login_needed=login_needed,
        hub_token=hub_tokens.has(studio.workspace, user.id),
        settings=user.settings or {},
    )


@router.get("/me", response_model=Me, summary="Who one is")
def get_me(studio: Parts, actor: Reader) -> Me:
    """Name, role and settings of whoever asks."""
    with studio.store.reading() as session:
        user = session.get_one(User, actor.user_id)
    scopes = [scope for scope in SCOPES if scope in actor.scopes]
    return _me(studio, user, scopes, studio.accounts.login_needed())


@router.patch("/me", response_model=Me, responses=problems(429), summary="Change oneself")
def edit_me(studio: Parts, actor: Reader, request: Request, edit: MeEdit) -> Me:
    """Settings; or the password, which ends all sessions and takes the old one."""
    if "write" not in actor.scopes and actor.role != "viewer":
        raise Forbidden("this token may only read; use one with the scope write")
    if edit.password is not None:
        _check_old(studio, actor.name, edit.old_password, request.client.host if request.client else "")
        studio.accounts.change(actor.user_id, password=edit.password, by=actor.user_id)
    if edit.settings is not None:
        if len(str(edit.settings)) > SETTINGS_LENGTH:
            raise Refused(413, "too_large", f"settings may hold {SETTINGS_LENGTH} characters")
        with studio.store.writing() as session:
            session.get_one(User, actor.user_id).settings = edit.settings
    return get_me(studio, actor)


def _check_old(studio: Parts, name: str, password: str | None, address: str) -> None:
    throttle.check(name, address)
    if password is None or studio.accounts.check_password(name, password) is None:
        throttle.failed(name, address)
        raise Forbidden("the old password is missing or wrong")
