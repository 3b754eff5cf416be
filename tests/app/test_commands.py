"""`flash-grpo user`: names and roles as arguments, passwords never."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flash_grpo.errors import InputError
from flash_grpo_studio.app.accounts import Accounts
from flash_grpo_studio.app.commands import user
from flash_grpo_studio.app.store.engine import Store

PASSWORD = "correct horse"


class Commands:
    """Runs `flash-grpo user ...` for one studio."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'studio.db'}"
        self.options = ["--workspace", str(folder / "workspace"), "--database-url", self.url]

    def __call__(self, *arguments: str, typed: str = "") -> str:
        done = CliRunner().invoke(user, [*arguments, *self.options], input=typed)
        if done.exception is not None:
            raise done.exception
        return done.output

    @property
    def accounts(self) -> Accounts:
        return Accounts(Store(self.url))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Commands]:
    yield Commands(tmp_path)


def test_a_user_from_first_to_last(run: Any) -> None:
    assert "ann can log in as admin" in run("add", "ann", typed=f"{PASSWORD}\n")
    run("add", "bob", "--role", "viewer", typed=f"{PASSWORD}\n")
    assert run.accounts.check_password("ann", PASSWORD)
    listed = run("list").splitlines()
    assert [line.split("\t")[:3] for line in listed] == [["ann", "admin", "password"], ["bob", "viewer", "password"]]
    run("password", "ann", typed="another horse\n")
    assert run.accounts.check_password("ann", PASSWORD) is None
    assert run.accounts.check_password("ann", "another horse")
    token = run("token", "ann", "--scope", "read", "--scope", "admin").strip()
    actor = run.accounts.actor(token, "token")
    assert (actor.name, actor.scopes) == ("ann", {"read", "admin"})
    assert run.accounts.tokens(actor.user_id)[0].expires is not None
    run("revoke", "ann")
    assert run.accounts.actor(token, "token") is None
    run("remove", "ann")
    run("remove", "bob")
    assert run("list") == ""


@pytest.mark.parametrize(
    ("arguments", "typed", "said"),
    [
        (["add", "ann"], "short\n", "at least 8"),
        (["add", "ann"], "", "at least 8"),
        (["add", "a b"], f"{PASSWORD}\n", "letters, digits"),
        (["add", "ann", "--role", "creater"], f"{PASSWORD}\n", "did you mean 'creator'"),
        (["remove", "nobody"], "", "unknown user 'nobody'"),
        (["password", "nobody"], f"{PASSWORD}\n", "unknown user 'nobody'"),
        (["token", "nobody"], "", "unknown user 'nobody'"),
    ],
)
def test_what_cannot_be_is_one_sentence(run: Any, arguments: list[str], typed: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        run(*arguments, typed=typed)


def test_names_are_there_once_and_scopes_fit_the_role(run: Any) -> None:
    run("add", "ann", "--role", "viewer", typed=f"{PASSWORD}\n")
    with pytest.raises(InputError, match="already"):
        run("add", "ann", typed=f"{PASSWORD}\n")
    with pytest.raises(InputError, match="did you mean"):
        run("token", "ann", "--scope", "reed")
    with pytest.raises(InputError, match="days"):
        run("token", "ann", "--days", "-1")
    with pytest.raises(InputError, match="cannot have the scope admin"):
        run("token", "ann", "--scope", "admin")


def test_no_command_takes_a_password_as_an_argument() -> None:
    import typer.main

    group: Any = typer.main.get_command(user)
    for command in group.commands.values():
        names = {option for parameter in command.params for option in parameter.opts}
        assert not {name for name in names if "pass" in name}
