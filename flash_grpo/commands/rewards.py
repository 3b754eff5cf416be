"""Commands about rewards: list them, and all that is done once before a reward can be used."""

from __future__ import annotations

import typer

from flash_grpo.commands.base import AsJson
from flash_grpo.commands.lists import show

rewards = typer.Typer(invoke_without_command=True)


@rewards.callback()
def list_rewards(context: typer.Context, as_json: AsJson = False) -> None:
    """List the rewards and what each measures; the commands below prepare and check them."""
    if context.invoked_subcommand is not None:
        return
    import dataclasses

    from flash_grpo.rewards.registry import available

    entries = [dataclasses.asdict(card) for card in available().values()]
    for entry in entries:
        entry["status"] = "" if entry["available"] else "comes later"
    show("Rewards", entries, ("name", "badge", "measures", "status"), as_json)
