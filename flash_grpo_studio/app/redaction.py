"""Takes passwords and tokens out of what processes wrote, before a person sees it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_SECRET = re.compile(
    r"""(?xi)
    (://[^/\s:@]+:)[^@\s/]+(?=@)                                                # a password within a URL
    | ((?:pass(?:word|wd)?|secret|token|api[_-]?key|authorization)["']?\s*[=:]\s*["']?(?:bearer\s+)?
       | \bbearer\s+)[^\s"',;&]{4,}
    | \b(hf_|fgs_|sk-|ghp_|glpat-|xox[abp]-)[A-Za-z0-9_-]{8,}                    # tokens of known make
    """
)
PIECE = 2**16


def redact(text: str) -> str:
    """The text without passwords and tokens, as far as they can be told."""

    def hide(match: re.Match[str]) -> str:
        return f"{match[1] or match[2] or match[3] or ''}***"

    return _SECRET.sub(hide, text)


def redacted_pieces(path: Path) -> Iterator[bytes]:
    """A file of text without its secrets, some lines at a time."""
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            piece += file.readline(PIECE)  # a secret must not lie on both sides of the cut
            yield redact(piece.decode("utf-8", "replace")).encode()
