"""Alembic's entry: runs on the connection it is handed, in the caller's transaction."""

from __future__ import annotations

from alembic import context

from flash_grpo_studio.app.store.tables import Table

connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=Table.metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    transactional_ddl=True,
    compare_type=True,
)
context.run_migrations()
