"""Small pictures, and folders of files."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

from PIL import Image


def png(value: int) -> bytes:
    """Four by four pixels of one gray."""
    file = io.BytesIO()
    Image.new("L", (4, 4), value).save(file, "PNG")
    return file.getvalue()


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    """The folder, with these files in it."""
    for name, body in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(body)
    return folder
