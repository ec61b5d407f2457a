"""JPEG by simplejpeg (libjpeg-turbo), decoded at a half or a quarter of its size where that is large enough.

Only what is plain is decoded here: gray or colour, whole, not too large. All else is left to `shards.io.images`, so
that what decodes and what is at fault does not depend on the decoder; the pixels do.
"""

from __future__ import annotations

import importlib.metadata

from PIL import Image

from curate.errors import CurateError
from shards.io.images import MAX_PIXELS, turn_upright

#: Sizes at which a JPEG is decoded: its own, a half, a quarter; the smallest that is wanted at least.
_FACTORS = (4, 2)
_COLOURS = ("Gray", "YCbCr", "RGB")
#: What metadata that tells how an image is to be turned holds somewhere.
_TURNS = (b"Exif\0\0", b"tiff:Orientation")


def available() -> str:
    """The version of simplejpeg.

    Raises:
        CurateError: it is not installed.
    """
    try:
        import simplejpeg  # noqa: F401  (a package without its library fails here)

        return importlib.metadata.version("simplejpeg")
    except ImportError as error:
        raise CurateError(
            f"--decoder simplejpeg: cannot be loaded ({error}); pip install 'curate-bdw[jpeg]', or leave it out"
        ) from error


def decode_jpeg(data: bytes, size: int, colour: str) -> Image.Image | None:
    """Decode a JPEG to at least ``size`` pixels on its shorter side; None for what is not plain.

    Args:
        data: the bytes of an image file of any format.
        size: the wanted length of the shorter side; smaller images keep theirs.
        colour: "grey" takes the luma alone, "rgb" the colours, where there are any.

    Returns:
        Upright, of mode L or RGB.
    """
    if not data.startswith(b"\xff\xd8\xff"):
        return None
    import simplejpeg

    try:
        height, width, stored, _ = simplejpeg.decode_jpeg_header(data)
        if stored not in _COLOURS or height * width > MAX_PIXELS:
            return None
        factor = next((factor for factor in _FACTORS if min(height, width) >= factor * size), 1)
        wanted = "GRAY" if colour == "grey" or stored == "Gray" else "RGB"
        pixels = simplejpeg.decode_jpeg(data, wanted, min_height=-(-height // factor), min_width=-(-width // factor))
    except ValueError:
        return None
    picture = Image.fromarray(pixels[:, :, 0] if wanted == "GRAY" else pixels)
    return turn_upright(picture, data) if any(mark in data for mark in _TURNS) else picture
