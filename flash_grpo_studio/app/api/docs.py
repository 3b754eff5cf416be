"""The API's documentation page, made of local files alone."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.staticfiles import StaticFiles

from flash_grpo_studio.app.api.guard import PAGE_POLICY

DOCS = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Flash-GRPO Studio API</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/docs/assets/swagger-ui.css">
<link rel="icon" type="image/png" href="/docs/assets/favicon-32x32.png">
</head><body><div id="swagger-ui"></div>
<script src="/docs/assets/swagger-ui-bundle.js"></script><script src="/docs/start.js"></script>
</body></html>
"""
START = """window.ui = SwaggerUIBundle({
  url: "/docs/openapi.json", dom_id: "#swagger-ui", deepLinking: true, validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis], layout: "BaseLayout", defaultModelsExpandDepth: 0,
});
"""


def install(app: FastAPI) -> None:
    """Add the pages to an application."""
    headers = {"Content-Security-Policy": PAGE_POLICY}

    @app.get("/docs", include_in_schema=False)
    def documentation() -> HTMLResponse:
        return HTMLResponse(DOCS, headers=headers)

    @app.get("/docs/start.js", include_in_schema=False)
    def start() -> Response:
        return Response(START, media_type="text/javascript", headers=headers)

    @app.get("/docs/openapi.json", include_in_schema=False)
    def document() -> JSONResponse:
        return JSONResponse(as_openapi_3_0(app.openapi()))

    app.mount("/docs/assets", StaticFiles(directory=_swagger_folder()), name="swagger")


@lru_cache(maxsize=1)
def _swagger_folder() -> Path:
    """The newest Swagger UI that the package swagger_ui_bundle carries."""
    vendored = Path(str(resources.files("swagger_ui_bundle") / "vendor"))
    return max(vendored.glob("swagger-ui-*"), key=lambda folder: folder.name)


def as_openapi_3_0(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document as the bundled page reads it, which knows OpenAPI up to 3.0."""
    older: dict[str, Any] = _older(copy.deepcopy(dict(document)))
    older["openapi"] = "3.0.3"
    return older


def _older(node: Any) -> Any:
    if isinstance(node, list):
        return [_older(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: _older(value) for key, value in node.items()}
    choices = node.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices:
        rest = [choice for choice in choices if choice != {"type": "null"}]
        node.pop("anyOf")
        node |= {"nullable": True, **({"allOf": rest} if len(rest) == 1 and "$ref" in rest[0] else {})}
        if "allOf" not in node:
            node |= rest[0] if len(rest) == 1 else {"anyOf": rest}
    if "const" in node:
        node["enum"] = [node.pop("const")]
    for bound, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(node.get(bound), int | float) and not isinstance(node.get(bound), bool):
            node[plain], node[bound] = node[bound], True
    if isinstance(node.get("examples"), list) and "type" in node:
        node["example"] = node.pop("examples")[0]
    return node
