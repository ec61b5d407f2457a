"""Packing by name, and the packers that need what only curate knows: the paper's sizes, and where STL-10 is fetched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from curate.config.packers import PACKERS, PackReport
from curate.data import download as downloads
from curate.duplicates import near_groups
from curate.errors import Misuse
from curate.experiments.tables import protocols
from shards import api
from shards.io.atomic import atomic_write
from shards.packing.decathlon.annotations import domains as annotated
from shards.packing.decathlon.images import images_path
from shards.packing.decathlon.pack import SOURCE, DecathlonReport
from shards.packing.imagefolder import check_paths, listed
from shards.packing.stl10 import Stl10Report
from shards.tar.writer import SHARD_SIZE

#: What ``--group-by`` takes besides expressions and tables.
NEAR_DUPLICATES = "near-duplicates"


def pack(
    packer: str, sources: Sequence[Path], out: Path, seed: int, shard_size: int | None, options: dict[str, Any]
) -> PackReport:
    """Call a packer by its name.

    Args:
        sources: one, or several where the packer takes several.
        shard_size: bytes; None for the packer's own.
        options: of its row; those that are None are left out.

    Raises:
        Misuse: an unknown packer, an option that it lacks or that it must have, several sources where it takes one.
    """
    if packer not in PACKERS:
        raise Misuse(f"packer {packer}: unknown; known: {', '.join(PACKERS)}")
    spec = PACKERS.spec(packer)
    given = {name: value for name, value in options.items() if value is not None}
    known = {option.name for option in spec.options}
    if unknown := sorted(set(given) - known):
        raise Misuse(f"{', '.join(unknown)}: not an option of packer {packer}; it has {', '.join(known) or 'none'}")
    if lacking := [option.name for option in spec.options if option.required and option.name not in given]:
        raise Misuse(f"packer {packer}: needs {', '.join(lacking)}; give it")
    if not spec.several and len(sources) != 1:
        raise Misuse(f"packer {packer}: takes one {spec.source}, not {len(sources)}")
    if shard_size is not None:
        given["shard_size"] = shard_size
    report: PackReport = PACKERS[packer](list(sources) if spec.several else sources[0], out=out, seed=seed, **given)
    return report


def imagefolder(folder: Path, *, out: Path, **options: Any) -> PackReport:
    """As `shards.api.pack_imagefolder`, which also groups by what it is told to: here near-duplicates, too."""
    if options.get("group_by") != NEAR_DUPLICATES:
        return api.pack_imagefolder(folder, out=out, **options)
    if not options.get("target"):
        raise Misuse(f"--group-by {NEAR_DUPLICATES}: only with --target; a store is not split")
    found = near_groups.near_groups(listed(folder, out, options.get("shard_size", SHARD_SIZE)))
    with _as_file(found, out) as table:
        report = api.pack_imagefolder(folder, out=out, **{**options, "group_by": str(table)})
    return replace(report, notes=(found.text(), *report.notes))


@contextmanager
def _as_file(found: near_groups.NearGroups, out: Path) -> Iterator[Path]:
    """Groups as a file beside ``out`` that is gone when all is packed; as it was, where a stopped packing goes on."""
    path = out.absolute().parent / f".{out.name}.{NEAR_DUPLICATES}.parquet"
    if not (path.is_file() and pq.read_table(path).equals(found.table)):
        with atomic_write(path) as file:
            pq.write_table(found.table, file)
    yield path
    path.unlink()


def stl10(folder: Path, *, out: Path, download: bool = False, **options: Any) -> Stl10Report:
    """As `shards.api.pack_stl10`.

    Args:
        download: fetch the files into ``folder`` first, where they are not there.

    Raises:
        CurateError: they cannot be fetched.
    """
    if download:
        downloads.stl10(folder)
    return api.pack_stl10(folder, out=out, **options)


def decathlon(root: Path, *, out: Path, **options: Any) -> DecathlonReport:
    """As `shards.api.pack_decathlon`, with as many labelled images of each target as the paper takes; its groups may be
    near-duplicates, too."""
    options["labelled"] = protocols.labelled
    if options.get("groups") != NEAR_DUPLICATES:
        return api.pack_decathlon(root, out=out, **options)
    check_paths(root, out, options.get("shard_size", SHARD_SIZE))
    found = near_groups.of_decathlon(root, options.get("domains") or _domains_of(root, options.get("source")))
    with _as_file(found, out) as table:
        report = api.pack_decathlon(root, out=out, **{**options, "groups": table})
    return replace(report, notes=(found.text(), *report.notes))


def _domains_of(root: Path, source: str | None) -> list[str]:
    """The domains that become targets where none are named."""
    return [name for name in annotated(root) if name != (source or SOURCE) and images_path(root, name)]
