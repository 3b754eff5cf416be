"""Flash-GRPO for ComfyUI: load aligned video checkpoints, see before and after from one seed, score, launch jobs."""

from __future__ import annotations

from typing import Any

WEB_DIRECTORY = "./web"


async def comfy_entrypoint() -> Any:
    """What ComfyUI calls; its modules are imported here, so that the logic of this pack works without ComfyUI."""
    from .extension import FlashGrpoExtension

    return FlashGrpoExtension()
