"""Serving API and pages with uvicorn, ending at once on a signal even while event streams are open."""

from __future__ import annotations

import socket
from contextlib import suppress

import uvicorn
from fastapi import FastAPI

from flash_grpo.errors import InputError
from flash_grpo_studio.app.api.application import create_app
from flash_grpo_studio.app.pages.mount import mount_pages
from flash_grpo_studio.app.settings import Settings


class Server(uvicorn.Server):
    """Ends the event streams first, as uvicorn waits for open connections before it shuts the application down."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop serving."""
        app = self.config.app
        if isinstance(app, FastAPI):
            app.state.studio.feed.close()
        await super().shutdown(sockets)


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. Raises InputError as `create_app`, and for an address that cannot be used."""
    app = create_app(settings)
    mount_pages(app)
    listener = bind(settings.host, settings.port)
    config = uvicorn.Config(
        app,
        log_level="info",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=30,
        lifespan="on",
    )
    with listener, suppress(KeyboardInterrupt):  # uvicorn raises the signal again once all is shut down
        Server(config).run([listener])


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; InputError says what is wrong with the address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named, as asyncio turns Nagle's delay off only where it is: it would cost each answer 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(512)
    except (OSError, OverflowError) as error:
        listener.close()
        raise InputError(
            f"cannot serve on {host} port {port} ({error}); choose another with --host and --port"
        ) from error
    return listener
