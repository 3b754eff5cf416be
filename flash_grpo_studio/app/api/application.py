"""`create_app`: the parts, the routes and what stands before them, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version

from fastapi import APIRouter, FastAPI

from flash_grpo.errors import InputError
from flash_grpo_studio.app.api import errors
from flash_grpo_studio.app.api.checked import CheckedRoute
from flash_grpo_studio.app.api.docs import install as install_docs
from flash_grpo_studio.app.api.feed import Feed
from flash_grpo_studio.app.api.guard import Guard
from flash_grpo_studio.app.api.limits import Limits, read_limits
from flash_grpo_studio.app.api.pack import Pack
from flash_grpo_studio.app.api.routing import ROUTERS
from flash_grpo_studio.app.api.studio import Studio
from flash_grpo_studio.app.settings import Settings
from flash_grpo_studio.app.store.engine import StoreUnavailable

PREFIX = "/api/v1"
DESCRIPTION = """Align video diffusion models with your own rewards.

A job is submitted with `POST /jobs`; `{"preset": "pocket"}` is enough. Watch it with `GET /jobs/{id}` or the event
stream, and fetch what it made by id. Errors are `{"error": {"code", "message", ...}}`, `message` a sentence for people.
"""


def package_version() -> str:
    """The version of this package."""
    try:
        return version("flash-grpo-studio")
    except PackageNotFoundError:
        return "unknown"


def create_app(settings: Settings, limits: Limits | None = None) -> FastAPI:
    """The studio's web application.

    Raises InputError: a workspace or database that cannot be used, or an address beyond this machine while nobody has
    a password.
    """
    limits = limits or read_limits()
    studio = Studio(settings, limits)
    _prepare(studio)
    studio.feed = Feed(studio.store, limits.streams)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        studio.housekeeping.start()
        try:
            yield
        finally:
            studio.feed.close()
            studio.housekeeping.stop()
            studio.store.close()

    app = FastAPI(
        title="Flash-GRPO Studio",
        version=package_version(),
        description=DESCRIPTION,
        lifespan=life,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.studio, app.state.limits = studio, limits
    app.add_middleware(Guard, limits=limits)
    app.add_middleware(Pack)
    errors.install(app)
    router = APIRouter(prefix=PREFIX, route_class=CheckedRoute)
    for part in ROUTERS:
        router.include_router(part)
    app.include_router(router)
    install_docs(app)
    return app


def _prepare(studio: Studio) -> None:
    """Tables, and whether the address may be served; on loopback a database that is away may come later."""
    settings = studio.settings
    try:
        if settings.loopback:
            studio.housekeeping.prepare()
            return
        studio.store.patiently(studio.housekeeping.prepare)
        needed = studio.accounts.login_needed()
    except StoreUnavailable as error:
        if not settings.loopback:
            raise InputError(f"{error}; start it first") from error
        errors.log.warning("%s; trying again", error)
        return
    if not needed:
        raise InputError(
            f"{settings.host} can be reached from other machines and nobody has a password; make a login first with: "
            "flash-grpo user add NAME --role admin"
        )
