"""Where an evaluation is written: a folder of its own, in RUN/evaluations or apart from all that it reads.

What lies in the folder is the part of those who write it; each begins with a record that tells its folder from others.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from msgspec import Meta

from curate.config.schema import from_options
from curate.errors import CurateError, Misuse, RunMismatch, differences
from curate.runs import provenance
from shards.errors import NotShards
from shards.io import paths, remote, shard_set
from shards.io.json_files import convert, json_bytes, parse_json, version_in, write_json
from shards.io.regular_files import read_regular

#: The folder in a run's own where evaluations go that name no other.
FOLDER = "evaluations"


def folder_of(run: Path, target: str, out: Path | None, name: str, record: str) -> Path:
    """The folder of an evaluation; nothing is written yet.

    Args:
        out: the folder that the caller names; None for RUN/evaluations/NAME.
        record: name of the file that such an evaluation writes first.

    Raises:
        Misuse: it overlaps the target, the store, or the run but for its evaluations; it is no folder, or holds files
            without such a record.
    """
    if out is None:
        folder = run / FOLDER / name
    else:
        folder = out
        refuse_overlap(run, target, out)
    refuse_strangers(folder, record)
    return folder


def refuse_overlap(run: Path, target: str, out: Path) -> None:
    """Refuse an output folder that lies in, or around, the store, the target or the run.

    Raises:
        Misuse: they overlap.
    """
    config = from_options(provenance.read_run(run)["configuration"])
    store = _root(config.store)
    read = [("target", Path(target))] + ([("store", store)] if store is not None else [])
    if config.target:
        read.append(("run's target", Path(config.target)))
    if run.resolve() / FOLDER not in out.resolve().parents:
        read.append(("run", run))
    paths.refuse_overlap(out, read, ", or leave --out out")


def refuse_strangers(folder: Path, record: str, made_before: tuple[str, ...] = ()) -> None:
    """Refuse an output path that is a file, or a folder with files but without ``record``.

    Args:
        made_before: names of files that are written before the record, and may be all that a kill has left.

    Raises:
        Misuse: it is one of these.
    """
    if folder.exists() and not folder.is_dir():
        raise Misuse(f"--out {folder}: expected a folder, found a file; name another")
    if not (folder / record).exists() and paths.holds_others(folder, made_before):
        raise Misuse(f"--out {folder}: holds files, but no {record}; name a new folder, or that of the same evaluation")


def keep(path: Path, record: dict[str, Any]) -> None:
    """Write a record, or make sure that the one there says the same.

    Raises:
        RunMismatch: it says something else; both values are shown.
        CurateError: it is damaged.
    """
    if not path.exists():
        write_json(path, record)
        return
    try:
        before = dict(parse_json(read_regular(path)))
    except (ValueError, TypeError) as error:
        raise CurateError(f"{path}: is damaged ({type(error).__name__}: {error}); name a new --out") from error
    # Older ones say their format and version in another way.
    different = differences(before, {name: record[name] for name in record if name not in ("format", "version")})
    if different:
        raise RunMismatch(f"{path.parent}: holds another evaluation: {'; '.join(different)}; name a new --out")


def _root(spec: str) -> Path | None:
    """The folder of shards on this machine; None where they are elsewhere, or gone, which an evaluation may survive."""
    if remote.is_url(spec) and not spec.startswith("file:"):
        return None
    try:
        return Path(shard_set.resolve(spec).root)
    except NotShards:
        return None


SEARCH = "search.json"
FORMAT, VERSION = "search", 1


@dataclass(frozen=True)
class SearchIdentity:
    """All that the result of a search depends on, but the machine.

    Args:
        run: its id.
        target: its fingerprint.
        grid: cells, epochs, batch, halving.
        seed: of what is drawn.
        epoch: the epoch that was given, or the protocol by which it is chosen.
    """

    run: str
    target: str
    grid: dict[str, Any]
    seed: int
    epoch: Any

    @property
    def plain(self) -> dict[str, Any]:
        """The fields as JSON gives them back: tuples are lists."""
        record: dict[str, Any] = parse_json(json_bytes(asdict(self)))
        return record

    @property
    def digest(self) -> str:
        """The first twelve hex digits of the fields' sha256: the name of the search's folder."""
        return hashlib.sha256(json_bytes(self.plain)).hexdigest()[:12]


class Chosen(TypedDict):
    """The fields of search.json: the search's identity as ``asked``, and the epoch whose network is fine-tuned."""

    asked: dict[str, Any]
    epoch: Annotated[int, Meta(ge=0)]


def record(folder: Path, identity: SearchIdentity, epoch: int) -> None:
    """Write ``search.json``: the search's identity, and the epoch whose network is fine-tuned."""
    write_json(folder / SEARCH, {"format": FORMAT, "version": VERSION, "asked": identity.plain, "epoch": epoch})


def chosen(folder: Path, identity: SearchIdentity) -> int | None:
    """The epoch that an earlier call chose; None where there was none.

    Raises:
        RunMismatch: the folder holds another search; both values are shown.
        CurateError: its record is damaged.
    """
    path = folder / SEARCH
    if not path.exists():
        return None
    try:
        record = parse_json(read_regular(path))
        version, held = version_in(record, FORMAT), convert(record, Chosen)
    except ValueError as error:
        raise CurateError(f"{path}: is damaged ({error}); name a new --out") from error
    if version != VERSION:
        raise CurateError(f"{path}: version {version}, this release reads {VERSION}; name a new --out")
    if different := differences(held["asked"], identity.plain):
        raise RunMismatch(f"{folder}: holds another search: {'; '.join(different)}; name a new --out")
    return held["epoch"]
