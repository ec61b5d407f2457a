"""Writes one new shard from byte ranges of source shards: the task that a rewrite maps over its new shards.

Members keep their headers. A new header is written only where the copied one would mean something else: a hard link, a
name or size from a global PAX header, a renamed sample. A member that a later one of the same extension replaces is not
copied, as webdataset refuses a sample with both. `shards.rewriting.plan` decides what goes where.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from shards.tar.blocks import blocks_of, concatenated_ranges
from shards.tar.hashing_writer import HashingWriter, hashing_writer
from shards.tar.header import BLOCK
from shards.tar.header_chain import hash_distinct
from shards.tar.walk import FILE, HARD_LINK, Member
from shards.tar.writer import END, member_header, padding, shard_name


@dataclass(frozen=True)
class SourceSlice:
    """The samples that a new shard takes from one source shard, in order.

    Args:
        shard: the source shard.
        prefix: put before the names of its members, with a ``/``; None keeps them.
        samples: columns ``key``, ``offset``, ``size``, ``image``, ``image_offset``, ``image_size``, ``members``,
            ``extents``.
    """

    shard: Shard
    prefix: str | None
    samples: pa.Table


@dataclass(frozen=True)
class WrittenShard:
    """A shard that was written.

    Args:
        shard: its entry in the new index.
        sha256, xxh3: of the whole file, hex.
        samples: their number.
        new_headers: number of members whose header was written anew.
    """

    shard: Shard
    sha256: str
    xxh3: str
    samples: int
    new_headers: int


#: Where the samples of a new shard lie in it.
PLACES = pa.schema([ROW.field(name) for name in ("offset", "size", "image_offset", "members")])
#: Offsets, sizes, image offsets and members of the copied samples, and the number of new headers.
CopiedSamples = tuple[Int64Array, Int64Array, Int64Array, npt.NDArray[np.int32], int]


@dataclass(frozen=True)
class CopyTask:
    """Callable on (number, slices): writes that shard into ``folder``, whose caller syncs it.

    Args:
        root: of the source's shard set.
        folder: of the new shards.
    """

    root: str
    folder: Path

    def __call__(self, item: tuple[int, tuple[SourceSlice, ...]]) -> tuple[WrittenShard, pa.RecordBatch]:
        """The new shard, and where its samples lie in it, as `PLACES`.

        Raises `ShardsChanged` where a source is shorter than its index says, `OSError` where the disk is full.
        """
        number, slices = item
        path = self.folder / shard_name(number)
        with atomic_write_unsynced(path) as file, hashing_writer(file) as writer:
            parts = [_copy_slice(self.root, source_slice, writer) for source_slice in slices]
            writer.write(END)
        *places, anew = zip(*parts, strict=True)
        offsets, sizes, images, members = (np.concatenate(column) for column in places)
        columns = [offsets, sizes, pa.array(images, mask=images < 0), members]
        written = WrittenShard(
            Shard(path.name, writer.position, writer.headers.hexdigest(), False, writer.borrows),
            writer.sha256.hexdigest(),
            writer.xxh3.hexdigest(),
            len(offsets),
            sum(anew),
        )
        return written, pa.record_batch([pa.array(column) for column in columns], schema=PLACES)


def _copy_slice(root: str, source_slice: SourceSlice, writer: HashingWriter) -> CopiedSamples:
    """Copy one slice: whole blocks at once where nothing needs a new header, else member by member."""
    with open_mapped(locate(root, source_slice.shard.path)) as source:
        starts, sizes = byte_extents(source_slice.samples)
        end = int((starts + sizes).max())
        if end > len(source.buffer):
            raise shard_too_short(source_slice.shard.path, end, len(source.buffer))
        blocks, first, counts = blocks_of(source.buffer), starts // BLOCK, padded_sizes(sizes) // BLOCK
        as_they_stand = source_slice.prefix is None and not source_slice.shard.borrows and not (starts % BLOCK).any()
        headers = writer.headers.copy()
        if not (as_they_stand and hash_distinct(blocks, first, counts, headers)):
            return _copy_members(source.buffer, source_slice, writer)
        position, writer.headers = writer.position, headers
        writer.write_blocks(blocks, concatenated_ranges(first, counts))
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
