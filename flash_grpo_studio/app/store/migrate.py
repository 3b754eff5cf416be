"""Bringing a database to the tables of this version, at every start; data stay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from flash_grpo.errors import InputError
from flash_grpo_studio.app.store.engine import Store

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0003"
"""The newest revision; a test holds it against the migration scripts."""
_LOCK = 7_301_942


def upgrade(store: Store) -> None:
    """Create or migrate the tables. Of several processes that start together one does it, the others wait.

    Raises InputError if a newer version has made this database.
    """
    with store.writing() as session:
        connection = session.connection()
        if not store.sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        present = _revision(connection)
        if present == HEAD:
            return
        from alembic import command
        from alembic.script import ScriptDirectory

        config = configuration(connection)
        known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
        if present is not None and present not in known:
            raise InputError(
                f"the database is of a newer version (revision {present}, this one knows up to {HEAD}); "
                "update flash-grpo-studio, or use another database"
            )
        command.upgrade(config, "head")


def configuration(connection: Connection) -> Config:
    """Alembic's configuration for one open connection; its scripts lie in this package."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    return config


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    return str(found) if found is not None else None
