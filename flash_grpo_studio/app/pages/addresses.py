"""Which pages there are, and where. Imports no Gradio."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

WEB = Path(__file__).parent.parent / "web"


@dataclass(frozen=True)
class Page:
    """A page: its name (also of its script, page_NAME.js), its address, and the element that fills it.

    first: what its script asks the API for at the beginning, so that the browser asks while the script still loads;
    ID stands for the `id` of the page's address.
    """

    name: str
    address: str
    element: str
    first: tuple[str, ...] = ()


_RUNNING = "state=running&state=starting&state=pausing&state=cancelling"
_FOR_NEW = (
    *("/presets", "/models", "/base-models", "/rewards", "/choices", "/schema"),
    *("/prompt-sets?limit=500", "/workers", "/price"),
)
PAGES = (
    Page("home", "/", "fg-home", (f"/jobs?{_RUNNING}&sort=-created&limit=6", "/workers", "/leases")),
    Page("new", "/new", "fg-new-run", _FOR_NEW),
    Page("runs", "/runs", "fg-runs"),
    Page("run", "/run", "fg-run", ("/jobs/ID", "/jobs/ID/metrics?points=500")),
    Page("compare", "/compare", "fg-compare", ("/sides",)),
    Page("vote", "/vote", "fg-vote", ("/sides",)),
    Page("library", "/library", "fg-library"),
    Page("machines", "/machines", "fg-machines", ("/workers?gone=false", "/leases", "/me")),
    Page("settings", "/settings", "fg-settings", ("/me", "/tokens")),
    Page("help", "/help", "fg-help", ("/rewards",)),
    Page("example", "/example", "fg-example"),
)
ADDRESSES = {page.address for page in PAGES}
