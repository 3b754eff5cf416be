"""The REST API under /api/v1. `create_app(settings)` makes it, `python -m flash_grpo_studio.app.api` serves it."""

from flash_grpo_studio.app.api.application import create_app
from flash_grpo_studio.app.api.serve import serve

__all__ = ["create_app", "serve"]
