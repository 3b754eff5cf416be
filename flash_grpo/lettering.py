"""Words in pictures: a font that has a text's letters, and lines that fit. Imports no torch."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import ImageFont

_FANCY = re.compile(r"bold|italic|oblique|mono|serif|condensed|light|black|thin", re.IGNORECASE)
ELLIPSIS = " …"


def one_line(text: str) -> str:
    """A text on one line, without signs that steer a terminal or turn the direction of writing."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())


def font_for(text: str, size: int) -> ImageFont.FreeTypeFont:
    """The font that matplotlib ships, the same on every machine; where it lacks letters of the text, one that has them.

    A letter that no font of this machine has is drawn as a box.
    """
    from PIL import ImageFont

    return ImageFont.truetype(_file_for(frozenset(sign for sign in text if ord(sign) > 0x7E)), size)


@lru_cache(maxsize=256)
def _file_for(letters: frozenset[str]) -> str:
    import matplotlib
    from matplotlib.font_manager import findSystemFonts

    best = str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf")
    fewest = _lacking(best, letters)
    if not fewest:
        return best
    plain_first = sorted(findSystemFonts(), key=lambda path: (bool(_FANCY.search(Path(path).name)), path))
    for path in plain_first:
        lacking = _lacking(path, letters)
        if lacking < fewest:
            best, fewest = path, lacking
        if not fewest:
            break
    return best


def _lacking(path: str, letters: frozenset[str]) -> int:
    """How many of the letters a font has not; all, if it cannot be drawn at any size."""
    from matplotlib.ft2font import FT2Font
    from PIL import ImageFont

    try:
        ImageFont.truetype(path, 16)  # a font of pictures alone opens below, but draws at one size only
        font = FT2Font(path)
        return sum(not font.get_char_index(ord(letter)) for letter in letters)
    except (OSError, RuntimeError, ValueError):
        return len(letters)


def wrapped(text: str, width: int, most: int, font: ImageFont.FreeTypeFont) -> list[str]:
    """`text` in at most `most` lines no wider than `width` pixels, cut with an ellipsis where it must be."""
    lines: list[str] = []
    rest = text
    while rest and len(lines) < most:
        last = len(lines) == most - 1
        if font.getlength(rest) <= width:
            return [*lines, rest]
        room = width - font.getlength(ELLIPSIS) if last else width
        # Measured on beginnings of growing length; longer ones than any line are not looked at.
        counts = range(1, min(len(rest), 4 * width) + 1)
        fitting = max(1, bisect_right(counts, room, key=lambda count, text=rest: font.getlength(text[:count])))
        cut = rest.rfind(" ", 1, fitting + 1)
        cut = cut if cut > 0 else fitting
        lines.append(rest[:cut].rstrip() + (ELLIPSIS if last else ""))
        rest = rest[cut:].lstrip()
    return lines
