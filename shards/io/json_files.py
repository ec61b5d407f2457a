"""JSON files, written whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shards.io.atomic import publish_bytes


def publish_json(path: Path, value: Any) -> None:
    """Write ``value`` to ``path`` as `as_json` has it, whole or not at all."""
    publish_bytes(path, as_json(value))


def as_json(value: Any) -> bytes:
    """``value`` as indented JSON with a final newline, keys in the order given."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode("utf-8")


def from_json(data: str | bytes) -> Any:
    """What a JSON text says.

    Raises:
        ValueError: it is no JSON, or nested deeper than can be read.
    """
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
