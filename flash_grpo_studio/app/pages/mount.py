"""Serving the pages: static files at once, Gradio as soon as it is loaded, which takes seconds nobody waits for."""

from __future__ import annotations

import logging
import threading

from fastapi import FastAPI
from starlette.responses import HTMLResponse, JSONResponse
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from flash_grpo_studio.app.pages.addresses import ADDRESSES, WEB
from flash_grpo_studio.app.pages.head import own_page

log = logging.getLogger("flash_grpo_studio.pages")
LOAD_AFTER_SECONDS = 0.5
"""The API answers first: its start would take twice as long beside the import."""
STARTING = own_page(
    "Flash-GRPO Studio",
    """<div class="fg-page fg-empty" role="status"><h1>Flash-GRPO Studio</h1>
<p>The pages are being loaded. 正在加载页面。</p></div>""",
    '<meta http-equiv="refresh" content="1">',
)
MISSING = own_page(
    "No such page · Flash-GRPO Studio",
    """<fg-shell page=""></fg-shell><div class="fg-page" id="fg-main" tabindex="-1"><fg-missing>
<h1>No such page · 没有此页面</h1><p><a href="/">Home · 首页</a> &nbsp; <a href="/runs">Runs · 训练列表</a></p>
</fg-missing></div>""",
    '<script type="module" src="/web/page_missing.js"></script>',
)
FAILED = own_page(
    "Flash-GRPO Studio",
    """<div class="fg-page fg-empty" role="alert"><h1>The pages cannot be loaded · 无法加载页面</h1>
<p>The server's log says why; the API and the runs go on. 原因见服务器日志；API 和训练不受影响。</p></div>""",
)


class Pages:
    """ASGI application of all pages."""

    def __init__(self) -> None:
        self._inner: ASGIApp | None = None
        self._failed = False
        loading = threading.Timer(LOAD_AFTER_SECONDS, self._load)
        loading.daemon = True
        loading.start()

    @property
    def ready(self) -> bool:
        """Whether Gradio is loaded."""
        return self._inner is not None

    def _load(self) -> None:
        try:
            from flash_grpo_studio.app.pages.shell import gradio_app

            self._inner = gradio_app()
        except Exception:  # whatever it is, the API goes on, and every page says that the log has the reason
            self._failed = True
            log.exception("the pages cannot be loaded")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        if scope["path"].startswith("/api/"):
            said = f"the API has no {scope['method']} {scope['path']}; /docs lists what it has"
            await JSONResponse({"error": {"code": "not_found", "message": said}}, 404)(scope, receive, send)
            return
        path = scope["path"].rstrip("/") or "/"
        page = path in ADDRESSES
        if self._inner is not None and (page or not _is_page_request(scope)):
            await self._inner(scope, receive, send)
        elif not page and _is_page_request(scope):
            await HTMLResponse(MISSING, 404)(scope, receive, send)
        elif self._failed:
            await HTMLResponse(FAILED, 500)(scope, receive, send)
        else:
            await HTMLResponse(STARTING, 503, {"Retry-After": "1"})(scope, receive, send)


def _is_page_request(scope: Scope) -> bool:
    """Whether a person's browser asks for a page, not for one of Gradio's own files."""
    accepted = dict(scope["headers"]).get(b"accept", b"")
    return scope["method"] in ("GET", "HEAD") and b"text/html" in accepted


def mount_pages(app: FastAPI) -> None:
    """Add the pages below all routes the application already has."""
    app.mount("/web", StaticFiles(directory=WEB), name="web")
    app.mount("/", Pages(), name="pages")
