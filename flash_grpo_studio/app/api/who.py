"""Who asks: by session cookie, by token, or on a studio that only this machine reaches, the implicit administrator."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import APIKeyCookie, HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials
from starlette.requests import HTTPConnection

from flash_grpo_studio.app.api.errors import NotLoggedIn, TooManyAttempts
from flash_grpo_studio.app.api.studio import Studio
from flash_grpo_studio.app.jobs.access import Actor, Forbidden
from flash_grpo_studio.app.settings import LOOPBACK

COOKIE = "flash_grpo_session"
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip", "via")

_bearer = HTTPBearer(auto_error=False, description="A token made under /api/v1/tokens or by `flash-grpo user token`.")
_cookie = APIKeyCookie(name=COOKIE, auto_error=False, description="Set by /api/v1/login.")


def studio_of(request: HTTPConnection) -> Studio:
    """The parts of the studio that serves this request."""
    studio: Studio = request.app.state.studio
    return studio


def find_actor(studio: Studio, request: HTTPConnection) -> Actor | None:
    """Who asks, or None; a token that is sent must be good, whatever else there is."""
    authorization = request.headers.get("authorization")
    if authorization is not None:
        scheme, _, secret = authorization.partition(" ")
        return studio.accounts.actor(secret.strip(), "token") if scheme.lower() == "bearer" else None
    session = request.cookies.get(COOKIE)
    if session and (actor := studio.accounts.actor(session, "session")) is not None:
        return actor
    if studio.settings.loopback and _from_this_machine(request) and not studio.accounts.login_needed():
        return studio.accounts.local_admin()
    return None


def _from_this_machine(request: HTTPConnection) -> bool:
    """Whether the page was opened by a loopback name: a foreign name that was made to point here is not one, and what
    a proxy hands on is not from here.
    """
    if any(name in request.headers for name in FORWARDED):
        return False
    return loopback_host(request.headers.get("host", ""))


def loopback_host(host: str) -> bool:
    """Whether a Host header is a loopback name, with a port or without."""
    if host.startswith("["):
        name, closed, rest = host[1:].partition("]")
        return bool(closed) and name == "::1" and _port(rest)
    name, _, port = host.partition(":")
    return name.lower() in LOOPBACK and name != "::1" and _port(f":{port}" if port or host.endswith(":") else "")


def _port(text: str) -> bool:
    digits = text[1:]
    return text == "" or (
        text[0] == ":" and digits.isascii() and digits.isdigit() and len(digits) <= 5 and int(digits) < 65536
    )


def current_actor(studio: Studio, request: HTTPConnection) -> Actor:
    """Who asks; NotLoggedIn if nobody."""
    actor = find_actor(studio, request)
    if actor is None:
        raise NotLoggedIn("log in first, or send a valid token as `Authorization: Bearer TOKEN`")
    if "read" not in actor.scopes and actor.scopes.isdisjoint({"write", "admin"}):
        raise Forbidden("this token allows nothing; make one with the scope read")
    return actor


def reader(
    request: Request,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    cookie: Annotated[str | None, Depends(_cookie)],
) -> Actor:
    """Anybody who is logged in."""
    del bearer, cookie  # read by find_actor; named here so that the API's document tells of them
    return current_actor(studio_of(request), request)


def writer(actor: Annotated[Actor, Depends(reader)]) -> Actor:
    """Who may make and change things."""
    actor.require_write()
    return actor


def administrator(actor: Annotated[Actor, Depends(reader)]) -> Actor:
    """Who may do everything."""
    actor.require_admin()
    return actor


Parts = Annotated[Studio, Depends(studio_of)]
Reader = Annotated[Actor, Depends(reader)]
Writer = Annotated[Actor, Depends(writer)]
Administrator = Annotated[Actor, Depends(administrator)]


class Throttle:
    """Counts failed logins of the last minutes by name and address, and refuses further tries beyond a few."""

    WINDOW = 300.0
    LIMITS = {"pair": 5, "name": 50, "address": 30}  # noqa: RUF012
    KEPT = 10_000

    def __init__(self) -> None:
        self._failures: dict[tuple[str, ...], deque[float]] = defaultdict(deque)
        self._lock = threading.Lock()

    def check(self, name: str, address: str) -> None:
        """Raise TooManyAttempts if the next try must wait."""
        now = time.monotonic()
        with self._lock:
            for kind, key in self._keys(name, address):
                failures = self._failures.get(key)
                while failures and failures[0] < now - self.WINDOW:
                    failures.popleft()
                if failures and len(failures) >= self.LIMITS[kind]:
                    raise TooManyAttempts(self.WINDOW - (now - failures[0]))

    def failed(self, name: str, address: str) -> None:
        """Count a failure."""
        now = time.monotonic()
        with self._lock:
            if len(self._failures) > self.KEPT:
                fresh = {key: times for key, times in self._failures.items() if times and times[-1] > now - self.WINDOW}
                self._failures = defaultdict(deque, fresh if len(fresh) <= self.KEPT else {})
            for _, key in self._keys(name, address):
                self._failures[key].append(now)

    def succeeded(self, name: str, address: str) -> None:
        """Forget the failures of this name from this address."""
        with self._lock:
            self._failures.pop(self._keys(name, address)[0][1], None)

    @staticmethod
    def _keys(name: str, address: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
        return ("pair", ("pair", name, address)), ("name", ("name", name)), ("address", ("address", address))
