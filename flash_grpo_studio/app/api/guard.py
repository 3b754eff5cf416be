"""What stands before every route: size limits, requests from other sites, security headers, errors nobody foresaw."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flash_grpo_studio.app.api.errors import problem, unexpected
from flash_grpo_studio.app.api.limits import MB, Limits

SAFE = ("GET", "HEAD", "OPTIONS")
UPLOADS = "/api/v1/uploads"
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "SAMEORIGIN",
}
API_POLICY = "default-src 'none'; frame-ancestors 'self'"
PAGE_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; style-src 'self' 'unsafe-inline'; "
    "script-src 'self'; object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)
OTHER_POLICY = "frame-ancestors 'self'"


class Guard:
    """ASGI middleware. Other-site writes are refused whatever credential they carry, as a browser adds it unasked."""

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        self.app, self.limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sender = _Sender(scope["path"], send)
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, sender)
            return
        try:
            await self.app(scope, self._limited(scope, receive), sender)
        except Exception as error:
            if sender.started:
                raise
            await unexpected(error)(scope, receive, sender)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        # The server splits the query from the path, and both may hold what no database keeps in a text.
        if "\0" in scope["path"] or b"%00" in scope.get("query_string", b"") or b"\0" in scope.get("query_string", b""):
            return problem(422, "invalid", "the address holds a zero byte; leave it out")
        if scope["method"] not in SAFE and not _same_site(headers):
            return problem(403, "other_site", "this request came from another site; use the studio's own pages")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._limit(scope):
            return _too_large(self._limit(scope))
        return None

    def _limit(self, scope: Scope) -> int:
        return self.limits.video + MB if scope["path"] == UPLOADS else self.limits.json

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        limit, seen = self._limit(scope), 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise HTTPException(413, f"the request is larger than {limit // MB} MB; send less")
            return message

        return counted


def _too_large(limit: int) -> Response:
    return problem(413, "too_large", f"the request is larger than {limit // MB} MB; send less")


def _same_site(headers: Headers) -> bool:
    """Whether a write may come from where it says; programs say nothing, browsers always do."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    default = {"http": ":80", "https": ":443"}.get(parts.scheme)
    host = headers.get("host", "").lower()
    return (
        default is not None and host != "" and parts.netloc.lower().removesuffix(default) == host.removesuffix(default)
    )


class _Sender:
    """Adds the security headers, and knows whether the answer has begun."""

    def __init__(self, path: str, send: Send) -> None:
        self.policy = API_POLICY if path.startswith("/api/") else OTHER_POLICY
        self.send, self.started = send, False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("Content-Security-Policy", self.policy)
        await self.send(message)
