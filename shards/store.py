"""Opens the index of a shard set that a person named: finds it beside the shards or builds it, and checks for drift."""

from __future__ import annotations

from pathlib import Path

from shards.errors import Misuse
from shards.indexing import drift, index_file
from shards.indexing import index as shard_index
from shards.io import remote
from shards.io import shard_set as names
from shards.rewriting import marker


def open_index(
    spec: str,
    place: Path | None = None,
    workers: int = 1,
    image: str | None = None,
    made_at: Path | None = None,
    allow_pipe: bool = False,
) -> shard_index.Index:
    """The index of exactly the shards that were named, checked against them.

    An index of more shards than these gives the part that holds them; a folder names every shard in it.

    Args:
        spec: folder, tar, brace pattern, list file or URL.
        place: the index, where it is not in the shards' folder.
        workers: processes that read headers.
        image: extension of the image; an index that is there must go by it.
        made_at: where an index that has to be made is kept, and looked for; None keeps it in memory. Never the store.
        allow_pipe: whether ``spec``, or a local list that it names, may name a command.

    Raises:
        ShardError: no shards, a damaged index, an index of other shards, or shards that changed or came since they
            were indexed.
        Misuse: the index goes by another image.
        Unfinished: a curated folder without its marker.
    """
    shard_set = names.resolve(spec, allow_pipe=allow_pipe)
    local = not remote.is_url(shard_set.root)
    if local:
        marker.refuse_unfinished(Path(shard_set.root))
    beside = [Path(shard_set.root) / index_file.FILE_NAME] if local else []
    for candidate in [place] if place else [*beside, *([made_at] if made_at else [])]:
        if not place and not candidate.is_file():
            continue
        load = index_file.load_moved if candidate == made_at and not place else index_file.load
        held = load(candidate, shard_set.root)
        index = _named_in(held, spec, shard_set)
        _refuse_other_image(index, image, candidate)
        drift.check_unchanged(index, workers=workers)
        return index
    index, _ = shard_index.build(shard_set, workers=workers, image=image)
    if made_at:
        index_file.save(index, made_at)
    return index


def _named_in(index: shard_index.Index, spec: str, shard_set: names.ShardSet) -> shard_index.Index:
    """The part of an index that ``spec`` names; shards that it names and that are gone stay, for `drift` to find."""
    indexed = [shard.path for shard in index.shards]
    if not remote.is_pipe(spec) and (spec.endswith("/") or Path(spec).is_dir()):
        return shard_index.select_shards(index, [*indexed, *sorted(set(shard_set.paths) - set(indexed))])
    gone = set(shard_set.missing) & set(indexed)
    return shard_index.select_shards(index, [*shard_set.paths, *sorted(gone)])


def _refuse_other_image(index: shard_index.Index, image: str | None, place: Path) -> None:
    if image is None:
        return
    held = {str(name) for name in index.table["image"].unique().to_pylist() if name is not None}
    others = sorted(name for name in held if image.lower() not in (name, name.rpartition(".")[2]))
    if others or not held:
        found = f"takes {others[0]} as the image" if others else "knows no image"
        raise Misuse(f"--image {image}: the index {place} {found}; make one with `curate index --image {image}`")
