"""Where the studio is and by which token it is asked: from the environment or a private file, never from a workflow."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from .problem import Problem, plain

URL, TOKEN = "FLASH_GRPO_STUDIO_URL", "FLASH_GRPO_STUDIO_TOKEN"
FILE = "studio.json"


@dataclass(frozen=True)
class Access:
    """A studio's address without a slash at its end, its token (empty for one that asks for none), where both stand."""

    url: str
    token: str = field(repr=False)
    source: str


def read_access(folder: Path, environment: Mapping[str, str] = os.environ) -> Access | None:
    """The studio to use, the environment before FOLDER/studio.json; None if neither names one."""
    file = folder / FILE
    if environment.get(URL):
        return Access(_address(environment[URL], URL), environment.get(TOKEN, "").strip(), URL)
    if not file.is_file():
        return None
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        url, token = content["url"], content.get("token", "")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Problem(f'cannot read {file}; expected {{"url": "http://host:7860", "token": "..."}}') from error
    if not isinstance(url, str) or not isinstance(token, str):
        raise Problem(f"expected url and token as texts in {file}; correct them")
    return Access(_address(url, str(file)), token.strip(), str(file))


def needed(folder: Path) -> Access:
    """The studio to use; Problem saying how to name one if none is."""
    found = read_access(folder)
    if found is None:
        raise Problem(
            f"no studio is configured; set {URL} and {TOKEN} before ComfyUI starts, or write "
            f'{{"url": "http://host:7860", "token": "..."}} into {folder / FILE}'
        )
    return found


def _address(text: str, source: str) -> str:
    parts = urlsplit(text.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise Problem(f"expected a studio address such as http://host:7860 in {source}, got {plain(text, 100)}")
    return text.strip().rstrip("/")
