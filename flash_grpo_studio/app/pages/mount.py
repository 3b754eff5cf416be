"""Serving the pages: static files at once, Gradio as soon as it is loaded, which takes seconds nobody waits for."""

from __future__ import annotations

import logging
import threading

from fastapi import FastAPI
from starlette.responses import HTMLResponse, JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flash_grpo_studio.app.pages.addresses import PAGES, WEB, Page
from flash_grpo_studio.app.pages.assets import Assets
from flash_grpo_studio.app.pages.document import document
from flash_grpo_studio.app.pages.head import own_page

log = logging.getLogger("flash_grpo_studio.pages")
LOAD_AFTER_SECONDS = 0.5
"""The API answers first: its start would take twice as long beside the import."""
_ADDRESSED = {page.address: page for page in PAGES}
_STARTING = """<div class="fg-page fg-empty" role="status"><h1>Flash-GRPO Studio</h1>
<p>The pages are being loaded. 正在加载页面。</p></div>"""
_MISSING = """<fg-shell page=""></fg-shell><div class="fg-page" id="fg-main" tabindex="-1"><fg-missing>
<h1>No such page · 没有此页面</h1><p><a href="/">Home · 首页</a> &nbsp; <a href="/runs">Runs · 训练列表</a></p>
</fg-missing></div>"""
_AGAIN = '<meta http-equiv="refresh" content="1">'
_FAILED = """<div class="fg-page fg-empty" role="alert"><h1>The pages cannot be loaded · 无法加载页面</h1>
<p>The server's log says why; the API and the runs go on. 原因见服务器日志；API 和训练不受影响。</p></div>"""


class Pages:
    """ASGI application of all pages."""

    def __init__(self, assets: Assets) -> None:
        self.assets = assets
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
        asked, inner = _is_page_request(scope), self._inner
        page = _ADDRESSED.get(scope["path"].rstrip("/") or "/")
        if asked:
            self.assets.refresh()
        if inner is not None and page is not None and asked:
            await self._send_page(inner, page, scope, receive, send)
        elif inner is not None and not asked:
            await inner(scope, receive, send)
        elif page is None and asked:
            title = "No such page · Flash-GRPO Studio"
            text = own_page(self.assets, title, _MISSING, scripts=["page_missing.js"])
            await HTMLResponse(text, 404)(scope, receive, send)
        elif self._failed:
            text = own_page(self.assets, "Flash-GRPO Studio", _FAILED)
            await HTMLResponse(text, 500)(scope, receive, send)
        else:
            text = own_page(self.assets, "Flash-GRPO Studio", _STARTING, _AGAIN)
            await HTMLResponse(text, 503, {"Retry-After": "1"})(scope, receive, send)

    async def _send_page(self, inner: ASGIApp, page: Page, scope: Scope, receive: Receive, send: Send) -> None:
        """Gradio's document of a page with the studio's frame in it."""
        messages: list[Message] = []

        async def keep(message: Message) -> None:
            messages.append(message)

        await inner(scope, receive, keep)
        if messages[0]["status"] != 200:
            for message in messages:
                await send(message)
            return
        gradio = b"".join(message.get("body", b"") for message in messages)
        text = document(gradio.decode("utf-8"), page, self.assets)
        await HTMLResponse(text, headers={"Cache-Control": "no-cache"})(scope, receive, send)


def _is_page_request(scope: Scope) -> bool:
    """Whether a person's browser asks for a page, not for one of Gradio's own files."""
    accepted = dict(scope["headers"]).get(b"accept", b"")
    return scope["method"] in ("GET", "HEAD") and b"text/html" in accepted


def mount_pages(app: FastAPI) -> None:
    """Add the pages below all routes the application already has."""
    assets = Assets(WEB)
    app.add_route("/web/{path:path}", assets.serve, include_in_schema=False)
    app.mount("/", Pages(assets), name="pages")
