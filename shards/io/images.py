"""Decodes image files to upright 8-bit gray or RGB with Pillow, and encodes PNG. A damaged image is refused whole.

The format is recognised by content, not by name; of several frames the first counts; EXIF orientation is applied;
transparent pixels are laid on `BACKGROUND`; deeper gray is scaled to 8 bits; CMYK, palettes and other colours become
RGB. Resizing and batching are `curate.data.decode`'s.
"""

from __future__ import annotations

import io
import struct
import threading
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache

import numpy as np
from PIL import Image, UnidentifiedImageError

from shards.arrays import UInt8Array

#: What shows through transparent pixels: white, as on a page.
BACKGROUND = 255
#: Pixels of one image, the number from which Pillow warns of decompression bombs.
MAX_PIXELS = 89_478_485

# Formats that stores hold. Named one by one, because Pillow's list has some that run other programs (EPS) or have no
# magic bytes and so take anything (TGA).
_FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "DIB", "PPM", "AVIF", "HEIF", "JPEG2000")
_MAGICS = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF8": "GIF",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"BM": "BMP",
    b"\0\0\0\x0cjP  ": "JPEG 2000",
    b"\xffO\xffQ": "JPEG 2000",
    b"8BPS": "Photoshop",
    b"\xff\x0a": "JPEG XL",
}
#: Brands of HEIC's files.
_HEIF = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
#: EXIF orientation -> the transposition that sets the image upright.
_TRANSPOSE_OF_ORIENTATION = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ORIENTATION, _BITS_PER_SAMPLE = 0x0112, 0x0102
# What Pillow's readers are known to raise on bytes that are not as they should be.
_DECODER_ERRORS = (
    OSError,
    EOFError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
    struct.error,
    zlib.error,
)


class ImageError(Exception):
    """An image cannot be used.

    Args:
        kind: ``empty-member``, ``not-an-image``, ``truncated-image``, ``image-too-large`` or ``unsupported-image``.
        detail: why, for people.
    """

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail = kind, detail


def decode(data: bytes, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode an image to mode ``L`` or ``RGB``.

    Args:
        data: the bytes of an image file.
        max_pixels: limit of width times height; above it nothing is allocated.

    Raises:
        ImageError: empty, no image, truncated or damaged, too large, or of an unsupported kind.
    """
    if not data:
        raise ImageError("empty-member", "0 bytes")
    if data[12:16] == b"CgBI":
        # It would open, with wrong colours.
        raise ImageError("unsupported-image", "Apple's CgBI variant of PNG")
    with _warnings_silenced():
        image = _opened(data)
        if image.width * image.height > max_pixels:
            raise ImageError("image-too-large", f"{image.width} x {image.height} px, at most {max_pixels} px are read")
        _load(image)
        upright = _upright(image)
        try:
            return _to_gray_or_rgb(upright)
        except (ValueError, OSError) as error:
            raise ImageError("unsupported-image", f"{image.format} of mode {image.mode}: {error}") from error


def _opened(data: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(data), formats=_formats())
    except Image.DecompressionBombError as error:
        raise ImageError("image-too-large", str(error)) from error
    except UnidentifiedImageError as error:
        raise _unidentified(data) from error
    except _DECODER_ERRORS as error:
        raise _damaged(error) from error


@cache
def _formats() -> tuple[str, ...]:
    """Those of the formats that this build of Pillow has, or that the extra `heif` adds to it."""
    Image.init()
    with suppress(ImportError):
        import pillow_heif

        pillow_heif.register_heif_opener()
    return tuple(name for name in _FORMATS if name in Image.OPEN)


def _load(image: Image.Image) -> None:
    try:
        image.load()
    except Image.DecompressionBombError as error:
        raise ImageError("image-too-large", str(error)) from error
    except _DECODER_ERRORS as error:
        raise _damaged(error) from error


def _damaged(error: BaseException) -> ImageError:
    text = f"{type(error).__name__}: {str(error)[:120]}"
    if "Decompressed data too large" in text or isinstance(error, MemoryError):
        return ImageError("image-too-large", text)
    if isinstance(error, NotImplementedError) or "not available" in text:
        return ImageError("unsupported-image", text)
    return ImageError("truncated-image", f"cut or damaged ({text})")


def _unidentified(data: bytes) -> ImageError:
    """Tell damaged images, and images of formats that are not read, from other files."""
    known = next((name for magic, name in _MAGICS.items() if data.startswith(magic)), None)
    if known in ("JPEG", "PNG", "GIF", "TIFF", "BMP"):
        return ImageError("truncated-image", f"cut or damaged {known} of {len(data)} bytes")
    if known is None and data[4:8] == b"ftyp":
        if data[8:12] in _HEIF and "HEIF" in _formats():
            return ImageError("truncated-image", f"cut or damaged HEIC of {len(data)} bytes")
        known = f"ISO media of brand {data[8:12].decode('ascii', 'replace')}"
        if data[8:12] in _HEIF:
            return ImageError("unsupported-image", f"{known} is read where pillow-heif is installed (the extra heif)")
    if known is None and data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return ImageError("truncated-image", f"cut or damaged WebP of {len(data)} bytes")
    if known is not None:
        return ImageError("unsupported-image", f"{known} is not read here")
    markup = data[:256].lstrip().lower().startswith((b"<!doctype html", b"<html"))
    return ImageError("not-an-image", f"not an image ({'text/html' if markup else 'unknown bytes'})")


def turn_upright(picture: Image.Image, data: bytes) -> Image.Image:
    """A picture whose pixels another decoder took from ``data``, turned as the metadata there says."""
    with _warnings_silenced():
        turn = _turn(_opened(data))
    return picture if turn is None else picture.transpose(turn)


def _upright(image: Image.Image) -> Image.Image:
    turn = _turn(image)
    return image if turn is None else image.transpose(turn)


def _turn(image: Image.Image) -> Image.Transpose | None:
    """The transposition that sets an image upright."""
    try:
        orientation = image.getexif().get(_ORIENTATION)
    except _DECODER_ERRORS:
        # The pixels are whole; only the camera's metadata is damaged.
        orientation = None
    return _TRANSPOSE_OF_ORIENTATION.get(orientation) if isinstance(orientation, int) else None


def _to_gray_or_rgb(image: Image.Image) -> Image.Image:
    """To ``L`` or ``RGB``, by the rules that the module states."""
    if image.mode.startswith("I"):
        return _to_8_bits(image)
    if image.mode == "F":
        raise ValueError("the range of floating-point pixels is not known")
    if image.has_transparency_data:
        gray = image.mode in ("L", "LA", "La", "1")
        with_alpha = image.convert("LA" if gray else "RGBA")
        page = Image.new("L" if gray else "RGB", image.size, BACKGROUND if gray else (BACKGROUND,) * 3)
        page.paste(with_alpha.convert(page.mode), mask=with_alpha.getchannel("A"))
        return page
    return image.convert("L" if image.mode in ("L", "1") else "RGB")


def _to_8_bits(image: Image.Image) -> Image.Image:
    deep = np.asarray(image).astype(np.uint32)
    n_bits = _bits(image)
    if deep.size and int(deep.max()) >= 1 << n_bits:
        raise ValueError(f"values above {n_bits} bits")
    top = (1 << n_bits) - 1
    return Image.fromarray(((deep * 255 + top // 2) // top).astype(np.uint8))


def _bits(image: Image.Image) -> int:
    """Bits of one gray value: 16, or fewer where a TIFF says so."""
    tags = getattr(image, "tag_v2", None) or {}
    bits = tags.get(_BITS_PER_SAMPLE, (16,))
    return min(int(bits[0]), 16)


_lock = threading.Lock()
_n_quiet = 0
_filters: warnings.catch_warnings[None] | None = None


@contextmanager
def _warnings_silenced() -> Iterator[None]:
    """Silence Pillow's warnings while any thread decodes: what they say is either refused here or does not matter.

    Filters belong to the process and not to a thread, so the first thread sets them and the last one restores them.
    """
    global _n_quiet, _filters
    with _lock:
        _n_quiet += 1
        if _filters is None:
            _filters = warnings.catch_warnings()
            _filters.__enter__()
            warnings.filterwarnings("ignore", module=r"PIL\.")
    try:
        yield
    finally:
        with _lock:
            _n_quiet -= 1
            if _n_quiet == 0 and _filters is not None:
                _filters.__exit__(None, None, None)
                _filters = None


def encode_png(pixels: UInt8Array, compress_level: int = 1) -> bytes:
    """A PNG of the pixels; equal pixels give equal bytes with one build of Pillow.

    Args:
        pixels: shape (height, width) for gray or (height, width, 3) for RGB, uint8.
        compress_level: zlib's, 0 to 9. Photographs of 96 x 96 px take 1.3 ms at 1 and 3.6 ms at zlib's default 6, and
            no more bytes.
    """
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", compress_level=compress_level)
    return file.getvalue()
