"""How the benchmarks of shards leave a file in the page cache before they time anything."""

from __future__ import annotations

import os
from pathlib import Path


def into_page_cache(path: Path) -> None:
    """As a first reading from disk does: in large pages, not in the small ones that small writes leave behind."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        while file.read(1 << 20):
            pass
