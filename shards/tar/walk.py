"""Walks a tar, whole or damaged: yields every member with its byte offsets, and every fault, from headers alone.

Owns how headers, extension headers (GNU long names, PAX, sparse maps) and end markers follow one another, and how the
walk resumes after damage. Works on a buffer; `shards.io.mapped` opens files, `shards.indexing.sample` groups members to
samples. Bodies are never read, and no size is ever allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from shards.faults import Fault
from shards.io.mapped import Buffer
from shards.member_names import split_name, storable
from shards.tar import header as headers
from shards.tar.bulk_walk import MIN_LOOKAHEAD, PLAIN_TYPES, MemberRun, decode_names, member_runs, next_lookahead
from shards.tar.header import BLOCK, BadHeader, Header, Records

BytesLike = bytes | memoryview

FILE, FOLDER, HARD_LINK, SYMBOLIC_LINK, SPARSE = "file", "folder", "hardlink", "symlink", "sparse"
DEVICE, FIFO, OTHER = "device", "fifo", "other"
#: Kinds without a content that could be read, in words.
UNREADABLE = {DEVICE: "a device", FIFO: "a fifo", OTHER: "of an unknown type"}
_KINDS = {
    **{b"0": FILE, b"\0": FILE, b"7": FILE, b"5": FOLDER, b"1": HARD_LINK, b"2": SYMBOLIC_LINK, b"S": SPARSE},
    **{b"3": DEVICE, b"4": DEVICE, b"6": FIFO},
}
_WITHOUT_BODY = (b"1", b"2", b"3", b"4", b"5", b"6")
_EXTENSIONS = (b"L", b"K", b"x", b"X", b"g")
#: Limit of an extension header's body; a larger one is damage.
MAX_EXTENSION_BYTES = 16 << 20
#: Limit of a name in a global PAX header, which would apply to every member that follows.
MAX_GLOBAL_NAME = 4096
#: PAX records that are read; of the others of sparse members it only matters whether there is one.
_KNOWN_RECORDS = ("path", "linkpath", "size", "GNU.sparse.name")
_SPARSE = "GNU.sparse."


class Member(NamedTuple):
    """One member; all offsets are bytes of the uncompressed tar.

    Args:
        name: the full name, decoded as UTF-8 with ``surrogateescape``.
        kind: ``file``, ``folder``, ``hardlink``, ``symlink``, ``sparse``, ``device``, ``fifo`` or ``other``.
        header: its first block, PAX and GNU extension blocks included.
        body, size: where its stored bytes begin, and how many they are.
        end: the end of its padding (of the file, where the file lacks that padding).
        link: the name a link points to, else empty.
        borrowed: name, size or link come from a global PAX header, so the member's own blocks do not tell them.
    """

    name: str
    kind: str
    header: int
    body: int
    size: int
    end: int
    link: str
    borrowed: bool


@dataclass
class _Walk:
    """State of a walk: the offset of the next block, and what extension headers have set so far."""

    offset: int = 0
    start: int | None = None
    own: Records = field(default_factory=dict)
    common: Records = field(default_factory=dict)
    n_end_blocks: int = 0
    after_end: int | None = None
    n_after_end: int = 0
    run_length: int = MIN_LOOKAHEAD

    def forget(self) -> None:
        """Drop the extension headers of a member that is done."""
        self.start, self.own = None, {}


def walk(buffer: Buffer, shard: str, on_header: Callable[[BytesLike], object] = len) -> Iterator[Member | Fault]:
    """Yield the members and faults of a tar, in order of offset.

    After a damaged header the walk resumes at the next valid one; after an end marker, at what follows it. A member
    whose body is truncated is a fault and no member.

    Args:
        buffer: the uncompressed tar.
        shard: its name in the faults.
        on_header: called with the bytes of every member's header blocks, extensions included, in order.
    """
    for piece in walk_runs(buffer, shard, on_header):
        if isinstance(piece, MemberRun):
            yield from members_of(piece)
        else:
            yield piece


def members_of(run: MemberRun) -> Iterator[Member]:
    """The members of a run one by one."""
    places = (column.tolist() for column in (run.starts, run.bodies, run.sizes, run.ends))
    for name, start, body, size, end in zip(decode_names(run.names), *places, strict=True):
        yield Member(name, FILE, start, body, size, end, "", False)


def walk_runs(
    buffer: Buffer, shard: str, on_header: Callable[[BytesLike], object] = len
) -> Iterator[MemberRun | Member | Fault]:
    """`walk`, with consecutive plain members as one `MemberRun`: many times faster."""
    state = _Walk()
    while state.offset + BLOCK <= len(buffer):
        before = state.offset
        yield from _next_runs(buffer, state, on_header)
        if state.offset > before:
            continue
        block = buffer[state.offset : state.offset + BLOCK]
        if not any(block[:8]) and not any(block):
            if state.start is not None:
                detail = f"an extension header without a member at byte {state.start}"
                yield Fault("corrupt-header", shard, None, state.start, detail)
            _skip_zeros(buffer, state)
            continue
        state.n_end_blocks = 0
        try:
            header = headers.parse(block)
            found = _step(buffer, shard, state, header, on_header)
        except BadHeader as error:
            if state.after_end != before:
                yield Fault("corrupt-header", shard, None, before, f"{error} at byte {before}")
            state.forget()
            state.offset = next_header(buffer, max(state.offset, before + BLOCK))
            # Whether an end marker stands behind the damage cannot be known: a body may hold zeros.
            state.n_end_blocks = 2 if state.offset >= len(buffer) else 0
            continue
        if found is not None:
            state.n_after_end += state.after_end is not None and isinstance(found, Member)
            yield found
    yield from _end_faults(buffer, shard, state)


def _next_runs(buffer: Buffer, state: _Walk, on_header: Callable[[BytesLike], object]) -> Iterator[MemberRun]:
    """The plain members that come next; none while an extension header is pending."""
    if state.start is not None or state.common or buffer[state.offset + 156] not in PLAIN_TYPES:
        return
    n_members = 0
    for run, header_bytes in member_runs(buffer, state.offset, state.run_length):
        on_header(header_bytes)
        n_members += len(run.names)
        state.offset, state.n_end_blocks = int(run.ends[-1]), 0
        state.n_after_end += len(run.names) if state.after_end is not None else 0
        yield run
    state.run_length = next_lookahead(state.run_length, n_members)


def next_header(buffer: Buffer, offset: int) -> int:
    """Offset of the first valid header at or after ``offset``; the buffer's length where there is none."""
    while offset + BLOCK <= len(buffer):
        # Nearly every block of a body fails on these few bytes.
        if buffer[offset + 148 : offset + 156].strip(b" 01234567\0") == b"" and buffer[offset + 150]:
            block = buffer[offset : offset + BLOCK]
            if headers.checksum_holds(block) and is_header(block):
                return offset
        offset += BLOCK
    return len(buffer)


def is_header(block: bytes) -> bool:
    """Whether a block is a valid header."""
    try:
        headers.parse(block)
    except BadHeader:
        return False
    return True


def _step(
    buffer: Buffer, shard: str, state: _Walk, header: Header, on_header: Callable[[BytesLike], object]
) -> Member | Fault | None:
    """Parse one header and move past it: an extension goes into the state, a member is returned.

    Raises:
        BadHeader: what an extension says cannot be.
    """
    if header.type in _EXTENSIONS:
        return _take_extension(buffer, shard, state, header, on_header)
    records = {**state.common, **state.own} if state.common else state.own
    member = _member(buffer, state, header, records)
    have = len(buffer) - member.body
    if have < member.size:
        state.offset, state.n_end_blocks = len(buffer), 2
        state.forget()
        return _truncated(shard, member.name, member.header, f"({max(have, 0)} of {member.size} bytes)")
    on_header(buffer[state.offset : member.body])
    state.offset = member.end
    state.forget()
    return member


def _take_extension(
    buffer: Buffer, shard: str, state: _Walk, header: Header, on_header: Callable[[BytesLike], object]
) -> Fault | None:
    body = state.offset + BLOCK
    if header.size > MAX_EXTENSION_BYTES:
        raise BadHeader(f"extension header of {header.size} bytes")
    end = body + header.size + -header.size % BLOCK
    if end > len(buffer):
        offset, state.offset, state.n_end_blocks = state.offset, len(buffer), 2
        return _truncated(shard, "an extension header", offset, f"({len(buffer) - body} of {header.size} bytes)")
    data = buffer[body : body + header.size]
    # Set first, so that where the extension is invalid the walk resumes after it.
    offset, state.offset = state.offset, end
    if header.type == b"g":
        # A record with an empty value revokes that of an earlier global header.
        state.common = {**state.common, **_common(data)}
    else:
        records = _known_records(data) if header.type in (b"x", b"X") else _long_name(header.type, data)
        state.own = {**records, **state.own}
        state.start = offset if state.start is None else state.start
    on_header(buffer[offset:end])
    return None


def _known_records(data: bytes) -> Records:
    """The records of a PAX header that are read here, and a mark where any other says that the member is sparse."""
    stored = headers.pax_records(data)
    known = {keyword: stored[keyword] for keyword in _KNOWN_RECORDS if keyword in stored}
    return known | {_SPARSE: b""} if any(keyword.startswith(_SPARSE) for keyword in stored) else known


def _common(data: bytes) -> Records:
    records = _known_records(data)
    longest = max(map(len, records.values()), default=0)
    if longest > MAX_GLOBAL_NAME:
        raise BadHeader(f"global header with a name of {longest} bytes")
    return records


def _long_name(kind: bytes, data: bytes) -> Records:
    return {"path" if kind == b"L" else "linkpath": headers.until_nul(data)}


def _member(buffer: Buffer, state: _Walk, header: Header, records: Records) -> Member:
    """The member of a header and its extension records. An empty value stands for the header's own."""
    name = records.get("GNU.sparse.name") or records.get("path") or header.name
    link = records.get("linkpath") or header.link
    size = _pax_size(records["size"]) if records.get("size") else header.size
    kind = _KINDS.get(header.type, OTHER)
    if header.type == b"\0" and name.endswith(b"/"):
        kind = FOLDER  # v7 has no type for folders
    elif kind == FILE and _SPARSE in records:
        kind = SPARSE
    if kind == FOLDER or header.type in _WITHOUT_BODY:
        size = 0
    body = state.offset + BLOCK
    if header.type == b"S":
        body = _past_sparse_map(buffer, state.offset)
    end = min(body + size + -size % BLOCK, len(buffer))
    first = state.offset if state.start is None else state.start
    borrowed = any(state.common.get(word) and not state.own.get(word) for word in ("path", "linkpath", "size"))
    text = name.rstrip(b"/") if kind == FOLDER else name
    return Member(_decode_name(text), kind, first, body, size, end, _decode_name(link), borrowed)


def _past_sparse_map(buffer: Buffer, offset: int) -> int:
    """The end of an old GNU sparse header, whose map may go on in blocks of its own."""
    more, offset = buffer[offset + 482], offset + BLOCK
    while more and offset + BLOCK <= len(buffer):
        more, offset = buffer[offset + 504], offset + BLOCK
    return offset


def _pax_size(value: bytes) -> int:
    if not value.isdigit() or len(value) > 19:
        raise BadHeader(f"PAX size {value[:20]!r}")
    return int(value)


def _decode_name(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _truncated(shard: str, name: str, offset: int, how_much: str) -> Fault:
    split = split_name(name)
    key = None if split is None else storable(split[0])
    return Fault("truncated", shard, key, offset, f"truncated in {storable(name)} {how_much}")


def _skip_zeros(buffer: Buffer, state: _Walk) -> None:
    """Skip a run of zero blocks, and note whether something follows it."""
    first, length = state.offset, BLOCK
    while state.offset < len(buffer):
        chunk = buffer[state.offset : state.offset + length]
        n_zeros = len(chunk) - len(chunk.lstrip(b"\0"))
        state.offset += n_zeros
        if n_zeros < len(chunk):
            break
        length = min(2 * length, 1 << 20)  # never much more than there are zeros
    n_blocks = (state.offset - first) // BLOCK
    state.n_end_blocks = n_blocks
    if state.offset < len(buffer):
        state.offset = first + n_blocks * BLOCK
        state.after_end = state.offset if state.after_end is None else state.after_end
    state.forget()


def _end_faults(buffer: Buffer, shard: str, state: _Walk) -> Iterator[Fault]:
    rest = len(buffer) - state.offset
    if len(buffer) % BLOCK and rest == 0 and state.n_end_blocks == 0:
        detail = f"ends inside the padding of its last member ({len(buffer)} bytes)"
        yield Fault("truncated", shard, None, len(buffer), detail)
        return
    if state.after_end is not None:
        what = f"{state.n_after_end} more members in" if state.n_after_end else "no member in"
        detail = f"goes on after its end marker: {what} {len(buffer) - state.after_end} bytes"
        yield Fault("data-after-end", shard, None, state.after_end, detail)
    if rest > 0 and any(buffer[state.offset :]):
        yield Fault("truncated", shard, None, state.offset, f"ends inside a header at byte {state.offset}")
    elif state.n_end_blocks < 2:
        found = "no end-of-archive marker" if state.n_end_blocks == 0 else "one end block in place of two"
        yield Fault("no-end-marker", shard, None, len(buffer), f"{found}: it may be cut")
