"""The document of the API, and its page without anything from elsewhere."""

from __future__ import annotations

import re
from typing import Any

from tests.app.web import Web


def test_the_page_needs_nothing_from_elsewhere_and_its_policy_allows_what_it_has(small_web: Web) -> None:
    page = small_web.client.get("/docs")
    assert page.status_code == 200
    assert "https://" not in page.text and "http://" not in page.text
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert not re.search(r"<script(?![^>]*src=)", page.text), "an inline script would be blocked"
    for address in re.findall(r'(?:src|href)="([^"]+)"', page.text):
        assert small_web.client.get(address).status_code == 200, address
    assert small_web.client.get("/docs/start.js").headers["content-type"].startswith("text/javascript")
    assert small_web.client.get("/docs/assets/../../../etc/passwd").status_code == 404


def test_everything_is_told_with_its_errors(small_web: Web) -> None:
    document = small_web.get("/openapi.json").json()
    operations = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    names = [operation["operationId"] for _, _, operation in operations]
    assert len(names) == len(set(names)) >= 60
    for path, method, operation in operations:
        where = f"{method} {path}"
        assert operation["tags"] and operation["summary"] and operation["description"], where
        if path not in ("/api/v1/health", "/api/v1/login", "/api/v1/logout"):
            assert operation["security"], where
        if path != "/api/v1/health":
            assert {"401", "403", "422", "503"} <= operation["responses"].keys(), where
        if "{" in path:
            assert "404" in operation["responses"], where
        for status, response in operation["responses"].items():
            if status.startswith("2") and "application/json" in response.get("content", {}):
                assert response["content"]["application/json"]["schema"] != {} or "content" in path, where


def test_each_kind_of_job_documents_its_fields(small_web: Web) -> None:
    document = small_web.get("/openapi.json").json()
    body = document["paths"]["/api/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]
    kinds = {choice["$ref"].rpartition("/")[2] for choice in body["schema"]["oneOf"]}
    assert {"AlignmentAsk", "PreviewAsk", "DownloadAsk"} <= kinds
    preview = document["components"]["schemas"]["PreviewAsk"]
    assert {"kind", "job_id", "prompts"} <= set(preview["required"])
    assert document["components"]["schemas"]["AlignmentAsk"]["required"] == ["preset"]
    assert body["examples"]["smallest"]["value"] == {"preset": "pocket"}


def test_the_bundled_page_gets_a_document_it_can_read(small_web: Web) -> None:
    document = small_web.client.get("/docs/openapi.json").json()
    assert document["openapi"].startswith("3.0")
    assert small_web.get("/openapi.json").json()["openapi"].startswith("3.1")

    def check(node: Any) -> None:
        if isinstance(node, dict):
            assert node.get("type") != "null" and "const" not in node
            assert isinstance(node.get("exclusiveMinimum", False), bool)
            for value in node.values():
                check(value)
        elif isinstance(node, list):
            for value in node:
                check(value)

    check(document["components"])
    check(document["paths"])
