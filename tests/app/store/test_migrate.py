"""Databases are made and migrated at start."""

from __future__ import annotations

import threading

import pytest
from alembic import command
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


def test_previews_made_before_get_the_strength_they_were_asked_for(database_url: str) -> None:
    store = Store(database_url)
    with store.writing() as session:
        command.upgrade(configuration(session.connection()), "0001")
        numbers = "devices, machines, priority, position, device_seconds, max_retries, retries, fence, intake_offset"
        texts = "id, owner_id, kind, name, state, folder, message, progress, result, spec"
        session.execute(
            text("INSERT INTO users (id, name, role, settings, created) VALUES ('u', 'ann', 'admin', '{}', 0)")
        )
        for id_, kind, spec in (("a", "alignment", "{}"), ("p", "preview", '{"task": {"strength": 0.5}}')):
            values = f"'{id_}', 'u', '{kind}', 'n', 'queued', 'f', '', '{{}}', '{{}}', :spec, {', '.join('0' * 9)}"
            flags = "FALSE, FALSE, 0, 0, 0"
            columns = f'{texts}, {numbers}, shared, announced, "update", created, changed'
            session.execute(text(f"INSERT INTO jobs ({columns}) VALUES ({values}, {flags})"), {"spec": spec})
            for side in ("before", "after"):
                made = f"'{id_}{side}', 'u', '{id_}', '{side}', '{side}', 0, '{{}}', 0"
                columns = "id, owner_id, job_id, side, path, bytes, scores, created"
                session.execute(text(f"INSERT INTO videos ({columns}) VALUES ({made})"))
    upgrade(store)
    assert differences(store) == []
    with store.reading() as session:
        rows = session.execute(text("SELECT id, strength, noise, revision FROM videos ORDER BY id")).all()
    expected = {"aafter": None, "abefore": None, "pafter": 0.5, "pbefore": None}
    assert [tuple(row) for row in rows] == [(id_, strength, None, 0) for id_, strength in expected.items()]
    with store.writing() as session:
        command.downgrade(configuration(session.connection()), "0001")
    upgrade(store)
    assert differences(store) == []


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
