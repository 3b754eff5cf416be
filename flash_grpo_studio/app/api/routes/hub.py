"""One's token for a hub: written and taken away, never read."""

from __future__ import annotations

from pydantic import Field

from flash_grpo_studio.app import hub_tokens
from flash_grpo_studio.app.api.base import Done, Strict, subject
from flash_grpo_studio.app.api.who import Parts, Reader
from flash_grpo_studio.app.jobs.change import tell

router = subject("login")


class HubToken(Strict):
    """A token of a hub that may write there."""

    token: str = Field(max_length=1000, json_schema_extra={"format": "password"})


@router.put("/me/hub-token", response_model=Done, summary="Keep a hub token")
def keep_hub_token(studio: Parts, actor: Reader, given: HubToken) -> Done:
    """With it your exports are sent to a hub, by jobs of the kind push alone. No answer shows it again."""
    actor.require_write()
    hub_tokens.keep(studio.workspace, actor.user_id, given.token.strip())
    with studio.store.writing() as session:
        tell(session, None, "hub_token_kept", actor.user_id)
    return Done()


@router.delete("/me/hub-token", response_model=Done, summary="Remove the hub token")
def remove_hub_token(studio: Parts, actor: Reader) -> Done:
    """It is gone from the studio; on the hub it is valid until it is revoked there."""
    actor.require_write()
    hub_tokens.forget(studio.workspace, actor.user_id)
    with studio.store.writing() as session:
        tell(session, None, "hub_token_removed", actor.user_id)
    return Done()
