"""One image to pack, as worker processes get it: nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """An image to pack.

    Args:
        file: its path below the root with ``/``, an absolute path, or a URL.
        key: of its sample.
        suffix: of the image's member, with the dot.
        sides: suffix and path of each side file.
        told: suffix and body of each member that a table tells.
    """

    file: str
    key: str
    suffix: str
    sides: tuple[tuple[str, str], ...] = ()
    told: tuple[tuple[str, bytes], ...] = ()
