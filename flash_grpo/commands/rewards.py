"""Commands about rewards: list them, and all that is done once before a reward can be used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from flash_grpo.commands.base import AsJson
from flash_grpo.commands.lists import show

if TYPE_CHECKING:
    from flash_grpo.rewards.status import Status

rewards = typer.Typer(invoke_without_command=True)


@rewards.callback()
def list_rewards(context: typer.Context, as_json: AsJson = False) -> None:
    """List the rewards and what each measures; the commands below prepare and check them."""
    if context.invoked_subcommand is not None:
        return
    from flash_grpo.rewards.registry import available
    from flash_grpo.rewards.status import Status, described

    entries = [described(card) for card in available().values()]
    if not as_json:
        for entry in entries:
            entry["status"] = _told(Status(**entry["status"]))
    show("Rewards", entries, ("name", "badge", "measures", "status"), as_json)


def _told(status: Status) -> str:
    if status.state == "download":
        return f"needs download of {status.bytes / 1e9:.3g} GB"
    return {"ready": "ready", "server": "needs server", "later": "comes later"}[status.state]
