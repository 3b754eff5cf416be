"""Forms that people have begun and not sent: one for each address of a page, told apart by versions."""

from __future__ import annotations

import time
from typing import Any, cast

from sqlalchemy import CursorResult, delete, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.tables import Draft

MOST = 10
"""Of one person; with one more the oldest goes."""


def read_draft(session: Session, user_id: str, address: str) -> Draft | None:
    """The draft of an address, None where there is none."""
    return session.get(Draft, (user_id, address))


def put_draft(store: Store, user_id: str, address: str, version: int, form: dict[str, Any]) -> int | None:
    """Keep a form in the place of the one of `version` (0: of none); its new version.

    None if the draft there is another one by now: then nothing was written.
    """
    try:
        with store.writing() as session:
            if version == 0:
                session.add(Draft(user_id=user_id, address=address, version=1, form=form))
                session.flush()
                _forget_oldest(session, user_id)
                return 1
            mine = (Draft.user_id == user_id, Draft.address == address, Draft.version == version)
            values = {"version": version + 1, "form": form, "changed": time.time()}
            result = cast("CursorResult[Any]", session.execute(update(Draft).where(*mine).values(**values)))
            return version + 1 if result.rowcount else None
    except IntegrityError:  # there is one, or the user has just been deleted
        return None


def drop_draft(session: Session, user_id: str, address: str) -> None:
    """Forget the draft of an address."""
    session.execute(delete(Draft).where(Draft.user_id == user_id, Draft.address == address))


def _forget_oldest(session: Session, user_id: str) -> None:
    newest = select(Draft.address).where(Draft.user_id == user_id).order_by(Draft.changed.desc(), Draft.address)
    old = session.scalars(newest.offset(MOST)).all()
    session.execute(delete(Draft).where(Draft.user_id == user_id, Draft.address.in_(old)))
