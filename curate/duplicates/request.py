"""What `curate dedup` and `curate audit` ask for is checked before any work; what they name is opened and compared."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from curate.duplicates import audit as audits
from curate.duplicates import dedup as dedups
from curate.duplicates import hash_files, pairs
from curate.duplicates.parts import parts_of, store_part
from curate.errors import Misuse, differences
from curate.progress import Progress
from shards.indexing.index import Index
from shards.io import remote
from shards.io.atomic import remove_path
from shards.io.json_files import said_in, write_json
from shards.io.locks import locked
from shards.io.parallel import default_workers
from shards.io.part import Part
from shards.store import open_index

HASHES = "hashes"
#: What a folder of results says of itself.
MARK = "asked.json"
#: With what the name of a folder begins that is there during the work only.
SCRATCH = ".features-"


def deduplicate(
    store: str,
    against: str | None,
    choice: dedups.Choice,
    out: Path,
    index: Path | None,
    workers: int | None,
    progress: Progress,
    by_features: Callable[[Index, Path, Progress], dedups.Semantic] | None = None,
) -> dedups.Deduplicated:
    """As `curate.api.dedup`; ``by_features`` decides at the semantic level."""
    refuse_distance(choice.distance)
    if against is None and not choice.within:
        raise Misuse("--no-within: nothing is left to compare with; name --against, or leave it out")
    if by_features and against is not None:
        raise Misuse("--against: features of two stores are not compared; give --level perceptual")
    if (choice.keep == "highest-weight") != (choice.weights is not None):
        raise Misuse("--keep highest-weight and --run belong together; give both or neither")
    if choice.weights is not None and not choice.weights.is_file():
        raise Misuse(f"{choice.weights}: no such file; `curate ledger {choice.weights.parent} --final` writes it")
    refuse_itself("--against", against, store)
    processes = default_workers() if workers is None else max(1, workers)
    with progress, locked(out):
        said = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(choice).items()}
        claim(out, {"verb": "dedup", "store": store, "against": against, **said})
        opened = open_index(store, index, processes)
        held = store_part(opened, out / HASHES, processes, progress)
        others = [] if against is None else parts_of(against, out / HASHES, processes, progress)
        semantic = by_features(opened, out, progress) if by_features else None
        # Features have bars of their own.
        with nullcontext() if semantic else progress.shards("comparing"):
            return dedups.dedup(held, others, choice, out, processes, semantic)


@dataclass(frozen=True)
class HashedPart:
    """A part of a store whose hashes are there.

    Args:
        part: such as ``3/16``.
        shards, images: of the part.
        folder: of the hashes of all parts.
    """

    part: str
    shards: int
    images: int
    folder: str


def hash_part(
    store: str, part: Part, out: Path | None, index: Path | None, workers: int | None, progress: Progress
) -> HashedPart:
    """As `curate.api.hash_part`."""
    processes = default_workers() if workers is None else max(1, workers)
    with progress:
        opened = open_index(store, index, processes)
        places = hash_files.places_of(opened, None if out is None else out / HASHES)
        if not places or not hash_files.may_be_made(places[-1]):
            raise Misuse(f"{opened.root}: may not be written; say where the hashes go with --out")
        numbers = part.share(len(opened.shards))
        hash_files.make(opened, places[-1], numbers, processes, progress)
    images = sum(len(opened.rows(number)) for number in numbers)
    return HashedPart(str(part), len(numbers), images, str(places[-1]))


def look_for_leaks(
    target: str,
    store: str | None,
    out: Path | None,
    distance: int,
    drop: bool,
    index: Path | None,
    workers: int | None,
    progress: Progress,
) -> audits.Audit:
    """As `curate.api.audit`."""
    refuse_distance(distance)
    if drop and (store is None or out is None):
        raise Misuse("--drop: writes a manifest of the store; name --store and --out")
    refuse_itself("--store", store, target)
    processes = default_workers() if workers is None else max(1, workers)
    kept = None if out is None else out / HASHES
    with progress, nullcontext() if out is None else locked(out):
        if out is not None:
            claim(out, {"verb": "audit", "store": store, "target": target, "distance": distance})
        parts = parts_of(target, kept, processes, progress)
        held = None if store is None else store_part(open_index(store, index, processes), kept, processes, progress)
        with progress.shards("comparing"):
            return audits.audit(held, parts, distance=distance, workers=processes, out=out, drop=drop)


def claim(out: Path, asked: dict[str, Any]) -> None:
    """Take a new or empty folder, or go on in one that was taken for the same: what is there is overwritten, and what a
    kill has left of work goes.

    One that holds hashes alone, as `hash_part` leaves it, or the beginning of a mark, is as good as empty.

    Raises:
        Misuse: it holds something else, or what was asked for otherwise.
    """
    mark = out / MARK
    said = said_in(mark) if mark.is_file() else None
    # What an earlier release did not record may have been anything.
    if isinstance(said, dict) and said.keys() <= asked.keys() and said.get("verb") == asked["verb"]:
        if other := differences(said, {name: asked[name] for name in said}):
            raise Misuse(f"--out {out}: holds what was asked for otherwise ({'; '.join(other)}); name a new folder")
        for left in (*out.glob(f"{SCRATCH}*"), *out.glob(".*.partial")):
            remove_path(left)
    elif any(path.name not in (HASHES, f".{MARK}.partial") for path in out.iterdir()):
        raise Misuse(f"--out {out}: holds something else; name a new folder")
    write_json(mark, asked)


def refuse_itself(option: str, one: str | None, other: str) -> None:
    """Refuse to compare something with itself.

    Raises:
        Misuse: both are one place.
    """
    if one is not None and _place(one) == _place(other):
        raise Misuse(f"{option} {one}: is compared with itself; name another, or leave it out")


def _place(named: str) -> str:
    """A URL, or where a path leads."""
    return named.rstrip("/") if remote.is_url(named) else str(Path(named).resolve())


def refuse_distance(distance: int) -> None:
    """Refuse a distance at which nothing would be told apart.

    Raises:
        Misuse: it is none of 0 to `pairs.MOST`.
    """
    if not 0 <= distance <= pairs.MOST:
        raise Misuse(f"--distance {distance}: must be in 0 to {pairs.MOST} bits of 64; more joins unlike images")
