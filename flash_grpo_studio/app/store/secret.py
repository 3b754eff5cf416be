"""Secrets that all web processes of a studio share, made once and kept in the database."""

from __future__ import annotations

import secrets

from sqlalchemy import select

from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.metrics import insert_of
from flash_grpo_studio.app.store.tables import Fact


def shared_secret(store: Store, name: str) -> bytes:
    """The secret of that name; whoever asks first makes it."""
    query = select(Fact.value).where(Fact.name == name)
    with store.reading() as session:
        known = session.scalar(query)
    if known is None:
        with store.writing() as session:
            fresh = {"name": name, "value": secrets.token_hex(32)}
            session.execute(insert_of(session)(Fact).on_conflict_do_nothing(), fresh)
            known = session.scalars(query).one()
    return bytes.fromhex(known)
