"""Every route with an id in its path: a foreign one looks as if it were not there, and nothing about it changes."""

from __future__ import annotations

import re
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import select

from flash_grpo_studio.app.api import create_app
from flash_grpo_studio.app.api.routing import ROUTERS
from flash_grpo_studio.app.settings import Settings
from flash_grpo_studio.app.store.tables import Ballot, File, Job, PromptSet, RewardProfile, Worker
from tests.app.web import Web, something_of_everything

BODIES: dict[str, Any] = {
    "edit_job": {"name": "mine now"},
    "clone_job": {},
    "reorder_job": {"before": None},
    "edit_prompt_set": {"name": "mine now"},
    "edit_profile": {"name": "mine now"},
    "edit_user": {"role": "viewer"},
    "drain_worker": {"on": True},
    "choose": {"choice": "left"},
}
WITHOUT_BODY = {
    "cancel_job",
    "pause_job",
    "resume_job",
    "retry_job",
    "save_job",
    "sample_job",
    "reveal_ballot",
}
SIGNED = {"get_left_video", "get_right_video"}
"""Open to the voter alone, by an address that he was given."""
OF_EXPORTS = {"get_export", "get_export_zip"}
"""There for jobs of the kind export alone; `test_export.py` says who gets them."""
OTHER = "0123456789abcdef"


def routes_with_ids(app: FastAPI) -> list[tuple[str, str, str]]:
    """Method, path and operation of every route whose path holds an id, from the document and the route table."""
    document = app.openapi()
    found = [
        (method.upper(), path.removeprefix("/api/v1"), str(operation["operationId"]))
        for path, operations in document["paths"].items()
        if "{" in path
        for method, operation in operations.items()
    ]
    routes: list[Any] = [*app.routes, *(route for router in ROUTERS for route in router.routes)]
    hidden = [route.path for route in routes if "{" in getattr(route, "path", "") and not _documented(route)]
    assert not hidden, f"routes with an id that the document does not tell of: {hidden}"
    assert len(found) == sum("{" in route.path for router in ROUTERS for route in router.routes)  # type: ignore[attr-defined]
    return found


def _documented(route: Any) -> bool:
    return bool(getattr(route, "include_in_schema", True))


@pytest.fixture(scope="module")
def all_routes(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, str]]:
    folder = tmp_path_factory.mktemp("routes")
    app = create_app(Settings(folder, f"sqlite:///{folder / 'studio.db'}", ""))
    return routes_with_ids(app)


def test_no_route_with_an_id_is_forgotten(all_routes: list[tuple[str, str, str]]) -> None:
    assert len(all_routes) >= 30
    for method, path, operation in all_routes:
        if method in ("POST", "PATCH", "PUT"):
            assert (operation in BODIES) != (operation in WITHOUT_BODY), f"say what {operation} is sent in this test"
        assert re.findall(r"{(\w+)}", path) != ["id"], f"{path}: name the parameter after the thing"


def test_foreign_things_look_like_missing_ones(web: Web, all_routes: list[tuple[str, str, str]]) -> None:
    web.user("boss", "admin")
    web.user("ann")
    bob, eve = web.user("bob"), web.user("eve", "viewer")
    things = something_of_everything(web, web.users["ann"])
    before = everything(web)
    for method, path, operation in all_routes:
        for headers in (bob, eve):
            foreign = call(web, method, path, things, headers, operation)
            missing = call(web, method, path, dict.fromkeys(things, OTHER), headers, operation)
            assert foreign.status_code in (403, 404), f"{method} {path} answered a stranger {foreign.status_code}"
            assert foreign.status_code == missing.status_code, f"{method} {path} tells foreign from missing"
            assert anonymous(foreign.text, things) == anonymous(missing.text, dict.fromkeys(things, OTHER))
        nobody = call(web, method, path, things, {}, operation)
        assert nobody.status_code == 401, f"{method} {path} answered {nobody.status_code} without a login"
    assert everything(web) == before


def test_the_owner_and_an_administrator_get_what_strangers_do_not(
    web: Web, all_routes: list[tuple[str, str, str]]
) -> None:
    """Else the test above could pass because nothing is ever found."""
    boss, ann = web.user("boss", "admin"), web.user("ann")
    things = something_of_everything(web, web.users["ann"])
    for method, path, operation in all_routes:
        if method != "GET" or path.endswith("/stream") or operation in SIGNED | OF_EXPORTS:
            continue
        for headers in (ann, boss):
            assert call(web, method, path, things, headers, operation).status_code == 200, f"{method} {path}"


def test_shared_jobs_may_be_looked_at_and_not_touched(web: Web, all_routes: list[tuple[str, str, str]]) -> None:
    web.user("boss", "admin")
    web.user("ann")
    bob = web.user("bob")
    things = something_of_everything(web, web.users["ann"])
    with web.studio.store.writing() as session:
        session.get_one(Job, things["job_id"]).shared = True
    for method, path, operation in all_routes:
        if "{job_id}" not in path or path.endswith("/stream") or operation in OF_EXPORTS:
            continue
        status = call(web, method, path, things, bob, operation).status_code
        expected = 200 if method == "GET" else 201 if operation == "clone_job" else 403
        assert status == expected, f"{method} {path} answered {status}"
    assert web.get(f"/videos/{things['video_id']}/content", headers=bob).status_code == 200


def call(web: Web, method: str, path: str, things: dict[str, str], headers: dict[str, str], operation: str) -> Any:
    return web.call(method, path.format(**things), headers=headers, json=BODIES.get(operation))


def anonymous(text: str, things: dict[str, str]) -> str:
    for value in things.values():
        text = text.replace(value, "ID")
    return text


def everything(web: Web) -> list[Any]:
    """What a stranger must not have changed."""
    columns = (Job.id, Job.name, Job.state), (PromptSet.id, PromptSet.name), (RewardProfile.id, RewardProfile.name)
    more = (File.id, File.name), (Worker.id, Worker.state), (Ballot.id, Ballot.choice, Ballot.revealed)
    with web.studio.store.reading() as session:
        return [sorted(map(tuple, session.execute(select(*chosen)).all())) for chosen in (*columns, *more)]
