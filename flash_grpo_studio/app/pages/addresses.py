"""Which pages there are, and where. Imports no Gradio."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

WEB = Path(__file__).parent.parent / "web"


@dataclass(frozen=True)
class Page:
    """A page: its name (also of its script, page_NAME.js), its address, and the element that fills it."""

    name: str
    address: str
    element: str


PAGES = (
    Page("home", "/", "fg-home"),
    Page("new", "/new", "fg-new-run"),
    Page("runs", "/runs", "fg-runs"),
    Page("run", "/run", "fg-run"),
    Page("compare", "/compare", "fg-compare"),
    Page("vote", "/vote", "fg-vote"),
    Page("library", "/library", "fg-library"),
    Page("machines", "/machines", "fg-machines"),
    Page("settings", "/settings", "fg-settings"),
    Page("help", "/help", "fg-help"),
    Page("example", "/example", "fg-example"),
)
ADDRESSES = {page.address for page in PAGES}
