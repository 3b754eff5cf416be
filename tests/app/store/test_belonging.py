"""A database and a workspace belong together, whoever comes first."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from flash_grpo.errors import InputError
from flash_grpo_studio.app.api import create_app
from flash_grpo_studio.app.settings import read_settings
from flash_grpo_studio.app.store.belonging import belong_together
from flash_grpo_studio.app.store.engine import Store
from flash_grpo_studio.app.store.migrate import upgrade


def test_the_first_folder_stays(database_url: str) -> None:
    store = Store(database_url)
    upgrade(store)
    for _ in range(2):
        belong_together(store, "token", Path("folder"))
    with pytest.raises(InputError, match="is not the one this database belongs to"):
        belong_together(store, "other", Path("elsewhere"))


def test_of_two_that_come_at_once_one_is_refused(database_url: str) -> None:
    store = Store(database_url)
    upgrade(store)
    gate, refused = threading.Barrier(4), []

    def bind(token: str) -> None:
        gate.wait()
        try:
            belong_together(store, token, Path(token))
        except InputError:
            refused.append(token)

    threads = [threading.Thread(target=bind, args=(token,)) for token in ("a", "a", "b", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(refused) in (["a", "a"], ["b", "b"])


def test_a_web_app_with_another_folder_is_refused(database_url: str, tmp_path: Path) -> None:
    settings = read_settings(tmp_path / "one", database_url)
    create_app(settings)
    create_app(settings)
    with pytest.raises(InputError, match="all parts of a studio must share one folder"):
        create_app(replace(settings, workspace=tmp_path / "two"))
