"""Who may see and change what. Foreign things look exactly like missing ones."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, or_, true
from sqlalchemy.orm import Session

from flash_grpo_studio.app.jobs.change import NotFound
from flash_grpo_studio.app.store.tables import Job, Role, Table

Row = TypeVar("Row", bound=Table)
ID = re.compile(r"[0-9a-f]{1,32}")
"""What is no identifier is asked of no database: it might not even be able to hold it."""


class Forbidden(Exception):
    """The user's role or the token's scopes do not allow it; the message says what would."""


@dataclass(frozen=True)
class Actor:
    """Who asks: a user with a role, and what the credential used allows (read, write, admin)."""

    user_id: str
    name: str
    role: Role
    scopes: frozenset[str] = frozenset({"read", "write", "admin"})

    @property
    def admin(self) -> bool:
        """Whether everything is open."""
        return self.role == "admin" and "admin" in self.scopes

    def require_write(self) -> None:
        """Raise Forbidden unless this actor may make and change things."""
        if "write" not in self.scopes:
            raise Forbidden("this token may only read; use one with the scope write")
        if self.role == "viewer":
            raise Forbidden("a viewer may only look; ask an administrator for the role creator")

    def require_admin(self) -> None:
        """Raise Forbidden unless this actor is an administrator."""
        if not self.admin:
            raise Forbidden("only an administrator may do this")


def visible(actor: Actor, table: Any) -> ColumnElement[bool]:
    """The rows an actor may look at: an administrator all, others their own and, where rows can be, shared ones."""
    if actor.admin:
        return true()
    own: ColumnElement[bool] = table.owner_id == actor.user_id
    return or_(own, table.shared.is_(True)) if hasattr(table, "shared") else own


def fetch(session: Session, actor: Actor, table: type[Row], id_: str, change: bool = False) -> Row:
    """The row of an id that the actor may look at, or with `change` alter; NotFound otherwise.

    Rows of a job (videos, files) are seen by whoever sees the job.
    """
    row: Any = session.get(table, id_) if ID.fullmatch(id_) else None
    if row is None:
        raise NotFound(f"no {_called(table)} {id_!r}")
    if change:
        actor.require_write()
    mine = actor.admin or row.owner_id == actor.user_id
    shared = bool(getattr(row, "shared", False))
    if not shared and getattr(row, "job_id", None):
        job = session.get(Job, row.job_id)
        shared = bool(job and job.shared)
    if mine or (shared and not change):
        found: Row = row
        return found
    if shared:
        raise Forbidden(f"this {_called(table)} is shared for looking; only its owner may change it")
    raise NotFound(f"no {_called(table)} {id_!r}")


def _called(table: type[Table]) -> str:
    names = {"jobs": "job", "videos": "video", "files": "file", "prompt_sets": "prompt set"}
    name = str(table.__tablename__)
    return names.get(name, name.removesuffix("s").replace("_", " "))
