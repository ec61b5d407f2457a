"""Some images of a store as a person looks at them: small, upright and whole, and many of them on one sheet.

Needs no torch, and holds one image at a time in full: what stays in memory is the small ones.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from curate.errors import Misuse
from curate.types import Floats, Ints
from shards import stream
from shards.indexing.index import Index
from shards.io.atomic import write_bytes
from shards.io.images import ImageError, decode

#: Colours of a sheet: the page, its letters, and a tile in the place of what does not decode.
PAGE, INK, GREY = (255, 255, 255), (40, 40, 40), (190, 190, 190)
#: Pixels between two tiles, and the height of a line of letters.
_GAP, _LINE = 6, 16
#: Tiles of a sheet; what stands in memory is so many small images.
MOST = 10_000


def contact_sheet(
    path: Path,
    index: Index,
    rows: Ints,
    scores: Floats | None = None,
    *,
    title: str = "",
    columns: int = 10,
    side: int = 96,
) -> None:
    """Draw images of a store on a grid, from left to right in the order given, and publish it as a PNG.

    An image is fitted into its tile, its shape kept; one that does not decode is a grey tile. The same images give the
    same bytes.

    Args:
        path: of the PNG.
        rows: shape (m,), int64, rows of ``index``.
        scores: shape (m,), shown below each tile with two decimals; None for none.
        title: a line above them.
        columns: tiles beside one another.
        side: of a tile, in pixels.

    Raises:
        Misuse: no row, more than `MOST`, or as many scores as there are no rows.
        ShardsChanged: a shard is gone, or shorter than its index says.
    """
    if not 0 < len(rows) <= MOST or (scores is not None and len(scores) != len(rows)):
        found = f"{len(rows)} rows" + ("" if scores is None else f", {len(scores)} scores")
        raise Misuse(f"contact sheet {path}: {found}; expected 1 to {MOST:,} rows, and a score each or none")
    columns = min(columns, len(rows))
    top = _GAP + (_LINE + _GAP if title else 0)
    step = side + _GAP, side + _GAP + (0 if scores is None else _LINE)
    lines = -(-len(rows) // columns)
    sheet = Image.new("RGB", (columns * step[0] + _GAP, top + lines * step[1]), PAGE)
    pen = ImageDraw.Draw(sheet)
    pen.text((_GAP, _GAP), title, INK, ImageFont.load_default(_LINE - 3))
    for place, picture in enumerate(small_images(index, rows, side)):
        left, above = _GAP + place % columns * step[0], top + place // columns * step[1]
        put(sheet, picture or Image.new("RGB", (side, side), GREY), left, above, side)
        if scores is not None:
            middle = left + side // 2, above + side
            pen.text(middle, f"{scores[place]:.2f}", INK, ImageFont.load_default(_LINE - 4), anchor="ma")
    file = io.BytesIO()
    sheet.save(file, "PNG")
    write_bytes(path, file.getvalue())


def small_images(index: Index, rows: Ints, side: int) -> list[Image.Image | None]:
    """The images of some rows, upright, no side longer than ``side`` px; None where an image does not decode.

    Args:
        rows: shape (m,), int64, in any order, each perhaps several times.

    Returns:
        m images of mode ``L`` or ``RGB`` in the order of ``rows``; one that is small already is as it was.

    Raises:
        ShardsChanged: a shard is gone, or shorter than its index says.
    """
    once, places = np.unique(rows, return_inverse=True)  # rising: a shard that cannot seek is read through once
    found = [small(body, side) for body in stream.images(index, once)]
    return [found[place] for place in places.tolist()]


def spread(ranked: Ints, count: int) -> Ints:
    """``count`` of these rows, or all there are, evenly over their rank, the first and the last among them.

    >>> spread(np.arange(100), 4).tolist(), spread(np.arange(2), 4).tolist()
    ([0, 33, 66, 99], [0, 1])
    """
    if len(ranked) <= count:
        return ranked
    return np.asarray(ranked[np.linspace(0, len(ranked) - 1, count).astype(np.int64)])


def small(body: bytes, side: int) -> Image.Image | None:
    try:
        picture = decode(body)
    except ImageError:
        return None
    if max(picture.size) > side:
        scale = side / max(picture.size)
        width, height = (max(1, round(length * scale)) for length in picture.size)
        picture = picture.resize((width, height), Image.Resampling.LANCZOS)
    return picture


def put(sheet: Image.Image, picture: Image.Image, left: int, above: int, side: int) -> None:
    """Paste into the middle of a tile; a tiny image is enlarged by a whole factor, so that it stays sharp."""
    factor = max(1, side // max(picture.size))
    if factor > 1:
        picture = picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
    sheet.paste(picture, (left + (side - picture.width) // 2, above + (side - picture.height) // 2))
