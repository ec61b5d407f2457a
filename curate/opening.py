"""Opening a shard set by what a person names: its index found or made, and held against the shards."""

from __future__ import annotations

from pathlib import Path

from shards import curated, exports, names, remote
from shards import index as shard_index


def open_index(
    spec: str, place: Path | None = None, workers: int = 1, image: str | None = None, made_at: Path | None = None
) -> shard_index.Index:
    """The index of a shard set, checked against the shards.

    Args:
        spec: folder, tar, brace pattern, list file or URL.
        place: the index, where it is not in the shards' folder.
        workers: processes that read headers.
        image: extension of the image, where an index has to be made.
        made_at: where an index that has to be made is kept, and looked for; None keeps it in memory. Never the store.

    Raises:
        ShardError: no shards, a damaged index, or shards that changed since they were indexed.
        Unfinished: a curated folder without its marker.
    """
    shard_set = names.resolve(spec)
    local = not remote.is_url(shard_set.root)
    if local:
        curated.refuse_unfinished(Path(shard_set.root))
    beside = [Path(shard_set.root) / shard_index.FILE_NAME] if local else []
    for candidate in [place] if place else [*beside, *([made_at] if made_at else [])]:
        if place or candidate.is_file():
            index = shard_index.load(candidate, shard_set.root if local else None)
            shard_index.compare(index, workers=workers)
            return index
    index, _ = shard_index.build(shard_set, workers=workers, image=image)
    if made_at:
        shard_index.save(index, made_at)
    return index


def export_for(folder: Path, *, dali: bool, datacomp: bool) -> list[Path]:
    """Write what other readers want beside the shards of a finished curated folder; returns what was written.

    Raises:
        Unfinished: the folder has no marker.
        ShardError: a sample lacks what the format needs.
    """
    index = curated.load_curated(folder)
    written = exports.publish_dali(index, folder) if dali else []
    if datacomp:
        exports.publish_datacomp(index, folder / "uids.npy")
        written.append(folder / "uids.npy")
    return written
