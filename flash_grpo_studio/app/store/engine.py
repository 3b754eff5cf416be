"""The connection to the database: SQLite in WAL mode or PostgreSQL behind one door."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry

from flash_grpo_studio.app.settings import without_password

BUSY_SECONDS = 15
Result = TypeVar("Result")


class StoreUnavailable(Exception):
    """The database cannot be reached or stays locked; nothing was written. The message is a sentence."""


class Store:
    """Sessions of one database. `reading` and `writing` are transactions that end with their block."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.sqlite = make_url(url).get_backend_name() == "sqlite"
        arguments: dict[str, Any] = {"check_same_thread": False, "timeout": BUSY_SECONDS}
        if not self.sqlite:
            arguments = {"connect_timeout": 5}
        self.engine: Engine = create_engine(
            url, connect_args=arguments, pool_size=20, max_overflow=40, pool_pre_ping=not self.sqlite, pool_timeout=15
        )
        if self.sqlite:
            event.listen(self.engine, "connect", _set_up_sqlite)
            event.listen(self.engine, "begin", _begin_sqlite)
        self._reading = sessionmaker(self.engine, expire_on_commit=False)
        self._writing = sessionmaker(self.engine.execution_options(writing=True), expire_on_commit=False)

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A consistent view; StoreUnavailable if the database does not answer."""
        with self._transaction(self._reading) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """All or nothing; on SQLite the write lock is taken at the start, so that no later statement finds it taken."""
        with self._transaction(self._writing) as session:
            session.connection()
            yield session

    @contextmanager
    def _transaction(self, maker: sessionmaker[Session]) -> Iterator[Session]:
        try:
            with maker.begin() as session:
                yield session
        except DBAPIError as error:
            if isinstance(error, OperationalError) or error.connection_invalidated:
                said = str(error.orig).strip().splitlines()[0] if error.orig else type(error).__name__
                raise StoreUnavailable(f"the database {without_password(self.url)} does not answer: {said}") from error
            raise

    def patiently(self, work: Callable[[], Result], seconds: float = 60.0, pause: float = 0.5) -> Result:
        """Run `work`, again while the database is away, for at most `seconds`; then StoreUnavailable."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                return work()
            except StoreUnavailable:
                if time.monotonic() + pause > deadline:
                    raise
                time.sleep(pause)
                pause = min(pause * 2, 5.0)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


def _set_up_sqlite(connection: Any, record: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # transactions begin where SQLAlchemy says, not where the driver guesses
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={BUSY_SECONDS * 1000}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Any) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE" if connection.get_execution_options().get("writing") else "BEGIN")
