"""Drafts of a new run: one's own, by version, of limited size and number, on both databases."""

from __future__ import annotations

import threading
from typing import Any

from flash_grpo_studio.app.api.routes.drafts import MOST_BYTES
from flash_grpo_studio.app.store.drafts import MOST
from tests.app.web import Web


def put(web: Web, version: int, form: dict[str, Any], address: str = "", **more: Any) -> Any:
    """Keep a form."""
    body = {"version": version, "form": form}
    return web.call("PUT", "/drafts/new", params={"address": address}, json=body, **more)


def draft(web: Web, address: str = "", **more: Any) -> tuple[int, Any]:
    """Version and form of what is kept."""
    found = web.get("/drafts/new", params={"address": address}, **more).json()
    return found["version"], found["form"]


def test_a_draft_is_kept_by_version_and_forgotten(web: Web) -> None:
    assert draft(web) == (0, None)
    assert put(web, 0, {"name": "one"}).json() == {"version": 1}
    assert put(web, 1, {"name": "two"}).json() == {"version": 2}
    assert draft(web) == (2, {"name": "two"})
    for version in (0, 1, 3):
        refused = put(web, version, {"name": "late"})
        assert refused.status_code == 409 and refused.json()["error"]["code"] == "changed_elsewhere", version
    assert draft(web) == (2, {"name": "two"}), "a refused draft changes nothing"
    assert draft(web, "?clone=a") == (0, None), "another address has another draft"
    assert put(web, 0, {"name": "clone"}, "?clone=a").json() == {"version": 1}
    assert web.call("DELETE", "/drafts/new").json() == {"done": True}
    assert draft(web) == (0, None) and draft(web, "?clone=a") == (1, {"name": "clone"})


def test_of_two_windows_at_once_one_is_refused(web: Web) -> None:
    for version in (0, 1, 2):
        codes: list[int] = []
        windows = [
            threading.Thread(
                target=lambda n=n, v=version, codes=codes: codes.append(put(web, v, {"window": n}).status_code)
            )
            for n in range(5)
        ]
        for window in windows:
            window.start()
        for window in windows:
            window.join(60)
        assert sorted(codes) == [200, 409, 409, 409, 409], codes
        assert draft(web)[0] == version + 1


def test_drafts_are_ones_own_and_of_limited_size_and_number(small_web: Web) -> None:
    web = small_web
    web.user("boss", "admin")
    ann, bob, eve = web.user("ann"), web.user("bob"), web.user("eve", "viewer")
    assert put(web, 0, {"name": "ann's"}, headers=ann).status_code == 200
    assert draft(web, headers=bob) == (0, None)
    assert put(web, 0, {}, headers=eve).status_code == 403, "who may launch nothing keeps no draft"
    assert web.get("/drafts/new").status_code == 401
    assert put(web, 1, {"text": "x" * (MOST_BYTES - 100)}, headers=ann).status_code == 200
    large = put(web, 2, {"text": "x" * MOST_BYTES}, headers=ann)
    assert (large.status_code, large.json()["error"]["code"]) == (413, "too_large")
    assert put(web, 0, {}, "?set=" + "x" * 1000, headers=ann).status_code == 422
    for number in range(MOST):
        assert put(web, 0, {"number": number}, f"?clone={number}", headers=ann).status_code == 200
    assert draft(web, headers=ann) == (0, None), "the oldest of too many goes"
    assert draft(web, "?clone=0", headers=ann) == (1, {"number": 0})
    assert web.call("DELETE", f"/users/{web.users['ann'].id}", headers=web.token("boss", ["admin"])).status_code == 200
