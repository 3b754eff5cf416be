"""The Gradio app: one route per page. Runs no code on the server.

What the studio itself shows stands in the document already (pages/document.py); Gradio's own components, which a
route's Blocks may hold, come below it.
"""

from __future__ import annotations

import gradio as gr
from fastapi import FastAPI

from flash_grpo_studio.app.pages.addresses import PAGES


def _content() -> None:
    gr.Navbar(visible=False)  # ours has real links, words in two languages, and the place of the menu on a phone


def build_pages() -> gr.Blocks:
    """All pages; no event, and so no callable of Gradio's own API, is behind any of them."""
    _, *others = PAGES
    with gr.Blocks(title="Flash-GRPO Studio", analytics_enabled=False) as blocks:
        _content()
    for page in others:
        with blocks.route(page.name, page.address):
            _content()
    return blocks


def gradio_app() -> FastAPI:
    """The pages as an application of their own, to be mounted at the root."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    mounted: FastAPI = gr.mount_gradio_app(
        app,
        build_pages(),
        path="/",
        footer_links=[],
        run_history=False,
        enable_monitoring=False,
        show_error=False,
        max_file_size=1,
        ssr_mode=False,
        mcp_server=False,
        pwa=False,
    )
    return mounted
