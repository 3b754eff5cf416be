"""`flash-grpo user`: who may log in. Passwords are asked for or read from standard input, never given as arguments."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flash_grpo.errors import InputError

if TYPE_CHECKING:
    from flash_grpo_studio.app.accounts import Accounts

user = typer.Typer(help="Add, list and remove the studio's users.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name to log in with.")]
Workspace = Annotated[Path | None, typer.Option("--workspace", metavar="DIR", help="Workspace of the studio.")]
Database = Annotated[str | None, typer.Option("--database-url", metavar="URL", help="Database of the studio.")]


def _accounts(workspace: Path | None, database_url: str | None) -> Accounts:
    from flash_grpo_studio.app.accounts import Accounts
    from flash_grpo_studio.app.settings import read_settings
    from flash_grpo_studio.app.store.engine import Store, StoreUnavailable
    from flash_grpo_studio.app.store.migrate import upgrade
    from flash_grpo_studio.app.workspace import Workspace

    settings = read_settings(workspace, database_url)
    Workspace(settings.workspace).prepare()
    store = Store(settings.database_url)
    try:
        upgrade(store)
    except StoreUnavailable as error:
        raise InputError(f"{error}; start it, or name another with --database-url") from error
    return Accounts(store)


def _password(name: str) -> str:
    """Asked for twice at a terminal; otherwise the first line of standard input."""
    if sys.stdin.isatty():
        given: str = typer.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
        return given
    return sys.stdin.readline().rstrip("\r\n")


@user.command()
def add(
    name: Name,
    role: Annotated[
        str, typer.Option("--role", metavar="viewer|creator|admin", help="What the user may do.")
    ] = "admin",
    workspace: Workspace = None,
    database_url: Database = None,
) -> None:
    """Add a user; the password is asked for, or read from standard input."""
    accounts = _accounts(workspace, database_url)
    accounts.add(name, role, _password(name))
    print(f"{name} can log in as {role}")


@user.command("list")
def list_(workspace: Workspace = None, database_url: Database = None) -> None:
    """List the users."""
    for entry in _accounts(workspace, database_url).users():
        how = "password" if entry.password_hash else "no password"
        since = time.strftime("%Y-%m-%d", time.localtime(entry.created))
        print(f"{entry.name}\t{entry.role}\t{how}\tsince {since}")


@user.command()
def remove(name: Name, workspace: Workspace = None, database_url: Database = None) -> None:
    """Remove a user who owns nothing any more."""
    accounts = _accounts(workspace, database_url)
    accounts.remove(accounts.named(name).id, keep_admin=False)
    print(f"{name} was removed")


@user.command()
def revoke(name: Name, workspace: Workspace = None, database_url: Database = None) -> None:
    """Take a user's password and tokens; what the user owns stays."""
    accounts = _accounts(workspace, database_url)
    accounts.change(accounts.named(name).id, revoke=True, keep_admin=False)
    print(f"{name} can no longer log in")


@user.command()
def password(name: Name, workspace: Workspace = None, database_url: Database = None) -> None:
    """Give a user a new password, asked for or read from standard input; all sessions end."""
    accounts = _accounts(workspace, database_url)
    accounts.change(accounts.named(name).id, password=_password(name))
    print(f"{name} has a new password")


@user.command()
def token(
    name: Name,
    label: Annotated[str, typer.Option("--label", metavar="TEXT", help="What the token is for.")] = "command line",
    scope: Annotated[
        list[str] | None, typer.Option("--scope", metavar="read|write|admin", help="May be repeated [default: read].")
    ] = None,
    days: Annotated[float, typer.Option("--days", metavar="N", help="Days until it expires; 0 is never.")] = 90.0,
    workspace: Workspace = None,
    database_url: Database = None,
) -> None:
    """Make a token for programs, to be sent as `Authorization: Bearer TOKEN`; it is printed once and kept nowhere."""
    if days < 0:
        raise InputError(f"expected a number of days, got {days:g}")
    from flash_grpo_studio.app.jobs.access import Forbidden

    accounts = _accounts(workspace, database_url)
    expires = time.time() + days * 86400 if days else None
    try:
        print(accounts.issue(accounts.named(name), "token", label, scope or ["read"], expires).text)
    except Forbidden as error:
        raise InputError(f"{error}; ask for less, or give the user another role") from error
