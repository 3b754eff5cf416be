"""Where the studio's parts are: workspace, database, broker, address; by options, variables or defaults."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from flash_grpo.errors import InputError

LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class Settings:
    """What every part of the studio needs to find the others.

    database_url: SQLAlchemy URL (sqlite or postgresql). broker_url: Redis URL. host, port: where pages are served.
    """

    workspace: Path
    database_url: str
    broker_url: str
    host: str = "127.0.0.1"
    port: int = 7860

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the pages."""
        return self.host in LOOPBACK

    def environment(self) -> dict[str, str]:
        """The variables that make another process of the studio find the same parts."""
        return {
            "FLASH_GRPO_WORKSPACE": str(self.workspace),
            "FLASH_GRPO_DATABASE_URL": self.database_url,
            "FLASH_GRPO_BROKER_URL": self.broker_url,
            "FLASH_GRPO_HOST": self.host,
            "FLASH_GRPO_PORT": str(self.port),
        }


def read_settings(
    workspace: Path | None = None,
    database_url: str | None = None,
    broker_url: str | None = None,
    host: str | None = None,
    port: int | None = None,
) -> Settings:
    """Options first, then FLASH_GRPO_* variables, then defaults; no broker URL means the embedded one.

    Raises InputError for a database or broker of a kind that is not supported, or a port that is no number.
    """
    given = os.environ.get
    folder = Path(workspace or given("FLASH_GRPO_WORKSPACE") or "workspace").expanduser().resolve()
    database = normal_database_url(database_url or given("FLASH_GRPO_DATABASE_URL") or f"sqlite:///{folder}/studio.db")
    broker = broker_url or given("FLASH_GRPO_BROKER_URL") or ""
    if broker and urlsplit(broker).scheme not in ("redis", "rediss", "unix", "socket", "redis+socket"):
        raise InputError(f"expected a broker URL such as redis://host:6379/0, got {without_password(broker)!r}")
    text = str(port if port is not None else given("FLASH_GRPO_PORT") or 7860)
    if not text.isdigit() or not 0 < int(text) < 65536:
        raise InputError(f"expected a port between 1 and 65535, got {text!r}")
    return Settings(folder, database, broker, host or given("FLASH_GRPO_HOST") or "127.0.0.1", int(text))


def normal_database_url(url: str) -> str:
    """The URL with the driver this project uses; InputError for other databases."""
    scheme = url.partition("://")[0]
    if scheme in ("postgres", "postgresql", "postgresql+psycopg"):
        try:
            _ = urlsplit(url).port
        except ValueError as error:
            raise InputError(f"the database URL {without_password(url)!r} has a bad port ({error})") from error
        return "postgresql+psycopg://" + url.partition("://")[2]
    if scheme == "sqlite":
        return url
    raise InputError(
        f"expected a database URL such as postgresql://user@host/name or sqlite:///file, got {without_password(url)!r}"
    )


def without_password(url: str) -> str:
    """The URL as it may be shown."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user = parts.username or ""
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}:***@{host}"))
