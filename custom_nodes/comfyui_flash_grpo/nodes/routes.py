"""What ComfyUI's page asks of this pack, and what the pack tells it while a node runs."""

from __future__ import annotations

import asyncio

from aiohttp import web
from server import PromptServer

from ..logic.problem import Problem
from . import checkpoints


@PromptServer.instance.routes.post("/flash_grpo/refresh")
async def refresh(request: web.Request) -> web.Response:
    """Look for checkpoints now; the page then reads the lists again."""
    del request
    try:
        return web.json_response({"text": await asyncio.to_thread(checkpoints.look)})
    except Problem as problem:
        return web.json_response({"problem": str(problem)})


def tell_progress(node: str | None, text: str, done: int, total: int) -> None:
    """Show on a node how far it is; `total` is 0 if nobody knows."""
    server = PromptServer.instance
    about = {"node": node, "text": text, "done": done, "total": total}
    server.send_sync("flash_grpo.progress", about, server.client_id)
