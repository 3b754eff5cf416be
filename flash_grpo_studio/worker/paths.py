"""What runs say names files by their place on this machine; what users see names them within the workspace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def inside_out(root: Path, value: Any) -> Any:
    """A JSON value with the workspace's own place taken out of all its texts; `root` is the workspace's folder."""
    if isinstance(value, str):
        return value.replace(f"{root}/", "")
    if isinstance(value, Mapping):
        return {key: inside_out(root, item) for key, item in value.items()}
    if isinstance(value, list):
        return [inside_out(root, item) for item in value]
    return value
