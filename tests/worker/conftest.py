"""A studio without pages for the worker's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from flash_grpo_studio.app.jobs import attempts
from tests.studio import Parts, open_parts


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries of workers within this process come soon."""
    monkeypatch.setattr(attempts, "FIRST_BACKOFF_SECONDS", 0.2)


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """On SQLite."""
    return open_parts(f"sqlite:///{tmp_path / 'studio.db'}", tmp_path / "workspace")


@pytest.fixture
def parts_of_both(tmp_path: Path, database_url: str) -> Parts:
    """On SQLite and on PostgreSQL."""
    return open_parts(database_url, tmp_path / "workspace")
