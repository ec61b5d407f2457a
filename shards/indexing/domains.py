"""``domains.parquet``: the domain of each sample of a store, where it is known; a table beside the shards.

Its format is in docs/formats/shards.md.

Reads, writes, and aligns it with an index by (shard, key). Domains serve scoring, and the method that is given them.
"""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from shards.arrays import BoolArray
from shards.errors import Misuse, ShardError
from shards.indexing.index import Index
from shards.indexing.key_join import join_keys
from shards.io import parquet, remote
from shards.io.atomic import atomic_write
from shards.io.folders import OWN_FOLDER

FORMAT_VERSION = 1
FILE_NAME = "domains.parquet"
#: As in a ledger: plain strings to every reader, so that the two join; Parquet encodes them by dictionary.
SCHEMA = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("shard", "key", "domain")])
_FOOTER = b"curate.domains"
#: Kinds of letters that no name has: controls, halves of a pair (bytes that are no UTF-8), ends of line and paragraph.
_NO_LETTERS = {"Cc", "Cs", "Zl", "Zp"}


@dataclass(frozen=True)
class Domains:
    """The domain of every row of an index.

    Args:
        names: of the domains.
        codes: shape (rows,), int32: the place in ``names`` of each row's domain.
    """

    names: tuple[str, ...]
    codes: npt.NDArray[np.int32]

    def own(self, name: str) -> BoolArray:
        """Shape (rows,), bool: whether each row belongs to domain ``name``.

        Raises:
            Misuse: no such domain; the message lists those there are.
        """
        if name not in self.names:
            known = ", ".join(sorted(self.names))
            raise Misuse("no such domain in the store", expected=known, found=name, todo="name one of these")
        return np.asarray(self.codes == self.names.index(name))


def check_name(name: str, place: str) -> None:
    """Refuse a domain name that cannot stand in the file, in a key, or in a line of text.

    Args:
        place: where it was found, for the message.

    Raises:
        Misuse: the name is empty, ``.`` or ``..``, is not UTF-8, or has a control character.
    """
    if name in ("", ".", "..") or any(unicodedata.category(letter) in _NO_LETTERS for letter in name):
        expected = "a line of UTF-8 without control characters"
        raise Misuse("no name of a domain", shard=place, expected=expected, found=ascii(name), todo="rename it")


def save(index: Index, domains: Domains, path: Path) -> None:
    """Write the domains of all rows of ``index``, in its order.

    Raises:
        Misuse: as `check_name`.
    """
    for name in domains.names:
        check_name(name, str(path))
    column = pa.DictionaryArray.from_arrays(pa.array(domains.codes, pa.int32()), pa.array(domains.names, pa.string()))
    table = pa.table([index.table["shard"], index.table["key"], column], names=SCHEMA.names).cast(SCHEMA)
    footer = {_FOOTER: json.dumps({"version": FORMAT_VERSION}).encode()}
    with atomic_write(path) as file:
        pq.write_table(table.replace_schema_metadata(footer), file, compression="zstd", write_page_checksum=True)


def beside(root: Path) -> Path:
    """Where the domains of the shards in ``root`` are: ``domains.parquet`` there, else in ``.curate``."""
    places = (root / FILE_NAME, root / OWN_FOLDER / FILE_NAME)
    return next((path for path in places if path.is_file()), places[0])


def load(index: Index) -> Domains:
    """The domains recorded beside the shards of ``index``; samples that it does not hold are passed over.

    Raises:
        ShardError: there is no such file, it is damaged or of another format, or lacks a sample of the index.
    """
    if remote.is_url(index.root):
        raise ShardError("domains are read beside local shards only", shard=index.root, todo="copy the store")
    path = beside(Path(index.root))
    return _align(index, _read(path), path)


def _read(path: Path) -> pa.Table:
    todo = f"write it again: columns {', '.join(SCHEMA.names)}, as docs/formats/shards.md says"
    try:
        table = parquet.read_table(path, todo, what="file of domains")
    except FileNotFoundError as error:
        todo = "`curate pack idx` and `pack decathlon` write one; see docs/formats/shards.md"
        raise ShardError("no domains are on record for this store", shard=str(path), todo=todo) from error
    footer = parquet.json_metadata(table.schema.metadata, _FOOTER, path, todo)
    if footer is None:
        expected = f"a footer {_FOOTER.decode()!r}"
        raise ShardError("not a whole file of domains", shard=str(path), expected=expected, found="none", todo=todo)
    if footer.get("version") != FORMAT_VERSION:
        found = footer.get("version")
        raise ShardError("unknown format of domains", shard=str(path), expected=FORMAT_VERSION, found=found)
    return parquet.cast_to_schema(table, SCHEMA, path, "whole file of domains", todo)


def _align(index: Index, table: pa.Table, path: Path) -> Domains:
    rows, lines = join_keys(index.table, table)
    unknown = rows[lines < 0]
    if len(unknown):
        first = int(unknown[0])
        raise ShardError(
            f"{path.name} has no domain for {len(unknown)} samples of the store, the first of them this",
            shard=index.table["shard"][first].as_py(),
            key=index.table["key"][first].as_py(),
            todo="write it for the shards as they are",
        )
    if len(rows) > len(index):
        raise ShardError("a sample has two domains", shard=str(path), todo="write every sample once")
    column = table["domain"].combine_chunks().dictionary_encode()
    return Domains(tuple(column.dictionary.to_pylist()), np.asarray(column.indices.to_numpy()[lines], np.int32))
