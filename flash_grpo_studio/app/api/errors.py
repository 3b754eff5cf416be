"""How errors look to clients: one shape, a sentence for people, a code for programs, never a traceback."""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlalchemy.exc import DataError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException

from flash_grpo.errors import InputError
from flash_grpo.files import disk_problem
from flash_grpo_studio.app.jobs.access import Forbidden
from flash_grpo_studio.app.jobs.change import IllegalTransition, NotFound
from flash_grpo_studio.app.store.engine import StoreUnavailable

log = logging.getLogger("flash_grpo_studio.api")
RETRY_SECONDS = 5
_FULL = re.compile("disk is full|No space left on device")
"""What SQLite and PostgreSQL say of a full disk."""


class FieldProblem(BaseModel):
    """What is wrong with one field."""

    field: str = Field(description="Dotted path of the field in the request.", examples=["overrides.frames"])
    message: str = Field(examples=["must be 4n+1, got 10; the nearest are 9 and 13"])


class ErrorBody(BaseModel):
    """An error as a sentence for people and a code for programs."""

    code: str = Field(examples=["not_found"])
    message: str = Field(examples=["no job '0123456789abcdef'"])
    what_to_do: str | None = None
    fields: list[FieldProblem] | None = None
    state: str | None = Field(None, description="Of an illegal transition: the job's present state.")
    id: str | None = Field(None, description="By which the server's log tells more.")


class Problem(BaseModel):
    """What every error answers with."""

    error: ErrorBody


class NotLoggedIn(Exception):
    """Nobody is logged in, or the credential is not valid (any more)."""


class TooManyAttempts(Exception):
    """Too many failed logins; `seconds` until the next may be tried."""

    def __init__(self, seconds: float) -> None:
        super().__init__("too many failed logins; wait a moment")
        self.seconds = seconds


class Refused(HTTPException):
    """A request that cannot be served, with its HTTP status and code.

    It is an HTTPException because FastAPI makes a 400 of whatever else a body's parser raises.
    """

    def __init__(self, status: int, code: str, message: str, what_to_do: str | None = None) -> None:
        super().__init__(status, message)
        self.code, self.what_to_do = code, what_to_do


def problem(
    status: int, code: str, message: str, headers: Mapping[str, str] | None = None, **more: Any
) -> JSONResponse:
    """An error response."""
    body = {"code": code, "message": message, **{key: value for key, value in more.items() if value is not None}}
    return JSONResponse({"error": body}, status, headers=dict(headers or {}))


DESCRIPTIONS = {
    401: "Not logged in.",
    403: "Not allowed for this user or token, or the request came from another site.",
    404: "No such thing, or not this user's.",
    409: "Not possible in the present state.",
    410: "No longer there.",
    413: "Larger than the server takes.",
    415: "A kind of file that is not taken.",
    422: "Something in the request cannot be used; `fields` says what.",
    429: "Too many attempts.",
    503: "The database or another part is away for the moment.",
    507: "The disk is full.",
}


HTTP_CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 413: "too_large"}


def problems(*more: int) -> dict[int | str, dict[str, Any]]:
    """Responses of a route for OpenAPI: the errors that any route may answer with, and these."""
    codes = sorted({401, 403, 413, 422, 503, *more})
    # By name, as a model of its own for each response of each route would take most of the time of a start.
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    found: dict[int | str, dict[str, Any]] = {
        code: {"description": DESCRIPTIONS[code], "content": content} for code in codes
    }
    found[422] = {"description": DESCRIPTIONS[422], "model": Problem}
    return found


def error_response(error: Exception) -> JSONResponse:
    """What a client gets to see of an exception."""
    text = str(error)
    if isinstance(error, NotLoggedIn):
        return problem(401, "not_logged_in", text, {"WWW-Authenticate": "Bearer"})
    if isinstance(error, Forbidden):
        return problem(403, "forbidden", text)
    if isinstance(error, NotFound):
        return problem(404, "not_found", text)
    if isinstance(error, IllegalTransition):
        return problem(409, "illegal_transition", text, state=error.state)
    if isinstance(error, TooManyAttempts):
        return problem(429, "too_many_attempts", text, {"Retry-After": str(max(1, round(error.seconds)))})
    if isinstance(error, Refused):
        return problem(error.status_code, error.code, error.detail, what_to_do=error.what_to_do)
    if isinstance(error, InputError):
        return problem(422, "invalid", text)
    if isinstance(error, RequestValidationError):
        return problem(422, "invalid", "the request cannot be used", fields=field_problems(error.errors()))
    if isinstance(error, HTTPException):
        code = HTTP_CODES.get(error.status_code, "http_error")
        return problem(error.status_code, code, str(error.detail), error.headers)
    if isinstance(error, StoreUnavailable | PoolTimeout):
        log.warning("%s", text)
        if _FULL.search(text):
            message = "the database's disk takes no more; nothing was changed"
            return problem(507, "disk_full", message, what_to_do="free some space")
        message = "the database does not answer for the moment; nothing was changed"
        return problem(503, "unavailable", message, {"Retry-After": str(RETRY_SECONDS)}, what_to_do="try again shortly")
    if isinstance(error, DataError | OverflowError):
        log.info("a value does not fit: %s", text)
        return problem(422, "invalid", "a value is too large or holds signs that cannot be kept; give a smaller one")
    return unexpected(error)


def unexpected(error: Exception) -> JSONResponse:
    """An error nobody foresaw: the log has it all, the client a number to ask by."""
    id_ = secrets.token_hex(6)
    if (full := disk_problem(error)) is not None:
        log.error("error %s: %s", id_, full, exc_info=error)
        return problem(507, "disk_full", f"the disk takes no more ({full})", what_to_do="free some space", id=id_)
    log.error("error %s: %s", id_, type(error).__name__, exc_info=error)
    return problem(500, "internal", "something went wrong here; the server's log tells more by the id", id=id_)


def field_problems(errors: Sequence[Any]) -> list[dict[str, str]]:
    """Pydantic's errors as fields and sentences; the values themselves are not repeated, they may be secret or huge."""
    found = []
    for entry in errors:
        place = [str(part) for part in entry["loc"] if part not in ("body", "query", "path")]
        found.append(
            {"field": ".".join(place)[:300], "message": str(entry["msg"]).removeprefix("Value error, ")[:1000]}
        )
    return found


def install(app: FastAPI) -> None:
    """Let every known exception become its response."""

    async def handle(request: Request, error: Exception) -> JSONResponse:
        del request
        return error_response(error)

    kinds = (
        NotLoggedIn,
        Forbidden,
        NotFound,
        IllegalTransition,
        TooManyAttempts,
        Refused,
        InputError,
        RequestValidationError,
        HTTPException,
        StoreUnavailable,
        PoolTimeout,
        DataError,
        OverflowError,
    )
    for kind in kinds:
        app.add_exception_handler(kind, handle)
