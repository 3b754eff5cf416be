"""The web application on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.web import Web, open_web
from tests.databases import PostgresServer


@pytest.fixture
def web(database_url: str, tmp_path: Path) -> Iterator[Web]:
    """A loopback studio without logins on each database."""
    with open_web(database_url, tmp_path) as opened:
        yield opened


@pytest.fixture
def small_web(tmp_path: Path) -> Iterator[Web]:
    """The same on SQLite alone, for what has nothing to do with the database."""
    with open_web(f"sqlite:///{tmp_path / 'studio.db'}", tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def lasting_web(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    """One for all tests of a module that leave it as they find it, on each database."""
    folder = tmp_path_factory.mktemp("lasting")
    url = f"sqlite:///{folder / 'studio.db'}"
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.create()
    with open_web(url, folder) as opened:
        yield opened
