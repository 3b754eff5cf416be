"""Serve the API as the FLASH_GRPO_* variables say."""

from __future__ import annotations

import sys

from flash_grpo.errors import InputError
from flash_grpo_studio.app.api.serve import serve
from flash_grpo_studio.app.settings import read_settings

if __name__ == "__main__":
    try:
        serve(read_settings())
    except InputError as error:
        print(f"flash-grpo: {error}", file=sys.stderr)
        sys.exit(2)
