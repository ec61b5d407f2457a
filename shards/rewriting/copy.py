"""Writes one new shard from byte ranges of others: the task that a rewrite maps over its new shards.

Members are copied with their headers, but for those that another of the same extension replaces: webdataset refuses to
read a sample with both. A header is written anew only where the copy would not mean the same: for a
hard link, a name or size from a global PAX header, a new name. What goes where is `plan`'s decision.
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
from shards.io.atomic import atomic_write_unsynced
from shards.io.byte_ranges import shard_too_short
from shards.io.mapped import Buffer, open_mapped
from shards.io.shard_set import locate
from shards.tar.blocks import blocks_of, concatenated_ranges
from shards.tar.hashing_writer import HashingWriter, hashing_writer
from shards.tar.header import BLOCK
from shards.tar.header_chain import hash_headers, may_have_duplicates
from shards.tar.walk import FILE, HARD_LINK, Member
from shards.tar.writer import END, member_header, padding, shard_name


@dataclass(frozen=True)
class SourceSlice:
    """What a new shard takes from one source shard, in order.

    Args:
        shard: the source.
        prefix: put before the names of its members, with a ``/``; None leaves them as they are.
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
        shard: its entry in an index.
        sha256, xxh3: of the whole file, in hex.
        offsets, sizes: shape (n,), int64, of the samples in it.
        image_offsets: shape (n,), int64; -1 where there is no image.
        members: shape (n,), int32, of the samples.
        new_headers: members that have another header than in their source.
    """

    shard: Shard
    sha256: str
    xxh3: str
    offsets: Int64Array
    sizes: Int64Array
    image_offsets: Int64Array
    members: npt.NDArray[np.int32]
    new_headers: int


#: Offsets, sizes, image offsets and members of samples that were copied, and the number of their new headers.
CopiedSamples = tuple[Int64Array, Int64Array, Int64Array, npt.NDArray[np.int32], int]


@dataclass(frozen=True)
class CopyTask:
    """Called with a shard's number and what it is made of; writes it to ``folder``, which the caller syncs.

    Args:
        root: of the source's shard set.
        folder: of the new shards.
    """

    root: str
    folder: Path

    def __call__(self, item: tuple[int, tuple[SourceSlice, ...]]) -> WrittenShard:
        """Raises `ShardsChanged` where a source is shorter than its index says; `OSError` where the disk is full."""
        number, draws = item
        path = self.folder / shard_name(number)
        with atomic_write_unsynced(path) as file, hashing_writer(file) as sink:
            parts = [_copy_slice(self.root, draw, sink) for draw in draws]
            sink.put(END)
        offsets, sizes, images, members, anew = zip(*parts, strict=True)
        return WrittenShard(
            Shard(path.name, sink.position, sink.headers.hexdigest(), False, sink.borrows),
            sink.sha256.hexdigest(),
            sink.xxh3.hexdigest(),
            np.concatenate(offsets),
            np.concatenate(sizes),
            np.concatenate(images),
            np.concatenate(members),
            sum(anew),
        )


def _copy_slice(root: str, draw: SourceSlice, sink: HashingWriter) -> CopiedSamples:
    """Copy one draw."""
    with open_mapped(locate(root, draw.shard.path)) as source:
        starts, sizes = byte_extents(draw.samples)
        end = int((starts + sizes).max())
        if end > len(source.buffer):
            raise shard_too_short(draw.shard.path, end, len(source.buffer))
        blocks, first, counts = blocks_of(source.buffer), starts // BLOCK, padded_sizes(sizes) // BLOCK
        as_they_stand = draw.prefix is None and not draw.shard.borrows and not (starts % BLOCK).any()
        headers = sink.headers.copy()
        whole = (
            as_they_stand
            and hash_headers(blocks, first, counts, headers)
            and not may_have_duplicates(blocks, first, counts)
        )
        if not whole:
            return _copy_members(source.buffer, draw, sink)
        position, sink.headers = sink.position, headers
        sink.write_blocks(blocks, concatenated_ranges(first, counts))
    new_sizes = padded_sizes(draw.samples["size"].to_numpy())
    offsets = position + np.cumsum(new_sizes) - new_sizes
    members = draw.samples["members"].to_numpy()
    return offsets, new_sizes, _moved_images(draw.samples, offsets), members, 0


def _moved_images(samples: pa.Table, offsets: Int64Array) -> Int64Array:
    """Where the images are now, -1 where there is none."""
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


def _copy_members(buffer: Buffer, draw: SourceSlice, sink: HashingWriter) -> CopiedSamples:
    """Copy samples member by member, for a shard whose bytes do not tell all, or for new names."""
    walked = members_by_key(buffer, draw.shard.path)
    offsets, images, members, anew = [], [], [], 0
    for line in draw.samples.select(["key", "image", "image_offset"]).to_pylist():
        offsets.append(sink.position)
        image = -1
        parts = without_duplicates(members_of_key(walked, line["key"], draw.shard.path))
        members.append(len(parts))
        for part, member in parts:
            start, (body, new_header) = sink.position, _copy_part(buffer, part, member, draw, sink)
            anew += new_header
            if (line["image"], line["image_offset"]) == (part.extension, part.body):
                image = start + body
        images.append(image)
    places = np.asarray(offsets, dtype=np.int64)
    sizes = np.diff(np.append(places, sink.position))
    return places, sizes, np.asarray(images, dtype=np.int64), np.asarray(members, dtype=np.int32), anew


def _copy_part(
    buffer: Buffer, part: SampleMember, member: Member, draw: SourceSlice, sink: HashingWriter
) -> tuple[int, bool]:
    """Copy one member; return how far into it its body begins, and whether its header is new."""
    readable = part.kind == FILE
    if draw.prefix is None and not (readable and (member.borrowed or member.kind != FILE)):
        sink.headers.update(buffer[member.header : member.body])
        sink.borrows |= member.kind == HARD_LINK
        sink.put(buffer[member.header : member.end])
        sink.put(padding(member.end - member.header))
        return member.body - member.header, False
    if not readable:
        raise ShardError(
            "only regular members can be renamed",
            shard=draw.shard.path,
            key=part.name,
            expected="a file or a hard link to one",
            found=member.kind,
            todo="rewrite without --rename, or leave the sample out of the manifest",
        )
    head = member_header(member.name if draw.prefix is None else f"{draw.prefix}/{member.name}", part.size)
    sink.headers.update(head)
    sink.put(head)
    sink.put(buffer[part.body : part.body + part.size])
    sink.put(padding(part.size))
    return len(head), True
