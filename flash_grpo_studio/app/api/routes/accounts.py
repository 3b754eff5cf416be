"""Users, and who did what; for administrators."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, Field
from sqlalchemy import or_, select

from flash_grpo.errors import InputError
from flash_grpo_studio.app import hub_tokens
from flash_grpo_studio.app.api.base import Cursor, Done, Limit, Strict, UserId, subject
from flash_grpo_studio.app.api.errors import problems
from flash_grpo_studio.app.api.routes.watching import EventPage, event_view
from flash_grpo_studio.app.api.who import Administrator, Parts
from flash_grpo_studio.app.store.listing import paged
from flash_grpo_studio.app.store.tables import Event, Role, User

router = subject("users")
Password = Annotated[str, Field(min_length=8, max_length=1000, json_schema_extra={"format": "password"})]


class UserView(BaseModel):
    """A user."""

    id: str
    name: str
    role: Role
    can_log_in: bool
    created: float


class UserList(BaseModel):
    """All users by name."""

    users: list[UserView]


class UserAsk(Strict):
    """A user to add."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$", examples=["ann"])
    role: Role = "creator"
    password: Password


class UserEdit(Strict):
    """What to change; fields that are left out stay."""

    role: Role | None = None
    password: Password | None = None
    revoke: bool = Field(
        False, description="Take the password and all tokens, also that for a hub; what the user owns stays."
    )


def _view(user: User) -> UserView:
    return UserView(
        id=user.id,
        name=user.name,
        role=user.role,
        can_log_in=user.password_hash is not None,
        created=user.created,
    )


@router.get("/users", response_model=UserList, summary="Users")
def list_users(studio: Parts, actor: Administrator) -> UserList:
    """All users by name."""
    return UserList(users=[_view(user) for user in studio.accounts.users()])


@router.post("/users", status_code=201, response_model=UserView, summary="Add a user")
def add_user(studio: Parts, actor: Administrator, asked: UserAsk) -> UserView:
    """Add a user who logs in with a password. From the first such user on, who is an admin, everybody must log in."""
    if asked.role != "admin" and not studio.accounts.login_needed():
        raise InputError(
            "the first user who can log in must have the role admin, as from then on everybody must log in; add an "
            "administrator first"
        )
    return _view(studio.accounts.add(asked.name, asked.role, asked.password, actor.user_id))


@router.patch("/users/{user_id}", response_model=UserView, responses=problems(404), summary="Change a user")
def edit_user(studio: Parts, actor: Administrator, user_id: UserId, edit: UserEdit) -> UserView:
    """Another role or password, or no way in any more. The last administrator who can log in stays one."""
    changed = studio.accounts.change(user_id, edit.role, edit.password, edit.revoke, actor.user_id)
    if edit.revoke:
        hub_tokens.forget(studio.workspace, changed.id)
    return _view(changed)


@router.delete("/users/{user_id}", response_model=Done, responses=problems(404), summary="Remove a user")
def remove_user(studio: Parts, actor: Administrator, user_id: UserId) -> Done:
    """Remove a user who owns nothing any more."""
    studio.accounts.remove(user_id, actor.user_id)
    hub_tokens.forget(studio.workspace, user_id)
    return Done()


@router.get("/audit", response_model=EventPage, summary="Who did what")
def list_audit(
    studio: Parts,
    actor: Administrator,
    user: Annotated[str | None, Query(max_length=32, description="Only what this user did, by id.")] = None,
    type: Annotated[list[str] | None, Query(max_length=50, description="Only these types; may be repeated.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> EventPage:
    """What people did, and every change of a job's state, newest first."""
    query = select(Event).where(or_(Event.user_id.is_not(None), Event.job_id.is_(None), Event.type == "state"))
    if user is not None:
        query = query.where(Event.user_id == user)
    if type:
        query = query.where(Event.type.in_(type))
    with studio.store.reading() as session:
        page = paged(session, query, [(Event.id, True)], limit, cursor)
        return EventPage(events=[event_view(row) for row in page.rows], total=page.total, next=page.next)
