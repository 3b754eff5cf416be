"""What stands before the routes: other sites, sizes, bodies meant to break something, headers, errors as JSON."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from flash_grpo_studio.app.api.limits import MB, Limits
from flash_grpo_studio.app.store.engine import StoreUnavailable
from tests.app.web import ORIGIN, Web, open_web

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 201),
        ({"Origin": ORIGIN}, 201),
        ({"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}, 201),
        ({"Sec-Fetch-Site": "none"}, 201),
        ({"Origin": "https://127.0.0.1:7860"}, 201),  # behind something that speaks TLS
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:9999"}, 403),
        ({"Origin": "http://localhost:7860"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": ""}, 403),
        ({"Origin": "http://[::1"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": ORIGIN, "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
def test_writes_from_other_sites_are_refused_whatever_they_carry(
    lasting_web: Web, headers: dict[str, str], status: int
) -> None:
    small_web, body = lasting_web, {"name": "micro", "rewards": {"no_such": 1}}  # refused by itself, if it gets so far
    status = 422 if status == 201 else status
    assert small_web.post("/reward-profiles", body, headers=headers).status_code == status
    local = small_web.studio.accounts.local_admin()
    secret = small_web.studio.accounts.issue(local, "token", "t", ["read", "write"], None).text
    with_token = {**headers, "Authorization": f"Bearer {secret}"}
    assert small_web.post("/reward-profiles", body, headers=with_token).status_code == status
    assert small_web.get("/jobs", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[" * 100_000, "nested"),
        (b'{"preset":"micro","overrides":' + b'{"a":' * 60 + b"1" + b"}" * 61, "nested"),
        (b'{"preset":"mi\\u0000cro"}', "zero byte"),
        (b'{"preset":"micro","overrides":{"a\\u0000":1}}', "zero byte"),
        (b'{"preset":"micro","name":"\\ud800"}', "surrogate"),
        (b'{"preset":"micro","priority":' + b"9" * 5000 + b"}", "cannot be read"),
        (b'{"preset":"micro","overrides":{"updates":' + b"9" * 30 + b"}}", "63 bits"),
        (b'{"preset":"micro","overrides":{"a":[' + b"[]," * 1_000_001 + b"0]}}", "lists and objects"),
        (b'{"preset":"micro","budget":1e999}', "not finite"),
        (b'{"preset":"micro","budget":NaN}', "not finite"),
        (b'{"preset":"micro"', "not valid JSON"),
        (b"\xff\xff", "cannot be read"),
    ],
)
def test_bodies_that_are_meant_to_break_something(lasting_web: Web, body: bytes, said: str) -> None:
    answer = lasting_web.call("POST", "/jobs", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["error"]["code"]) == (422, "invalid")
    assert said in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        {"preset": "micro", "overrides": {"updates": 2**40}},
        {"preset": "micro", "overrides": {"updates": 1e18}},
        {"preset": "micro", "overrides": {"seed": -1}},
        {"preset": "micro", "priority": 2**62},
        {"preset": "micro", "devices": 10**6},
        {"preset": "micro", "strange": 1},
        {"preset": 7},
        {"preset": "no such preset"},
        {"preset": "micro", "prompts": "ffffffffffffffff00"},
        {"preset": "micro", "rewards": {"no_such": 1}},
        {"kind": "no such kind"},
        {"kind": ["alignment"]},
        {"kind": "download", "repo": "../../etc"},
        [],
        "text",
        None,
    ],
)
def test_values_that_do_not_fit(lasting_web: Web, body: Any) -> None:
    answer = lasting_web.post("/jobs", body)
    assert answer.status_code == 422, answer.text
    error = answer.json()["error"]
    assert error["message"] and error["code"] == "invalid"
    assert lasting_web.get("/jobs").json()["total"] == 0


def test_field_errors_name_the_field_and_do_not_repeat_the_value(small_web: Web) -> None:
    answer = small_web.post("/login", {"name": "ann", "password": ["hunter2-secret"]})
    assert answer.json()["error"]["fields"][0]["field"] == "password"
    assert "hunter2" not in answer.text


@pytest.mark.parametrize("path", ["/jobs/%00", "/jobs?text=%00", "/jobs/a%00b/log", "/videos/%00/content"])
def test_zero_bytes_in_addresses(lasting_web: Web, path: str) -> None:
    assert lasting_web.get(path).status_code == 422


@pytest.mark.parametrize(
    "id_", ["zzz", "..%2f..%2fetc%2fpasswd", "0" * 16, "é", "' OR 1=1 --", "-1", "a" * 150, "%F0%9F%92%A9"]
)
def test_ids_that_are_none(lasting_web: Web, id_: str) -> None:
    for path in ("/jobs/{}", "/jobs/{}/metrics", "/videos/{}/content", "/files/{}/content", "/prompt-sets/{}"):
        assert lasting_web.get(path.format(id_)).status_code == 404, path


@pytest.mark.parametrize(
    "cursor", ["x", "W10", "WzEsMl0", "eyJhIjoxfQ", "WyJcdTAwMDAiLCAiYSJd", "!!", "W251bGwsbnVsbF0"]
)
def test_cursors_that_are_none(lasting_web: Web, cursor: str) -> None:
    for path in ("/jobs", "/audit", "/prompt-sets"):
        assert lasting_web.get(path, params={"cursor": cursor}).status_code in (200, 422), path


def test_nobody_reads_a_long_body_of_a_stranger(small_web: Web) -> None:
    boss, long = small_web.user("boss", "admin"), b'{"name": "' + b"a" * 70_000 + b'"}'

    def parts() -> Any:
        yield b"["  # not even JSON, which a body that was read would be told

    for path in ("/login", "/jobs", "/prompt-sets/parse"):
        assert small_web.call("POST", path, content=long, headers=JSON).status_code == 401
        assert small_web.call("POST", path, content=parts(), headers=JSON).status_code == 401
        assert small_web.call("POST", path, content=long, headers={**JSON, **boss}).status_code == 422
    assert small_web.call("POST", "/login", content=long[:100], headers=JSON).status_code == 422


def test_size_limits_hold_with_and_without_a_length(tmp_path: Path) -> None:
    with open_web(f"sqlite:///{tmp_path / 's.db'}", tmp_path, Limits(json=MB)) as web:
        large = b'{"preset":"' + b"a" * (MB + 10) + b'"}'
        assert web.call("POST", "/jobs", content=large, headers=JSON).status_code == 413

        def parts() -> Any:
            for start in range(0, len(large), 65536):
                yield large[start : start + 65536]

        answer = web.call("POST", "/jobs", content=parts(), headers=JSON)
        assert (answer.status_code, answer.json()["error"]["code"]) == (413, "too_large")


def test_every_answer_has_the_security_headers(small_web: Web) -> None:
    answers = [small_web.get("/health"), small_web.get("/nowhere"), small_web.client.get("/"), small_web.get("/jobs/x")]
    answers.append(small_web.post("/jobs", {"preset": "micro"}, headers={"Origin": "https://evil.example"}))
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["referrer-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers


def test_unknown_addresses_and_methods_answer_as_json(small_web: Web) -> None:
    assert small_web.get("/nowhere").json()["error"]["code"] == "not_found"
    wrong = small_web.call("PUT", "/jobs")
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"]


def test_an_error_nobody_foresaw_has_a_number_and_no_traceback(
    small_web: Web, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> bool:
        raise ZeroDivisionError("a secret of the server")

    monkeypatch.setattr(small_web.studio.accounts, "login_needed", broken)
    with caplog.at_level(logging.ERROR):
        answer = small_web.get("/jobs")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (500, "internal")
    assert "secret" not in answer.text and "Traceback" not in answer.text
    assert error["id"] in caplog.text and "a secret of the server" in caplog.text
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_database_that_is_away_and_a_full_disk(small_web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Any:
        raise StoreUnavailable("the database postgresql://secret-host does not answer")

    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(small_web.studio.jobs, "submit", full)
    answer = small_web.post("/jobs", {"preset": "micro"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (507, "disk_full")
    monkeypatch.setattr(small_web.studio.jobs, "submit", away)
    answer = small_web.post("/jobs", {"preset": "micro"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert "secret-host" not in answer.text

    def no_room(*_: Any) -> Any:
        raise StoreUnavailable("the database sqlite:////secret-host does not answer: database or disk is full")

    monkeypatch.setattr(small_web.studio.jobs, "submit", no_room)
    answer = small_web.post("/jobs", {"preset": "micro"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (507, "disk_full")
    assert "secret-host" not in answer.text


def test_no_secret_reaches_the_log(small_web: Web, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        made = small_web.post("/tokens", {"name": "t"}).json()["token"]
        small_web.get("/me", headers={"Authorization": f"Bearer {made}"})
        small_web.post("/login", {"name": "ann", "password": "a-secret-password"})
    assert made not in caplog.text
    assert "a-secret-password" not in caplog.text
    assert json.dumps(made) not in caplog.text
