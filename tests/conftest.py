"""What all tests share: quiet threads, and figures drawn without a screen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.databases import broker_url, database_url, postgres_server

__all__ = ["broker_url", "database_url", "postgres_server", "tiny_folder"]

# Set before torch or matplotlib is imported; idle OpenMP threads would take the time of the working ones.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("MPLBACKEND", "Agg")


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a randomly initialised tiny Wan pipeline, one for the session."""
    from tests.tiny import save_pipeline  # torch waits until a test needs it

    folder = tmp_path_factory.mktemp("tiny-wan") / "pipeline"
    save_pipeline(folder)
    return folder
