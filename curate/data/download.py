"""Fetches data sets that torchvision knows, for people who have a network."""

from __future__ import annotations

from pathlib import Path

from curate.errors import CurateError


def stl10(folder: Path) -> None:
    """Fetch STL-10 (2.6 GB) and unpack it to ``folder``/stl10_binary; what is there and whole is left as it is.

    Raises:
        CurateError: it cannot be had, or not be unpacked.
    """
    from torchvision.datasets import STL10

    try:
        STL10(str(folder), split="test", download=True)
    except (OSError, RuntimeError, EOFError) as error:
        raise CurateError(
            f"STL-10 cannot be fetched ({' '.join(str(error).split())[:120]}); "
            f"get {STL10.url} on a machine with a network and unpack it in {folder}"
        ) from error
