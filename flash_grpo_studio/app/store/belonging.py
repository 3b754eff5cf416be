"""Database and workspace belong together: the database keeps the token of the one folder that its rows speak of."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.exc import IntegrityError

from flash_grpo.errors import InputError
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.tables import Fact

WORKSPACE = "workspace"


def belong_together(store: Store, token: str, folder: Path) -> None:
    """Bind a new database to this workspace; InputError if it is bound to another one.

    Otherwise a worker would write where no page ever looks.
    """
    try:
        with store.writing() as session:
            known = session.get(Fact, WORKSPACE)
            if known is None:
                session.add(Fact(name=WORKSPACE, value=token))
                return
            present = known.value
    except IntegrityError:  # another process bound it a moment ago
        belong_together(store, token, folder)
        return
    if present != token:
        raise InputError(
            f"the workspace {folder} is not the one this database belongs to; all parts of a studio must share one "
            "folder: give it with --workspace (a folder that was moved keeps its file workspace-token)"
        )
