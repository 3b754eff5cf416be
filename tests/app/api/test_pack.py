"""Longer answers are packed for other machines, and what never changes is not sent twice."""

from __future__ import annotations

from fastapi.testclient import TestClient

from flash_grpo.config import RunConfig
from flash_grpo_studio.app.api.pack import LEAST_BYTES
from tests.app.web import MP4, ORIGIN, Web


def test_long_answers_are_packed_for_other_machines_alone(small_web: Web) -> None:
    far = small_web.get("/schema")
    assert far.headers["content-encoding"] == "gzip" and "Accept-Encoding" in far.headers["vary"]
    assert int(far.headers["content-length"]) < len(far.content), "packed, and no smaller"
    assert far.json() == RunConfig.model_json_schema()
    short = small_web.get("/me")
    assert len(short.content) < LEAST_BYTES and "content-encoding" not in short.headers
    plain = small_web.get("/schema", headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers and plain.content == far.content
    near = TestClient(small_web.app, base_url=ORIGIN, client=("127.0.0.1", 50000)).get("/api/v1/schema")
    assert "content-encoding" not in near.headers and near.content == far.content


def test_files_are_sent_as_they_are(small_web: Web) -> None:
    body = MP4 + b"0" * (2 * LEAST_BYTES)
    made = small_web.call("POST", "/uploads", files={"file": ("a.mp4", body, "video/mp4")})
    assert made.status_code == 201, made.text
    sent = small_web.get(f"/files/{made.json()['id']}/content")
    assert sent.content == body and "content-encoding" not in sent.headers


def test_what_never_changes_is_not_sent_twice(small_web: Web) -> None:
    for path in ("/presets", "/models", "/rewards", "/schema", "/choices"):
        first = small_web.get(path)
        again = small_web.get(path, headers={"If-None-Match": first.headers["etag"]})
        assert again.status_code == 304 and again.content == b"", path
        other = small_web.get(path, headers={"If-None-Match": '"something else"'})
        assert other.status_code == 200 and other.content == first.content, path
