"""Databases are made and migrated at start."""

from __future__ import annotations

import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from flash_grpo.errors import InputError
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.migrate import HEAD, configuration, upgrade
from flash_grpo_studio.app.store.tables import Table


def differences(store: Store) -> list[object]:
    with store.reading() as session:
        context = MigrationContext.configure(session.connection(), opts={"compare_type": True})
        return list(compare_metadata(context, Table.metadata))


def test_migrations_make_exactly_the_tables_of_the_code(database_url: str) -> None:
    store = Store(database_url)
    upgrade(store)
    assert differences(store) == []
    with store.writing() as session:
        session.execute(text("ALTER TABLE ballots ADD COLUMN unknown INTEGER"))
    assert differences(store)  # the comparison sees a column that the code does not have


def test_the_newest_script_is_the_head(database_url: str) -> None:
    store = Store(database_url)
    with store.reading() as session:
        scripts = ScriptDirectory.from_config(configuration(session.connection()))
    assert scripts.get_current_head() == HEAD


def test_several_processes_may_start_together(database_url: str) -> None:
    failures: list[BaseException] = []

    def start() -> None:
        try:
            upgrade(Store(database_url))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert differences(Store(database_url)) == []


def test_a_database_of_a_newer_version_is_refused(database_url: str) -> None:
    store = Store(database_url)
    upgrade(store)
    with store.writing() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(InputError, match="newer version"):
        upgrade(store)
