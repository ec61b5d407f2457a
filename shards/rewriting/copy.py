"""Writes one new shard, a file or an object, from byte ranges of source shards: the task that a rewrite maps over its
new shards.

Members keep their headers. A new header is written only where the copied one would mean something else: a hard link, a
name or size from a global PAX header, a renamed sample. A member that a later one of the same extension replaces is not
copied, as webdataset refuses a sample with both. `shards.rewriting.plan` decides what goes where.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from shards.arrays import Int64Array
from shards.errors import ShardError
from shards.indexing.extents import byte_extents, padded_sizes
from shards.indexing.members import members_by_key, members_of_key, without_duplicates
from shards.indexing.sample import SampleMember
from shards.indexing.scan import Shard
from shards.indexing.schema import ROW
from shards.io.atomic import atomic_write_unsynced
from shards.io.byte_ranges import shard_too_short
from shards.io.mapped import Buffer, open_mapped
from shards.io.shard_set import locate
from shards.io.storage.clients import is_object
from shards.io.storage.uploads import upload
from shards.rewriting.needed import SourceSlice, open_needed
from shards.rewriting.server_copies import Piece
from shards.tar.blocks import blocks_of, concatenated_ranges
from shards.tar.hashing_writer import HashingWriter, hashing_writer
from shards.tar.header import BLOCK
from shards.tar.header_chain import hash_distinct
from shards.tar.walk import FILE, HARD_LINK, Member
from shards.tar.writer import END, member_header, padding, shard_name


@dataclass(frozen=True)
class WrittenShard:
    """A shard that was written.

    Args:
        shard: its entry in the new index.
        sha256, xxh3: of the whole file, hex; None where the server copied parts of it, which nobody here has seen.
        samples: their number.
        new_headers: number of members whose header was written anew.
        etag: of an object.
    """

    shard: Shard
    sha256: str | None
    xxh3: str | None
    samples: int
    new_headers: int
    etag: str | None = None


#: Where the samples of a new shard lie in it.
PLACES = pa.schema([ROW.field(name) for name in ("offset", "size", "image_offset", "members")])
#: Offsets, sizes, image offsets and members of the copied samples, and the number of new headers.
CopiedSamples = tuple[Int64Array, Int64Array, Int64Array, npt.NDArray[np.int32], int]


@dataclass(frozen=True)
class CopyTask:
    """Callable on (number, slices): writes that shard into ``out``; a local folder's caller syncs it.

    Args:
        root: of the source's shard set.
        out: of the new shards: a folder, or a URL of an object store that ends in ``/``.
    """

    root: str
    out: str

    def name_of(self, item: tuple[int, tuple[SourceSlice, ...]]) -> str:
        """The name of a new shard."""
        return shard_name(item[0])

    def __call__(self, item: tuple[int, tuple[SourceSlice, ...]]) -> tuple[WrittenShard, pa.RecordBatch]:
        """The new shard, and where its samples lie in it, as `PLACES`.

        Raises `ShardsChanged` where a source is shorter than its index says, `OSError` where the disk is full.
        """
        number, slices = item
        name, size = shard_name(number), sum(pc.sum(one.samples["size"]).as_py() for one in slices) + len(END)
        with _new_shard(self.out, name, size) as writer:
            at_server = copies_at_server(self.root, self.out)
            parts = [_copy_slice(self.root, source_slice, writer, at_server) for source_slice in slices]
            writer.write(END)
        *places, anew = zip(*parts, strict=True)
        offsets, sizes, images, members = (np.concatenate(column) for column in places)
        columns = [offsets, sizes, pa.array(images, mask=images < 0), members]
        written = WrittenShard(
            Shard(name, writer.position, writer.headers.hexdigest(), False, writer.borrows),
            None if writer.has_copies else writer.sha256.hexdigest(),
            None if writer.has_copies else writer.xxh3.hexdigest(),
            len(offsets),
            sum(anew),
        )
        return written, pa.record_batch([pa.array(column) for column in columns], schema=PLACES)


@contextmanager
def _new_shard(out: str, name: str, size: int) -> Iterator[HashingWriter]:
    if is_object(out):
        with upload(out + name, size) as sink, hashing_writer(sink, int) as writer:
            yield writer
        return
    with (
        atomic_write_unsynced(Path(out) / name) as file,
        hashing_writer(file, partial(os.fdatasync, file.fileno())) as writer,
    ):
        yield writer


def copies_at_server(root: str, out: str) -> bool:
    """Whether a server has both the source and the new shards, and copies parts of objects."""
    return {root.partition("://")[0], out.partition("://")[0]} <= {"s3", "s3a"}


def _copy_slice(root: str, source_slice: SourceSlice, writer: HashingWriter, at_server: bool) -> CopiedSamples:
    """Copy one slice: whole blocks at once where nothing needs a new header, else member by member."""
    location, shard = locate(root, source_slice.shard.path), source_slice.shard
    if source_slice.prefix is None and not shard.borrows:
        with open_needed(location, source_slice, writer.since_copy, at_server) as (source, pieces):
            copied = _copy_blocks(source.buffer, location, source_slice, pieces, writer)
        if copied is not None:
            return copied
    with open_mapped(location, shard.etag) as source:
        _refuse_shorter(source_slice, source.buffer)
        return _copy_members(source.buffer, source_slice, writer)


def _refuse_shorter(source_slice: SourceSlice, buffer: Buffer) -> None:
    starts, sizes = byte_extents(source_slice.samples)
    end = int((starts + sizes).max())
    if end > len(buffer):
        raise shard_too_short(source_slice.shard.path, end, len(buffer))


def _copy_blocks(
    buffer: Buffer, location: str, source_slice: SourceSlice, pieces: Sequence[Piece], writer: HashingWriter
) -> CopiedSamples | None:
    """Copy samples as they stand; None, with nothing written, where a header needs a closer look."""
    _refuse_shorter(source_slice, buffer)
    starts, sizes = byte_extents(source_slice.samples)
    blocks, first, counts = blocks_of(buffer), starts // BLOCK, padded_sizes(sizes) // BLOCK
    headers = writer.headers.copy()
    if (starts % BLOCK).any() or not hash_distinct(blocks, first, counts, headers):
        return None
    position, writer.headers = writer.position, headers
    for copied, some in groupby(pieces, key=lambda piece: piece.copied):
        if copied:
            for piece in some:
                writer.copy(location, piece.offset, piece.size, source_slice.shard.etag)
        else:
            places = np.array([(piece.offset, piece.size) for piece in some], np.int64) // BLOCK
            writer.write_blocks(blocks, concatenated_ranges(places[:, 0], places[:, 1]))
    new_sizes = padded_sizes(source_slice.samples["size"].to_numpy())
    offsets = position + np.cumsum(new_sizes) - new_sizes
    members = source_slice.samples["members"].to_numpy()
    return offsets, new_sizes, _moved_images(source_slice.samples, offsets), members, 0


def _moved_images(samples: pa.Table, offsets: Int64Array) -> Int64Array:
    """Offsets of the images in the new shard, shape (n,), int64; -1 without an image."""
    image = pc.fill_null(samples["image_offset"], -1).to_numpy()
    moved = np.where(image < 0, -1, image - samples["offset"].to_numpy() + offsets)
    for place in np.flatnonzero(samples["extents"].is_valid().to_numpy() & (image >= 0)).tolist():
        position = int(offsets[place])
        for extent in samples["extents"][place].as_py():
            # Its header stands before it in the same piece; an empty body begins where the piece may end.
            if extent["offset"] < image[place] <= extent["offset"] + extent["size"]:
                moved[place] = position + image[place] - extent["offset"]
            position += extent["size"]
    return moved


def _copy_members(buffer: Buffer, source_slice: SourceSlice, writer: HashingWriter) -> CopiedSamples:
    """Copy samples member by member: for hard links, global headers, duplicates or new names."""
    walked = members_by_key(buffer, source_slice.shard.path)
    offsets, images, members, anew = [], [], [], 0
    for line in source_slice.samples.select(["key", "image", "image_offset"]).to_pylist():
        offsets.append(writer.position)
        image = -1
        parts = without_duplicates(members_of_key(walked, line["key"], source_slice.shard.path))
        members.append(len(parts))
        for part, member in parts:
            start, (body, new_header) = writer.position, _copy_part(buffer, part, member, source_slice, writer)
            anew += new_header
            if (line["image"], line["image_offset"]) == (part.extension, part.body):
                image = start + body
        images.append(image)
    places = np.asarray(offsets, dtype=np.int64)
    sizes = np.diff(np.append(places, writer.position))
    return places, sizes, np.asarray(images, dtype=np.int64), np.asarray(members, dtype=np.int32), anew


def _copy_part(
    buffer: Buffer, part: SampleMember, member: Member, source_slice: SourceSlice, writer: HashingWriter
) -> tuple[int, bool]:
    """Copy one member; returns the bytes of header before its body, and whether that header is new."""
    readable = part.kind == FILE
    if source_slice.prefix is None and not (readable and (member.borrowed or member.kind != FILE)):
        writer.headers.update(buffer[member.header : member.body])
        writer.borrows |= member.kind == HARD_LINK
        writer.write(buffer[member.header : member.end])
        writer.write(padding(member.end - member.header))
        return member.body - member.header, False
    if not readable:
        raise ShardError(
            "only regular members can be renamed",
            shard=source_slice.shard.path,
            key=part.name,
            expected="a file or a hard link to one",
            found=member.kind,
            todo="rewrite without --rename, or leave the sample out of the manifest",
        )
    head = member_header(
        member.name if source_slice.prefix is None else f"{source_slice.prefix}/{member.name}", part.size
    )
    writer.headers.update(head)
    writer.write(head)
    writer.write(buffer[part.body : part.body + part.size])
    writer.write(padding(part.size))
    return len(head), True
