"""Commands that other packages add to `flash-grpo`, found by entry point and imported only when called."""

from __future__ import annotations

from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from flash_grpo.errors import InputError

GROUP = "flash_grpo.commands"


class CommandGroup(TyperGroup):
    """The top-level commands, with those of other packages; a built-in name wins over a plugin's.

    An entry point of the group `flash_grpo.commands` names a typer.Typer or a function.
    """

    @cached_property
    def plugins(self) -> dict[str, EntryPoint]:
        """Entry points by command name."""
        return {point.name: point for point in entry_points(group=GROUP) if point.name not in self.commands}

    def list_commands(self, ctx: Any) -> list[str]:
        """Built-in commands in order, then the others by name."""
        return [*super().list_commands(ctx), *sorted(self.plugins)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command for listing and completion; a plugin stands in by name, so that help imports none of them."""
        if cmd_name in self.plugins:
            return TyperCommand(cmd_name, help=f"From {_package(self.plugins[cmd_name])}.")
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command to run; here a plugin is imported."""
        if args and args[0] in self.plugins:
            return args[0], load_command(self.plugins[args[0]]), args[1:]
        return super().resolve_command(ctx, args)


def load_command(point: EntryPoint) -> Any:
    """Import a plugin's command. Raises InputError if its package cannot be imported."""
    try:
        target = point.load()
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"the command {point.name!r} of {_package(point)} cannot be loaded ({error}); install what it needs"
        ) from error
    if not isinstance(target, typer.Typer):
        single = typer.Typer(add_completion=False)
        single.command(point.name)(target)
        target = single
    command = typer.main.get_command(target)
    command.name = point.name
    return command


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else point.value.partition(".")[0]
