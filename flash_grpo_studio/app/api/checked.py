"""JSON bodies as they may be: not too deep, no zero bytes, half characters or numbers that no database keeps."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from flash_grpo_studio.app.api.errors import NotLoggedIn, Refused
from flash_grpo_studio.app.api.limits import Limits
from flash_grpo_studio.app.api.who import find_actor, studio_of

LARGEST_INTEGER = 2**63 - 1
MOST_CONTAINERS = 1_000_000
"""Each takes some 60 bytes of memory for 2 of the body, and so many keep the whole server waiting for a second."""
STRANGERS_BYTES = 65_536
"""Of a body sent by nobody in particular: more than any login holds."""


def parse_json(body: bytes, depth: int) -> Any:
    """The value of a body; Refused (422) says what is wrong with it."""
    if len(body) > MOST_CONTAINERS and body.count(b"[") + body.count(b"{") > MOST_CONTAINERS:
        raise _bad(f"the JSON holds more than {MOST_CONTAINERS} lists and objects; send less at a time")
    try:
        value = json.loads(body)
    except RecursionError:
        raise _bad(f"the JSON is nested more than {depth} levels deep; send a flatter one") from None
    except ValueError as error:
        said = error.msg if isinstance(error, json.JSONDecodeError) else "a sign or number that cannot be read"
        raise _bad(f"the body is not valid JSON ({said[:200]}); mend it") from None
    _check(value, depth)
    return value


def _check(value: Any, depth: int) -> None:
    """Level by level, without recursion."""
    level = [value]
    for _ in range(depth + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                for key in item:
                    _check_text(key)
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            else:
                _check_plain(item)
        if not below:
            return
        level = below
    raise _bad(f"the JSON is nested more than {depth} levels deep; send a flatter one")


def _check_plain(item: Any) -> None:
    if isinstance(item, str):
        _check_text(item)
    elif isinstance(item, int):
        if abs(item) > LARGEST_INTEGER:
            raise _bad("the JSON holds a whole number of more than 63 bits; send a smaller one")
    elif isinstance(item, float) and not math.isfinite(item):
        raise _bad("the JSON holds a number that is not finite; send another one")


def _check_text(text: str) -> None:
    if "\0" in text:
        raise _bad("the JSON holds a text with a zero byte; leave it out")
    if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
        raise _bad("the JSON holds a text with half a surrogate pair; send valid Unicode")


def _bad(sentence: str) -> Refused:
    return Refused(422, "invalid", sentence)


class CheckedRequest(Request):
    """A request whose JSON is parsed and checked beside the event loop."""

    async def json(self) -> Any:
        """The checked value of the body."""
        if not hasattr(self, "_json"):
            limits: Limits = self.app.state.limits
            self._json = await run_in_threadpool(parse_json, await self.body(), limits.depth)
        return self._json


class CheckedRoute(APIRoute):
    """A route whose bodies are checked. FastAPI reads a body before it asks who sent it, so a long one is asked here:
    to parse what any stranger sends would let him stop the server.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, given a request that checks."""
        handler = super().get_route_handler()

        async def checked(request: Request) -> Response:
            if _long(request) and await run_in_threadpool(find_actor, studio_of(request), request) is None:
                raise NotLoggedIn("log in first, or send a valid token as `Authorization: Bearer TOKEN`")
            return await handler(CheckedRequest(request.scope, request.receive))

        return checked


def _long(request: Request) -> bool:
    """Whether the body is long, or may be, as its length is not told."""
    length = request.headers.get("content-length", "")
    return int(length) > STRANGERS_BYTES if length.isdigit() else "transfer-encoding" in request.headers
