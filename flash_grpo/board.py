"""The picture of a composition: where its videos play, and the labels and captions around them. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw

from flash_grpo.lettering import font_for, one_line, wrapped
from flash_grpo.pairs import Pair
from flash_grpo.report import INK, MUTED, PAPER, VALIDATION, caption_lines
from flash_grpo.video import display_scale

MARGIN, GAP, BETWEEN = 16, 8, 28
TALLEST = 4096
Size = tuple[int, int]


@dataclass(frozen=True)
class Plan:
    """What a board shows: the pairs' words, two labels, and one box per pair for a wipe instead of two."""

    pairs: Sequence[Pair]
    labels: tuple[str, str]
    wipe: bool
    columns: int

    @property
    def boxes(self) -> int:
        """Boxes side by side on the whole board."""
        return self.columns * (1 if self.wipe else 2)

    def around(self) -> int:
        """Pixels of a row that are in no box."""
        return 2 * MARGIN + (self.columns - 1) * BETWEEN + (0 if self.wipe else self.columns * GAP)


def box_for(sizes: Sequence[Size], plan: Plan, widest: int, exact: bool) -> Size:
    """The size in which videos of these sizes are shown: small ones enlarged, and no board wider than `widest`.

    exact: make the board as wide as that.
    """
    width, height = (max(size[axis] for size in sizes) for axis in (0, 1))
    scale = float(display_scale(height, width))
    room = max(2, widest - plan.around()) / (plan.boxes * width)
    scale = room if exact else min(scale, room)
    rows = -(-len(plan.pairs) // plan.columns)
    scale = min(scale, TALLEST / (rows * height))
    return max(2, int(width * scale)), max(2, int(height * scale))


class Board:
    """Draws one picture after the other; `width` and `height` are even, as video files need them."""

    def __init__(self, plan: Plan, box: Size) -> None:
        self._plan, self._box = plan, box
        self._cell = box[0] if plan.wipe else 2 * box[0] + GAP
        self._size = max(13, min(26, self._cell // 32))
        font = font_for("".join(pair.caption for pair in plan.pairs) + "…→", self._size)
        captions = [caption_lines(one_line(pair.caption), pair.scores, self._cell, font) for pair in plan.pairs]
        label_height, line = round(1.7 * self._size), round(1.4 * self._size)
        lines = max(len(caption) for caption in captions)
        row = label_height + box[1] + (lines * line + line // 2 if lines else 0)
        rows = -(-len(captions) // plan.columns)
        self.width = _even(plan.around() + plan.boxes * box[0])
        self.height = _even(2 * MARGIN + rows * row + (rows - 1) * (BETWEEN // 2))
        self._still = Image.new("RGB", (self.width, self.height), PAPER)
        self._corners: list[tuple[int, int]] = []
        draw = ImageDraw.Draw(self._still)
        for number, caption in enumerate(captions):
            left = MARGIN + number % plan.columns * (self._cell + BETWEEN)
            top = MARGIN + number // plan.columns * (row + BETWEEN // 2)
            self._label(draw, left, top)
            self._corners.append((left, top + label_height))
            for place, text in enumerate(caption):
                draw.text((left, top + label_height + box[1] + line // 3 + place * line), text, MUTED, font)

    def _label(self, draw: ImageDraw.ImageDraw, left: int, top: int) -> None:
        """Both labels above a pair's boxes; above a wipe, each at the edge where its video comes out."""
        font = font_for("".join(self._plan.labels), round(1.15 * self._size))
        room = self._cell // 2 - GAP
        first, second = ("".join(wrapped(one_line(label), room, 1, font)) for label in self._plan.labels)
        right = left + self._cell - font.getlength(second) if self._plan.wipe else left + self._box[0] + GAP
        draw.text((left, top), first, INK, font)
        draw.text((right, top), second, VALIDATION, font)

    def picture(self, shown: Sequence[tuple[Image.Image, Image.Image]], boundary: float) -> Image.Image:
        """A picture with what each pair shows now, in the box's size; boundary: share of the left video in a wipe."""
        picture = self._still.copy()
        for (left, top), two in zip(self._corners, shown, strict=True):
            if self._plan.wipe:
                picture.paste(self._wiped(*two, boundary), (left, top))
            else:
                picture.paste(two[0], (left, top))
                picture.paste(two[1], (left + self._box[0] + GAP, top))
        return picture

    def _wiped(self, first: Image.Image, second: Image.Image, boundary: float) -> Image.Image:
        width, height = self._box
        place = round(boundary * width)
        wiped = second.copy()
        wiped.paste(first.crop((0, 0, place, height)), (0, 0))
        ImageDraw.Draw(wiped).rectangle((place - 2, -1, place + 1, height), PAPER, INK)
        return wiped


def _even(number: int) -> int:
    return number + number % 2
