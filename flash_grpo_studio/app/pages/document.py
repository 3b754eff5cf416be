"""A page's document: Gradio's own, with the studio's frame and the page's element in it from the first byte on.

Gradio builds what it shows by scripts of its own, some thirty of them, before which nothing would be seen. So what a
person waits for does not wait for them: `studio.js` begins Gradio when the page's own content stands.
"""

from __future__ import annotations

import re
from html import escape

from flash_grpo_studio.app.pages.addresses import Page
from flash_grpo_studio.app.pages.assets import Assets
from flash_grpo_studio.app.pages.head import head

_BEGIN = re.compile(r'<script type="module" crossorigin src="(\./assets/[\w./-]+\.js)"></script>')
_BODY = re.compile(r"<body[^>]*>")


def document(gradio: str, page: Page, assets: Assets) -> str:
    """Gradio's document of a page with ours in it."""
    name = escape(page.name, quote=True)
    frame = (
        f'<fg-shell page="{name}"><header class="fg-header">'
        '<a class="fg-brand" href="/">Flash-GRPO <span>Studio</span></a></header></fg-shell>'
        f'<div class="fg-page" id="fg-main" tabindex="-1"><{page.element}></{page.element}></div>'
    )
    ours = head(assets, ("studio.js", f"page_{name}.js"), page.first)
    later = _BEGIN.sub(r'<script type="text/plain" id="fg-gradio" data-src="\1"></script>', gradio, count=1)
    later = later.replace('control_page_title="true"', 'control_page_title="false"', 1)
    # First of all, as a script in the head waits for the styles above it.
    begun = later.replace("<head>", f"<head><title>Flash-GRPO Studio</title>{ours}", 1)
    return _BODY.sub(lambda body: body[0] + frame, begun, count=1)
