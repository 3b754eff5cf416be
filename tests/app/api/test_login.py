"""Who gets in: passwords, sessions, tokens, the implicit administrator, and the tricks to become one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from flash_grpo.errors import InputError
from flash_grpo_studio.app.api import create_app
from flash_grpo_studio.app.api.routes import login
from flash_grpo_studio.app.api.who import COOKIE, Throttle, loopback_host
from flash_grpo_studio.app.settings import Settings
from flash_grpo_studio.app.store.tables import ApiToken, User
from tests.app.web import Web

PASSWORD = "correct horse"


@pytest.fixture(autouse=True)
def fresh_throttle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "throttle", Throttle())


def log_in(web: Web, name: str, password: str, **more: Any) -> Any:
    return web.post("/login", {"name": name, "password": password}, **more)


def test_a_studio_of_this_machine_has_an_implicit_administrator(small_web: Web) -> None:
    web = small_web
    me = web.get("/me").json()
    assert (me["name"], me["role"], me["login_needed"]) == ("local", "admin", False)
    assert web.get("/me").json()["id"] == me["id"]


@pytest.mark.parametrize(
    ("host", "good"),
    [
        ("127.0.0.1:7860", True),
        ("localhost:9000", True),
        ("LOCALHOST", True),
        ("[::1]:7860", True),
        ("[::1]", True),
        ("evil.example", False),
        ("127.0.0.1.evil.example:7860", False),
        ("localhost.evil.example", False),
        ("localhost:7860.evil.example", False),
        ("localhost:", False),
        ("localhost:x", False),
        ("localhost:99999", False),
        ("::1", False),
        ("[::1", False),
        ("192.168.0.5:7860", False),
        ("", False),
    ],
)
def test_only_loopback_names_are_trusted(lasting_web: Web, host: str, good: bool) -> None:
    assert loopback_host(host) is good
    if host:
        assert lasting_web.get("/me", headers={"Host": host}).status_code == (200 if good else 401)


@pytest.mark.parametrize("header", ["X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "X-Real-IP", "Via"])
def test_what_a_proxy_hands_on_is_not_from_this_machine(lasting_web: Web, header: str) -> None:
    assert lasting_web.get("/me", headers={header: "127.0.0.1"}).status_code == 401


def test_the_first_who_can_log_in_is_an_administrator(web: Web) -> None:
    refused = web.post("/users", {"name": "bob", "password": PASSWORD})
    assert refused.status_code == 422 and "must have the role admin" in refused.json()["error"]["message"]
    assert web.get("/me").json()["login_needed"] is False


def test_with_a_first_password_everybody_must_log_in(web: Web) -> None:
    added = web.post("/users", {"name": "ann", "role": "admin", "password": PASSWORD})
    assert added.status_code == 201
    assert "password" not in added.text
    refused = web.get("/jobs")
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "not_logged_in")
    answer = log_in(web, "ann", PASSWORD)
    assert answer.json()["name"] == "ann"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=lax" in cookie and "Secure" not in cookie
    assert web.get("/jobs").status_code == 200
    assert web.get("/me").json()["login_needed"] is True
    assert web.post("/logout").status_code == 200
    assert web.get("/jobs").status_code == 401


def test_the_cookie_is_for_https_alone_where_the_login_was(small_web: Web) -> None:
    web = small_web
    web.studio.accounts.add("ann", "admin", PASSWORD)
    answer = log_in(web, "ann", PASSWORD, headers={"X-Forwarded-Proto": "https"})
    assert "Secure" in answer.headers["set-cookie"]


def test_nothing_tells_who_exists(small_web: Web) -> None:
    web = small_web
    web.studio.accounts.add("ann", "admin", PASSWORD)
    wrong, unknown = log_in(web, "ann", "wrong password"), log_in(web, "nobody", "wrong password")
    assert (wrong.status_code, wrong.json()) == (unknown.status_code, unknown.json())
    times: dict[str, list[float]] = {"ann": [], "nobody": []}
    for _ in range(3):
        for name, taken in times.items():
            start = time.perf_counter()
            web.studio.accounts.check_password(name, "wrong password")
            taken.append(time.perf_counter() - start)
    assert 0.3 < min(times["ann"]) / min(times["nobody"]) < 3


def test_guessing_is_slowed_down_also_for_names_that_do_not_exist(small_web: Web, monkeypatch: Any) -> None:
    web = small_web
    monkeypatch.setattr(web.studio.accounts, "check_password", lambda name, password: None)
    for name in ("ann", "nobody"):
        answers = [log_in(web, name, "guess").status_code for _ in range(7)]
        assert answers == [401] * 5 + [429] * 2
    assert int(log_in(web, "ann", "guess").headers["retry-after"]) > 0
    assert log_in(web, "bob", "guess").status_code == 401
    many = [log_in(web, f"user{number}", "guess").status_code for number in range(30)]
    assert many[-1] == 429  # one address, many names


def test_a_good_login_forgets_the_failures_and_old_ones_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    throttle = Throttle()
    for _ in range(4):
        throttle.failed("ann", "here")
    throttle.succeeded("ann", "here")
    throttle.failed("ann", "here")
    throttle.check("ann", "here")
    now = time.monotonic()
    for _ in range(5):
        throttle.failed("bob", "here")
    with pytest.raises(Exception, match="too many"):
        throttle.check("bob", "here")
    monkeypatch.setattr("flash_grpo_studio.app.api.who.time.monotonic", lambda: now + Throttle.WINDOW + 1)
    throttle.check("bob", "here")


def test_tokens_are_shown_once_kept_as_a_hash_and_limited(web: Web) -> None:
    ann = web.user("ann")
    made = web.post("/tokens", {"name": "script", "scopes": ["read"], "days": 1}, headers=ann)
    assert made.status_code == 201
    text = made.json()["token"]
    with web.studio.store.reading() as session:
        assert not session.scalar(select(func.count()).select_from(ApiToken).where(ApiToken.digest == text))
    listed = web.get("/tokens", headers=ann)
    assert text not in listed.text and "digest" not in listed.text
    reader = {"Authorization": f"Bearer {text}"}
    assert web.get("/jobs", headers=reader).status_code == 200
    assert web.post("/jobs", {"preset": "micro"}, headers=reader).status_code == 403
    assert web.post("/tokens", {"name": "more", "scopes": ["write"]}, headers=reader).status_code == 403
    assert web.call("DELETE", f"/tokens/{made.json()['id']}", headers=reader).status_code == 403
    assert web.call("DELETE", f"/tokens/{made.json()['id']}", headers=ann).status_code == 200
    assert web.get("/jobs", headers=reader).status_code == 401


def test_no_token_gives_more_than_its_owner_has(small_web: Web) -> None:
    web = small_web
    boss, ann, eve = web.user("boss", "admin"), web.user("ann"), web.user("eve", "viewer")
    assert web.post("/tokens", {"name": "t", "scopes": ["admin"]}, headers=ann).status_code == 403
    assert web.post("/tokens", {"name": "t", "scopes": ["write"]}, headers=eve).status_code == 403
    assert web.post("/tokens", {"name": "t", "scopes": ["read"]}, headers=eve).status_code == 201
    limited = web.token("boss", ["read", "write"])
    assert web.get("/users", headers=limited).status_code == 403
    assert web.get("/users", headers=boss).status_code == 200
    user_id = web.users["boss"].id
    with web.studio.store.writing() as session:
        session.get_one(User, user_id).role = "viewer"
    assert web.get("/users", headers=boss).status_code == 403  # a role that is taken away is gone at once


def test_an_expired_or_wrong_token_is_refused_even_on_this_machine(web: Web) -> None:
    local = web.studio.accounts.local_admin()
    secret = web.studio.accounts.issue(local, "token", "t", ["read"], time.time() + 0.05).text
    time.sleep(0.1)
    for value in (f"Bearer {secret}", "Bearer nonsense", "Bearer", "Basic YTpi", "\xff"):
        answer = web.get("/me", headers={"Authorization": value.encode("latin-1")})  # type: ignore[dict-item]
        assert answer.status_code == 401, value
    web.studio.accounts.note_use()
    assert not [token for token in web.studio.accounts.tokens(local.user_id) if token.expires]


def test_use_of_tokens_is_noted(small_web: Web) -> None:
    web = small_web
    ann = web.user("ann")
    web.get("/me", headers=ann)
    web.studio.accounts.note_use()
    assert web.get("/tokens", headers=ann).json()["tokens"][0]["last_used"] is not None


def test_a_session_is_no_token_and_a_token_no_session(small_web: Web) -> None:
    web = small_web
    ann = web.user("ann")
    secret = ann["Authorization"].removeprefix("Bearer ")
    web.client.cookies.set(COOKIE, secret)
    assert web.get("/me").status_code == 401
    web.client.cookies.clear()
    session = web.studio.accounts.issue(web.users["ann"], "session", "s", ["read"], None).text
    assert web.get("/me", headers={"Authorization": f"Bearer {session}"}).status_code == 401


def test_the_only_administrator_stays(web: Web) -> None:
    boss = web.user("boss", "admin")
    user_id = web.users["boss"].id
    for method, body in (("PATCH", {"role": "creator"}), ("PATCH", {"revoke": True}), ("DELETE", None)):
        answer = web.call(method, f"/users/{user_id}", json=body, headers=boss)
        assert (answer.status_code, "only administrator" in answer.text) == (422, True), method
    second = web.user("second", "admin")
    assert web.call("PATCH", f"/users/{user_id}", json={"role": "creator"}, headers=second).status_code == 200


def test_who_owns_something_can_lose_the_login_and_is_not_removed(web: Web) -> None:
    boss, ann = web.user("boss", "admin"), web.user("ann")
    web.submit(ann)
    user_id = web.users["ann"].id
    refused = web.call("DELETE", f"/users/{user_id}", headers=boss)
    assert refused.status_code == 422 and "still owns 1 jobs" in refused.text
    assert web.call("PATCH", f"/users/{user_id}", json={"revoke": True}, headers=boss).json()["can_log_in"] is False
    assert web.get("/me", headers=ann).status_code == 401
    web.user("empty")
    assert web.call("DELETE", f"/users/{web.users['empty'].id}", headers=boss).status_code == 200


def test_one_changes_ones_own_password_with_the_old_one(small_web: Web) -> None:
    web = small_web
    web.studio.accounts.add("ann", "creator", PASSWORD)
    assert log_in(web, "ann", PASSWORD).status_code == 200
    change = {"password": "another horse", "old_password": "wrong horse"}
    assert web.call("PATCH", "/me", json=change).status_code == 403
    assert web.call("PATCH", "/me", json={"settings": {"language": "zh"}}).json()["settings"] == {"language": "zh"}
    assert web.call("PATCH", "/me", json={"settings": {"x": "y" * 10_000}}).status_code == 413
    assert web.call("PATCH", "/me", json={**change, "old_password": PASSWORD}).status_code == 200
    assert web.get("/me").status_code == 401  # every session has ended
    assert log_in(web, "ann", "another horse").status_code == 200


def test_beyond_this_machine_it_does_not_start_without_a_login(database_url: str, tmp_path: Path) -> None:
    settings = Settings(tmp_path / "workspace", database_url, "", host="0.0.0.0")
    with pytest.raises(InputError, match="flash-grpo user add"):
        create_app(settings)
    loopback = create_app(Settings(tmp_path / "workspace", database_url, ""))
    loopback.state.studio.accounts.add("ann", "admin", PASSWORD)
    create_app(settings)


def test_the_audit_tells_who_did_what(small_web: Web) -> None:
    web = small_web
    boss, ann = web.user("boss", "admin"), web.user("ann")
    job = web.submit(ann)
    web.post(f"/jobs/{job}/cancel", headers=ann)
    assert web.get("/audit", headers=ann).status_code == 403
    entries = web.get("/audit", params={"user": web.users["ann"].id}, headers=boss).json()["events"]
    assert [entry["data"].get("to") for entry in entries if entry["job_id"] == job] == ["cancelled", "queued"]
    assert all(entry["user_id"] == web.users["ann"].id for entry in entries)
