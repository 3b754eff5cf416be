"""Where the parts are: options before variables before defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from flash_grpo.errors import InputError
from flash_grpo_studio.app.settings import read_settings, without_password


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORKSPACE", "DATABASE_URL", "BROKER_URL", "HOST", "PORT"):
        monkeypatch.delenv(f"FLASH_GRPO_{name}", raising=False)


def test_options_come_before_variables_before_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read_settings(tmp_path)
    assert (settings.database_url, settings.broker_url) == (f"sqlite:///{tmp_path}/studio.db", "")
    assert (settings.host, settings.port, settings.loopback) == ("127.0.0.1", 7860, True)
    monkeypatch.setenv("FLASH_GRPO_PORT", "9000")
    monkeypatch.setenv("FLASH_GRPO_HOST", "0.0.0.0")
    monkeypatch.setenv("FLASH_GRPO_DATABASE_URL", "postgres://ann@db/studio")
    settings = read_settings(tmp_path, port=9001)
    assert (settings.port, settings.loopback) == (9001, False)
    assert settings.database_url == "postgresql+psycopg://ann@db/studio"


def test_another_process_finds_the_same_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read_settings(tmp_path, "postgresql://ann:secret@db/studio", "redis://:word@host:1/0", "::1", 1234)
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert read_settings() == settings


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"database_url": "mysql://ann:secret@db/x"}, "expected a database URL"),
        ({"broker_url": "amqp://ann:secret@host"}, "expected a broker URL"),
        ({"port": 70000}, "expected a port"),
    ],
)
def test_what_is_not_supported_is_refused_without_its_password(
    tmp_path: Path, values: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read_settings(tmp_path, **values)  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


def test_passwords_are_hidden() -> None:
    assert without_password("redis://:word@host:1/0") == "redis://:***@host:1/0"
    assert without_password("postgresql://ann@host/db") == "postgresql://ann@host/db"
    assert without_password("sqlite:////tmp/a.db") == "sqlite:////tmp/a.db"
