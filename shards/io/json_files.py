"""JSON files: written whole or not at all, and read back as declared types.

A file of ours begins with ``"format": NAME, "version": N``. Up to release 0.2 the version stood alone, under either
key.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from shards.io.atomic import write_bytes
from shards.io.regular_files import read_regular

T = TypeVar("T")


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` to ``path`` as `json_bytes` has it, whole or not at all."""
    write_bytes(path, json_bytes(value))


def json_bytes(value: Any) -> bytes:
    """``value`` as indented JSON with a final newline, keys in the order given."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode("utf-8")


def parse_json(data: str | bytes) -> Any:
    """What a JSON text says.

    Raises:
        ValueError: it is no JSON, or nested deeper than can be read.
    """
    try:
        return json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def said_in(path: Path) -> Any:
    """What a JSON file says; None, which no file of ours says, where it is damaged.

    Raises:
        OSError: it is missing, cannot be read, or is a pipe, socket or device.
    """
    try:
        return parse_json(read_regular(path))
    except ValueError:
        return None


def sha256_of(document: Any) -> str:
    """The sha256 of a JSON value, in hex, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def version_in(document: Any, form: str) -> int | None:
    """The version of a file of ours; None where it is of another format, or says none.

    Args:
        document: what the JSON text says.
        form: the format that is expected.
    """
    if not isinstance(document, dict):
        return None
    named, version = document.get("format"), document.get("version")
    if named in (None, form):
        return version if type(version) is int else None
    return named if version is None and type(named) is int else None


def convert(document: Any, kind: type[T]) -> T:
    """What a JSON text says as ``kind``: a dataclass, a TypedDict or a type with bounds; further fields are ignored.

    Raises:
        ValueError: a field is missing, of another type or out of its bounds; the message says which.
    """
    return msgspec.convert(document, kind)
