"""What a folder of image files holds for packing: each image with the files beside it that say something of it.

A file of the image's name with another suffix (``x.txt`` or ``x.jpg.json`` beside ``x.jpg``) is a side file; what
`shards.packing.captions` finds in a table goes along, too. Nothing is opened here but such tables.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from os.path import splitext
from pathlib import Path

from shards.indexing.content import SIDECARS
from shards.io import remote
from shards.io.folders import PassedOver, suffix_of, walk_folder
from shards.member_names import IMAGE_SUFFIXES
from shards.packing.captions import captions_of, is_captions
from shards.packing.entry import Entry
from shards.packing.journal import VERSION, stamp
from shards.packing.keys import keys_of, renamed

#: Suffixes of files that go along with the image they are named after.
SIDE_SUFFIXES = frozenset((*SIDECARS, "xml", "npy"))
#: Folders that systems leave beside pictures: what a Mac's archiver adds, thumbnails of a Synology, Windows' bin.
FOREIGN_FOLDERS = frozenset(("__MACOSX", "@eaDir", "$RECYCLE.BIN"))


@dataclass(frozen=True)
class Listing:
    """What there is to pack.

    Args:
        root: what paths of entries are relative to.
        entries: in the order of packing; their keys differ.
        others: files that no sample takes, sorted.
        passed_over: what the walk did not enter or take, ``others`` by suffix.
        notes: what a person should know besides.
        renamed: new keys by file, of files whose own name readers would not return as key.
    """

    root: Path
    entries: tuple[Entry, ...]
    others: tuple[str, ...] = ()
    passed_over: PassedOver = field(default_factory=PassedOver)
    notes: tuple[str, ...] = ()
    renamed: dict[str, str] = field(default_factory=dict)


def is_image(name: str) -> bool:
    """Whether a file is an image by its name."""
    return splitext(name)[1][1:].lower() in IMAGE_SUFFIXES


def list_folder(source: Path) -> Listing:
    """The images below a folder, sorted by path, and what goes along with each.

    Raises:
        ShardError: a table of captions cannot be read.
        OSError: the folder cannot be listed.
    """
    files, passed_over = walk_folder(source, lambda name: True)
    foreign = [path for path in files if FOREIGN_FOLDERS.intersection(path.split("/")[:-1])]
    kept = sorted(set(files) - set(foreign)) if foreign else files
    images = [path for path in kept if is_image(path)]
    beside = [path for path in kept if not is_image(path)]
    tables = [path for path in beside if is_captions(path)]
    told, used, notes = captions_of(source, tables, set(images))
    sides = _sides(images, [path for path in beside if path not in used])
    entries, taken, twice = [], set(used), 0
    for path, key in zip(images, keys_of(images), strict=True):
        own = sides.get(path, {})
        taken.update(own.values())
        said = tuple((suffix, body) for suffix, body in told.get(path, ()) if suffix not in own)
        twice += len(said) < len(told.get(path, ()))
        entries.append(Entry(path, key, splitext(path)[1], tuple(_as_named(own)), said))
    if twice:
        many = f"{twice:,} image{'s' * (twice > 1)}"
        notes += (f"of {many} both a table and a file of its own say something; the file is taken",)
    if foreign:
        where = sorted({next(part for part in path.split("/") if part in FOREIGN_FOLDERS) for path in foreign})
        many = f"{len(foreign):,} file{'s' * (len(foreign) > 1)}"
        notes += (f"passed over {many} in {', '.join(where)}, which systems leave beside pictures",)
    new_keys = renamed({entry.file: entry.key for entry in entries})
    listing = Listing(source, tuple(entries), (), passed_over, notes, new_keys)
    return with_others(listing, sorted(path for path in (*beside, *foreign) if path not in taken))


def with_others(listing: Listing, others: Sequence[str]) -> Listing:
    """A listing whose files of no sample are these."""
    counts = Counter(map(suffix_of, others))
    passed_over = replace(listing.passed_over, others=dict(sorted(counts.items())))
    return replace(listing, others=tuple(others), passed_over=passed_over)


def _sides(images: list[str], beside: list[str]) -> dict[str, dict[str, str]]:
    """The side files of each image that has some: path by suffix in lower case, with the dot."""
    by_stem: dict[str, dict[str, str]] = defaultdict(dict)
    for path in beside:
        stem, suffix = splitext(path)
        if suffix[1:].lower() in SIDE_SUFFIXES:
            by_stem[stem].setdefault(suffix.lower(), path)
    return {path: found for path in images if (found := by_stem.get(path, {}) | by_stem.get(splitext(path)[0], {}))}


def _as_named(own: dict[str, str]) -> list[tuple[str, str]]:
    """Side files in the order of their suffixes, each with its suffix as it is written."""
    return [(splitext(path)[1], path) for _, path in sorted(own.items())]


def identity(listing: Listing, *options: object) -> str:
    """sha256 of all that decides what is written: names, sizes and times of the files, what tables say, options."""
    digest = sha256(json.dumps([VERSION, os.path.abspath(listing.root), options]).encode())
    for entry in listing.entries:
        files = [entry.file, *(file for _, file in entry.sides)]
        stamps = [None if remote.is_url(file) else stamp(os.path.join(listing.root, file)) for file in files]
        digest.update(json.dumps([entry.key, files, stamps, [body.hex() for _, body in entry.told]]).encode())
    return digest.hexdigest()
