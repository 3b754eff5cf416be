"""Whatever the document of the API allows or forbids is sent: no answer is a server error or differs from it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode, checks
from schemathesis.core.failures import FailureGroup

from tests.app.web import Web, open_web, something_of_everything

SEED, EXAMPLES = 20_261, 14
ENDLESS = ("/stream",)
"""Streams of a job that is there, or of all jobs, never end."""
CHECKED = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
]


def exercise(
    app: FastAPI, headers: dict[str, str], known: dict[str, str], examples: int, only: str = ""
) -> Counter[str]:
    """Send generated requests to every operation, half of them about things that are there; counts the answers."""
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app)
    picked = random.Random(SEED)
    counts: Counter[str] = Counter()
    for result in schema.get_all_operations():
        operation = result.ok()
        if only not in operation.path:
            continue

        modes = st.one_of(
            operation.as_strategy(generation_mode=mode) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        )

        @seed(SEED)
        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=modes)
        def one(case: Any) -> None:
            endless = case.path.endswith(ENDLESS)
            if endless and "{" not in case.path:
                return
            for name in case.path_parameters or {}:
                if name in known and not endless and case.method != "DELETE" and picked.random() < 0.5:
                    case.path_parameters[name] = known[name]
            response = case.call(headers=headers)
            counts[f"{response.status_code}"] += 1
            case.validate_response(response, checks=CHECKED)

        one()
    return counts


@pytest.fixture
def filled(database_url: str, tmp_path: Path) -> Iterator[tuple[Web, dict[str, str], dict[str, str]]]:
    """A studio with an administrator who must log in, and something of everything."""
    with open_web(database_url, tmp_path) as web:
        headers = web.user("ann", "admin")
        yield web, headers, something_of_everything(web, web.users["ann"])


def test_every_operation_keeps_to_the_document(filled: tuple[Web, dict[str, str], dict[str, str]]) -> None:
    web, headers, known = filled
    known = {name: value for name, value in known.items() if name not in ("token_id", "user_id")}
    counts = exercise(web.app, headers, known, EXAMPLES)
    print(f"answers by status: {dict(sorted(counts.items()))}")
    assert sum(counts.values()) > 200
    assert not any(status.startswith("5") for status in counts)


def test_a_route_that_fails_is_caught(filled: tuple[Web, dict[str, str], dict[str, str]]) -> None:
    web, headers, known = filled

    @web.app.get("/api/v1/broken/{number}")
    def broken(number: int) -> dict[str, float]:
        return {"inverse": 1 / (number - number)}

    web.app.openapi_schema = None
    with pytest.raises((FailureGroup, AssertionError), match="Server error"):
        exercise(web.app, headers, known, EXAMPLES, only="/broken")
