"""A studio without pages for the worker's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.studio import Parts, open_parts


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """On SQLite."""
    return open_parts(f"sqlite:///{tmp_path / 'studio.db'}", tmp_path / "workspace")


@pytest.fixture
def parts_of_both(tmp_path: Path, database_url: str) -> Parts:
    """On SQLite and on PostgreSQL."""
    return open_parts(database_url, tmp_path / "workspace")
