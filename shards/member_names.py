"""How the name of a tar member splits into key and extension (webdataset's rule), and which names are safe to write."""

from __future__ import annotations

import re

_META = re.compile(r"__[^/]*__($|/)")

#: Suffixes of image files. Whether one decodes is checked elsewhere.
IMAGE_SUFFIXES = frozenset(
    ("jpg", "jpeg", "jpe", "jfif", "png", "gif", "webp", "bmp", "dib", "tif", "tiff", "ppm", "pgm", "pbm", "pnm")
    + ("avif", "heic", "heif", "jp2", "j2k", "img", "image")
)

#: Extensions under which readers keep what they say of a sample themselves: webdataset stops at the first three, drops
#: a sample with the fourth, and the fifth is ours.
RESERVED = frozenset(("__key__", "__url__", "__local_path__", "__bad__", "__row__"))


def split_name(member: str) -> tuple[str, str] | None:
    """Key and lower-cased extension of a member, as webdataset splits them; None where it has no key.

    The key ends at the first dot of the base name. Nothing that is hidden has a key, in whatever folder: webdataset
    takes "a/.x" for a member of a sample "a/", and so for one with every other hidden file there. Nor has a member
    under a reserved extension.

    >>> split_name("train.v1/0001.Left.JPG")
    ('train.v1/0001', 'left.jpg')
    """
    base = member.rfind("/") + 1
    dot = member.find(".", base)
    if dot <= base or _is_split_by_a_line_feed(member, base) or _META.match(member):
        return None
    extension = member[dot + 1 :].lower()
    return None if extension in RESERVED else (member[:dot], extension)


def is_hidden(member: str) -> bool:
    """Whether a member without a key is one that is passed over on purpose (``.x``, ``a/.x``, ``__meta__/x``)."""
    return _META.match(member) is not None or member.rpartition("/")[2].startswith(".")


def is_safe(name: str) -> bool:
    """Whether a key or member name stays inside the folder it would be unpacked to: relative, without ``..``."""
    return not name.startswith("/") and ".." not in name.split("/") and "\0" not in name


def storable(name: str) -> str:
    r"""A name as it stands in an index: itself, or, where its bytes are not UTF-8, with ``\xNN`` for those bytes.

    A backslash of such a name is doubled. Takes a name decoded with ``surrogateescape``.

    >>> storable(b"caf\xe9.jpg".decode("utf-8", "surrogateescape"))
    'caf\\xe9.jpg'
    """
    if is_utf8(name):
        return name
    return name.replace("\\", r"\\").encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def is_utf8(name: str) -> bool:
    """Whether a name decoded with ``surrogateescape`` was UTF-8."""
    return not any("\udc80" <= letter <= "\udcff" for letter in name) if not name.isascii() else True


def is_reserved(member: str) -> bool:
    """Whether a member's extension is one under which readers keep what they say of a sample themselves."""
    return member.rpartition("/")[2].partition(".")[2].lower() in RESERVED


def _is_split_by_a_line_feed(member: str, base: int) -> bool:
    """Whether a dot in a folder ends the key, so that there is none: for webdataset behind a line feed it does."""
    line_feed = member.find("\n", 0, base)
    return line_feed >= 0 and member.find(".", member.rfind("/", 0, line_feed) + 1, base) >= 0
