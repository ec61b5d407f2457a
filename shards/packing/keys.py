"""Keys of samples from the paths of their files: unique, and such that readers give them back as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from os.path import splitext

from shards.member_names import split_name, storable


def keys_of(paths: Iterable[str]) -> list[str]:
    """A unique key for each path, in a form that readers return unchanged.

    >>> keys_of(["a/x.1.jpg", "a/x_1.jpg", "b/x.png", "__b__/x.png"])
    ['a/x_1', 'a/x_1_2', 'b/x', '_b__/x']
    """
    keys: list[str] = []
    taken: set[str] = set()
    for path in paths:
        wanted = readable_key(plain_key(path))
        key, number = wanted, 1
        while storable(key) in taken:  # as a reader tells them apart
            number += 1
            key = f"{wanted}_{number}"
        taken.add(storable(key))
        keys.append(key)
    return keys


def plain_key(path: str) -> str:
    """A file's path without its extension, other dots of the file name replaced by ``_``."""
    folder, slash, name = path.rpartition("/")
    return folder + slash + splitext(name)[0].replace(".", "_")


def readable_key(key: str) -> str:
    r"""``key``, or the nearest that readers give back: no ``__x__`` at the beginning, no folder of a dot and a newline.

    >>> readable_key("__m__/y"), readable_key("v1.0\nx/y"), readable_key("a/__m__/y"), readable_key("_\n__/./y")
    ('_m__/y', 'v1.0_x/y', 'a/__m__/y', '_/./y')
    """
    if split_name(f"{key}.x") == (key, "x"):
        return key
    return re.sub("^__+", "_", key.replace("\n", "_"))


def renamed(keys: dict[str, str]) -> dict[str, str]:
    """New keys by file, for the files that `readable_key` changed."""
    wanted = {path: plain_key(path) for path in keys}
    return {storable(path): storable(keys[path]) for path, key in wanted.items() if readable_key(key) != key}
