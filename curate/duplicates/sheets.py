"""Contact sheets of duplicates: a line a group, who stays on its left; or a line a pair, side by side."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from curate.data.contact_sheet import GREY, INK, PAGE, put
from shards.io.atomic import write_bytes

#: An image, None where it does not decode, and what stands below it.
Tile = tuple[Image.Image | None, str]
SIDE, GAP, LINE = 96, 6, 14
#: Letters that fit below a tile.
LETTERS = 20


def lines_sheet(path: Path, lines: Sequence[Sequence[Tile]], title: str) -> None:
    """Draw lines of captioned images below a title, and publish them as a PNG; the same images give the same bytes."""
    widest = max(max(map(len, lines), default=1), 4)
    step, height = SIDE + GAP, SIDE + GAP + LINE
    top = 2 * GAP + LINE
    sheet = Image.new("RGB", (widest * step + GAP, top + len(lines) * height + GAP), PAGE)
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(LINE - 4)
    pen.text((GAP, GAP), title, INK, ImageFont.load_default(LINE - 2))
    for row, line in enumerate(lines):
        for column, (picture, caption) in enumerate(line):
            left, above = GAP + column * step, top + row * height
            put(sheet, picture or Image.new("RGB", (SIDE, SIDE), GREY), left, above, SIDE)
            pen.text((left + SIDE // 2, above + SIDE), _short(caption), INK, font, anchor="ma")
    file = io.BytesIO()
    sheet.save(file, "PNG")
    write_bytes(path, file.getvalue())


def brief(reason: str) -> str:
    """A reason in the letters that fit.

    >>> brief("4 of 64 bits differ, mirrored"), brief("the same bytes"), brief("features 0.03 apart")
    ('4 bits, mirror', 'same bytes', '0.03 apart')
    """
    return (
        reason.replace(" of 64 bits differ", " bits")
        .replace("mirrored", "mirror")
        .removeprefix("the ")
        .removeprefix("features ")
    )


def _short(caption: str) -> str:
    """The end of a key tells more than its beginning."""
    printable = "".join(letter if letter.isprintable() else "?" for letter in caption)
    return printable if len(printable) <= LETTERS else "..." + printable[3 - LETTERS :]
