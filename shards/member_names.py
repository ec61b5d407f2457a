"""A member's name: which key and extension it stands for, and whether a key may be written anywhere."""

from __future__ import annotations

import re

# The key ends at the first dot of the base name; a dot in a folder does not end it. A base name that begins with a dot
# lends its key from the folder ("a/.x" is key "a/"), which is what webdataset makes of it.
_SPLIT = re.compile(r"((?:.*/)?[^.]+)\.([^/]*)$")
_META = re.compile(r"__[^/]*__($|/)")


def split_name(member: str) -> tuple[str, str] | None:
    """Key and lower-cased extension of a member, as webdataset splits them; None where it has no key.

    >>> split_name("train.v1/0001.Left.JPG")
    ('train.v1/0001', 'left.jpg')
    """
    match = _SPLIT.match(member)
    if match is None or _META.match(member):
        return None
    return match[1], match[2].lower()


def is_hidden(member: str) -> bool:
    """Whether a member without a key is one that readers pass over on purpose (``.x``, ``__meta__/x``)."""
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
