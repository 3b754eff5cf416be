"""Packs the API's longer answers for browsers on other machines. Files, media and streams go out as they are."""

from __future__ import annotations

import gzip
from ipaddress import ip_address

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LEAST_BYTES = 4096
LEVEL = 4
ALONE_BYTES = 65_536
"""Packing more than this takes milliseconds, in which the other requests would wait."""


class Pack:
    """ASGI middleware: gzip for whole JSON answers. On the same machine the time would be spent for nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        wanted = scope["type"] == "http" and "gzip" in Headers(scope=scope).get("accept-encoding", "")
        if not wanted or _same_machine(scope):
            await self.app(scope, receive, send)
            return
        await self.app(scope, receive, _Packer(send))


def _same_machine(scope: Scope) -> bool:
    try:
        return ip_address((scope.get("client") or ("",))[0]).is_loopback
    except ValueError:
        return False


class _Packer:
    """Holds the beginning of an answer back until it is known how long the whole is."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.start: Message | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _packable(message):
            self.start = message
            return
        if self.start is not None:
            start, self.start = self.start, None
            body = message.get("body", b"")
            if len(body) >= LEAST_BYTES and not message.get("more_body"):
                message = {"type": "http.response.body", "body": await _packed(body)}
                headers = MutableHeaders(scope=start)
                headers["Content-Encoding"], headers["Content-Length"] = "gzip", str(len(message["body"]))
                headers.add_vary_header("Accept-Encoding")
            await self.send(start)
        await self.send(message)


def _packable(start: Message) -> bool:
    headers = Headers(scope=start)
    whole = start["status"] != 206 and "content-encoding" not in headers
    return whole and headers.get("content-type", "").partition(";")[0] == "application/json"


async def _packed(body: bytes) -> bytes:
    if len(body) < ALONE_BYTES:
        return gzip.compress(body, LEVEL)
    return await run_in_threadpool(gzip.compress, body, LEVEL)
