"""All routers."""

from __future__ import annotations

from flash_grpo_studio.app.api.routes import (
    accounts,
    actions,
    ballots,
    catalogue,
    compare,
    files,
    health,
    jobs,
    library,
    login,
    machines,
    media,
    planning,
    price,
    prompts,
    streams,
    tokens,
    uploads,
    votes,
    watching,
)

ROUTERS = (
    health.router,
    jobs.router,
    actions.router,
    watching.router,
    files.router,
    streams.router,
    media.router,
    compare.router,
    ballots.router,
    votes.router,
    uploads.router,
    prompts.router,
    library.router,
    catalogue.router,
    planning.router,
    price.router,
    machines.router,
    login.router,
    tokens.router,
    accounts.router,
)
