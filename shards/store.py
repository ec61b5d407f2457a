"""Opens the index of a shard set that a person named: finds it beside the shards or builds it, and checks for drift."""

from __future__ import annotations

from pathlib import Path

from shards.errors import Misuse
from shards.indexing import drift, far_index, index_file
from shards.indexing.index import Index, build, select_shards
from shards.io import remote
from shards.io.shard_set import ShardSet, as_folder, resolve
from shards.io.storage.clients import is_object
from shards.io.storage.objects import head
from shards.rewriting import far, marker


def open_index(
    spec: str,
    index_path: Path | str | None = None,
    workers: int = 1,
    image: str | None = None,
    cache_path: Path | None = None,
    allow_pipe: bool = False,
) -> Index:
    """The index of exactly the shards that ``spec`` names, checked against them.

    Looks for ``index_path``, else for `index_file.beside` the shards, else for ``cache_path``; where there is none, the
    shards are indexed. An index of further shards is cut down to those named; a folder names every shard in
    it.

    Args:
        spec: folder, tar, brace pattern, list file or URL.
        index_path: the index file, or its URL, where it is not in the shards' folder.
        workers: processes that read headers.
        image: extension of the image, which an existing index must have, too.
        cache_path: where an index that had to be built is saved; None keeps it in memory. Never in the store.
        allow_pipe: whether ``spec``, or a local list that it names, may name a command.

    Raises:
        ShardError: no shards, a damaged index, an index of other shards, or shards that changed or were added since
            they were indexed.
        Misuse: the index has another image.
        Unfinished: a curated folder without its marker.
    """
    spec = as_folder(spec)
    shards = resolve(spec, allow_pipe=allow_pipe)
    if is_object(shards.root):
        far.refuse_unfinished(shards.root)
    elif not remote.is_url(shards.root):
        marker.refuse_unfinished(Path(shards.root))
    path = index_path or _existing_index(shards, cache_path)
    if path is None:
        index, _ = build(shards, workers=workers, image=image)
        if cache_path:
            index_file.save(index, cache_path)
        return index
    index = _select(_load(path, shards.root, moved=path == cache_path and not index_path), spec, shards)
    _refuse_other_image(index, image, path)
    drift.check_unchanged(index, workers=workers)
    return index


def _load(path: Path | str, root: str, moved: bool) -> Index:
    if isinstance(path, str):
        return far_index.load(path, root)
    return index_file.load_moved(path, root) if moved else index_file.load(path, root)


def _existing_index(shards: ShardSet, cache_path: Path | None) -> Path | str | None:
    if is_object(shards.root) and head(url := far_index.beside(shards.root)) is not None:
        return url
    beside = None if remote.is_url(shards.root) else index_file.beside(Path(shards.root))
    return next((path for path in (beside, cache_path) if path and path.is_file()), None)


def _select(index: Index, spec: str, shards: ShardSet) -> Index:
    """The part of an index that ``spec`` names; shards that are named and gone stay in it, for `drift` to report."""
    indexed = [shard.path for shard in index.shards]
    if not remote.is_pipe(spec) and (spec.endswith("/") or Path(spec).is_dir()):
        return select_shards(index, [*indexed, *sorted(set(shards.paths) - set(indexed))])
    gone = set(shards.missing) & set(indexed)
    return select_shards(index, [*shards.paths, *sorted(gone)])


def _refuse_other_image(index: Index, image: str | None, path: Path | str) -> None:
    if image is None:
        return
    held = {str(name) for name in index.table["image"].unique().to_pylist() if name is not None}
    others = sorted(name for name in held if image.lower() not in (name, name.rpartition(".")[2]))
    if others or not held:
        found = f"takes {others[0]} as the image" if others else "knows no image"
        raise Misuse(f"--image {image}: the index {path} {found}; make one with `curate index --image {image}`")
