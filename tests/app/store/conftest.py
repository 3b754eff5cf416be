"""Parts of a studio on each database."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.studio import Parts, open_parts


@pytest.fixture
def parts(database_url: str, tmp_path: Path) -> Parts:
    """A fresh studio's parts."""
    return open_parts(database_url, tmp_path / "workspace")
