"""Small stores for tests, and their index: tars put into a folder, rows and kinds of faults taken out."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from PIL import Image
from strategies import tar_of

from shards.indexing.index import Index, Report, build
from shards.io.shard_set import resolve


def picture(red: int = 200) -> bytes:
    packed = io.BytesIO()
    Image.new("RGB", (4, 3), (red, 10, 10)).save(packed, "PNG")
    return packed.getvalue()


def put(folder: Path, name: str, members: list[tuple[str, bytes]], **form: Any) -> Path:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(tar_of(members, **form))
    return folder


def indexed(folder: Path | str, allow_pipe: bool = False, **options: Any) -> tuple[Index, Report]:
    return build(resolve(folder, allow_pipe=allow_pipe), **options)


def rows(index: Index) -> list[dict[str, Any]]:
    return list(index.table.to_pylist())


def kinds(report: Report) -> list[str]:
    return [fault.kind for fault in report.faults]


THREE = [(f"{number}.{ext}", body) for number in range(3) for ext, body in (("jpg", b"x" * 700), ("cls", b"1"))]
