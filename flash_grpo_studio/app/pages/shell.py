"""The Gradio app: one route per page, each with the studio's frame and its own element. Runs no code on the server."""

from __future__ import annotations

from html import escape

import gradio as gr
from fastapi import FastAPI

from flash_grpo_studio.app.pages.addresses import PAGES, Page
from flash_grpo_studio.app.pages.head import HEAD

# The modules load beside Gradio's own.
MODULES = '<script type="module" src="/web/studio.js"></script>'


def _content(page: Page) -> None:
    """The frame with navigation and banners, and the element that fills the page.

    No subclass of gr.HTML: at the definition of one Gradio writes a stub file beside the module.
    """
    gr.Navbar(visible=False)  # ours has real links, words in two languages, and the place of the menu on a phone
    name = escape(page.name, quote=True)
    gr.HTML(
        f'<fg-shell page="{name}"></fg-shell>'
        f'<div class="fg-page" id="fg-main" tabindex="-1"><{page.element}></{page.element}></div>',
        js_on_load=None,
        apply_default_css=False,
    )


def build_pages() -> gr.Blocks:
    """All pages; no event, and so no callable of Gradio's own API, is behind any of them."""
    first, *others = PAGES
    with gr.Blocks(title="Flash-GRPO Studio", analytics_enabled=False) as blocks:
        _content(first)
    for page in others:
        with blocks.route(page.name, page.address):
            _content(page)
    return blocks


def gradio_app() -> FastAPI:
    """The pages as an application of their own, to be mounted at the root."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    mounted: FastAPI = gr.mount_gradio_app(
        app,
        build_pages(),
        path="/",
        head=HEAD + MODULES,
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
