"""Transactions, and what happens while the database is busy or away."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import text

from flash_grpo_studio.app.store.engine import Store, StoreUnavailable
from flash_grpo_studio.app.store.migrate import upgrade
from flash_grpo_studio.app.store.tables import Event, User
from tests.databases import PostgresServer


def test_a_block_is_written_whole_or_not_at_all(database_url: str) -> None:
    store = Store(database_url)
    upgrade(store)
    with pytest.raises(ZeroDivisionError), store.writing() as session:
        session.add(User(name="ann", role="admin"))
        session.flush()
        _ = 1 / 0
    with store.reading() as session:
        assert session.query(User).count() == 0


def test_writers_wait_for_each_other_and_none_is_lost(database_url: str) -> None:
    store = Store(database_url)
    upgrade(store)
    with store.writing() as session:
        session.add(User(id="u", name="u", role="admin", settings={"count": 0}))

    def add() -> None:
        for _ in range(20):
            with store.writing() as session:
                user = session.get_one(User, "u", with_for_update=True)
                user.settings = {"count": user.settings["count"] + 1}

    threads = [threading.Thread(target=add) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    with store.reading() as session:
        assert session.get_one(User, "u").settings == {"count": 120}


def test_readers_are_not_kept_waiting_by_a_writer(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'studio.db'}")
    upgrade(store)
    with store.writing() as session:
        session.add(Event(type="x"))
        session.flush()
        with store.reading() as other:
            assert other.query(Event).count() == 0


def test_a_locked_database_is_told_in_words_and_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flash_grpo_studio.app.store.engine.BUSY_SECONDS", 0.1)
    store = Store(f"sqlite:///{tmp_path / 'studio.db'}")
    upgrade(store)
    held, free = threading.Event(), threading.Event()

    def hold() -> None:
        with store.writing():
            held.set()
            free.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(30)

    def write() -> str:
        with store.writing() as session:
            session.add(Event(type="x"))
        return "written"

    with pytest.raises(StoreUnavailable, match="locked"):
        write()
    with pytest.raises(StoreUnavailable):
        store.patiently(write, seconds=0.3)
    threading.Timer(0.5, free.set).start()
    assert store.patiently(write, seconds=30) == "written"
    thread.join()


def test_a_postgres_that_is_restarted_is_found_again(postgres_server: PostgresServer) -> None:
    store = Store(postgres_server.create())
    upgrade(store)
    postgres_server.stop()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="does not answer"), store.reading() as session:
        session.execute(text("SELECT 1"))
    assert time.monotonic() - began < 10
    postgres_server.start()

    def write() -> str:
        with store.writing() as session:
            session.add(Event(type="x"))
        return "written"

    assert store.patiently(write, seconds=30) == "written"


def test_no_password_in_messages() -> None:
    store = Store("postgresql+psycopg://ann:secret@127.0.0.1:1/none")
    with pytest.raises(StoreUnavailable) as caught, store.reading() as session:
        session.execute(text("SELECT 1"))
    assert "secret" not in str(caught.value)
    assert "ann:***@127.0.0.1" in str(caught.value)
