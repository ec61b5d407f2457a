"""Which splits a target has, and what each is of; known without decoding an image, and without torch.

A target is a folder with train/ and perhaps val/ and test/. Where it is only looked at, images alone will do: a folder
or a list of image files, or any set of shards, is a train split without labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from curate.data.photos import Photos, photos_at
from curate.errors import CurateError
from shards import stream
from shards.errors import NotShards
from shards.indexing.index import Index
from shards.io import remote, shard_set
from shards.io.mirror.place import local
from shards.io.shard_set import ShardSet
from shards.io.storage.clients import is_object

SPLITS = ("train", "val", "test")


def sources_of(target: str | Path) -> dict[str, ShardSet | Photos]:
    """What each split of a target is of, by the split's name.

    Args:
        target: a folder with train/ and perhaps val/ and test/; or what is a train split without labels: a folder of
            image files, a text file that lists some, or shards (folder, tar, brace pattern, list file or URL).

    Raises:
        CurateError: no such target, or no train split.
        ShardError: a split's shards cannot be named.
    """
    root = folder_of(target)
    if not root.is_dir():
        return {"train": _listed(str(target))}
    root = root.absolute()
    found = [name for name in SPLITS if (root / name).is_dir()]
    if "train" in found:
        return {name: _held(root / name) or shard_set.resolve(root / name) for name in found}
    alone = None if found else _held(root)
    if alone is None:
        there = ", ".join(found) or "no split, shard or image file"
        raise CurateError(f"{target}: has no train/ (found: {there}); a target needs one")
    return {"train": alone}


def bodies(split: Index | Photos) -> Iterator[bytes]:
    """The images of a split, those without bytes left out."""
    found = split.bodies() if isinstance(split, Photos) else stream.images(split, np.arange(len(split)))
    yield from filter(None, found)


def folder_of(target: str | Path) -> Path:
    """Where a target is, as far as it may be a folder of splits; one of an object store comes here whole.

    Raises:
        ShardError: nothing is there.
    """
    text = str(target)
    names_shards = shard_set.is_shard(text) or text.endswith(".txt") or "{" in text
    return Path(target) if names_shards or not is_object(text) else local(text)


def _listed(target: str) -> ShardSet | Photos:
    """What a file, a pattern or a URL names."""
    found = photos_at(target)
    if found is not None:
        return found
    try:
        return shard_set.resolve(target)
    except NotShards as error:
        if remote.is_url(target) or Path(target).exists():
            raise
        raise CurateError(f"{target}: no such target folder; `curate pack imagefolder --target` makes one") from error


def _held(folder: Path) -> ShardSet | Photos | None:
    """The shards of a folder, else its image files, else None."""
    try:
        return shard_set.resolve(folder)
    except NotShards:
        return photos_at(str(folder))
