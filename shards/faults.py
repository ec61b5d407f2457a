"""The kinds of fault that indexing reports, each explained in docs/formats/shards.md; and one fault."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

#: Every kind of fault, in the order in which a reader meets them: list, archive, member, sample, content.
KINDS = (
    "missing-shard",
    "passed-over",
    "unread-shard",
    "not-a-tar",
    "empty-shard",
    "truncated",
    "wrong-checksum",
    "corrupt-header",
    "no-end-marker",
    "data-after-end",
    "link-member",
    "sparse-member",
    "other-member",
    "no-extension",
    "hidden-member",
    "reserved-name",
    "unsafe-name",
    "odd-name",
    "duplicate-member",
    "non-adjacent",
    "duplicate-key",
    "several-images",
    "no-image",
    "empty-member",
    "not-an-image",
    "truncated-image",
    "image-too-large",
    "unsupported-image",
    "bad-sidecar",
    "bad-label",
    "missing-image",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong.

    Args:
        kind: one of `KINDS`.
        shard: path relative to the root of the shard set.
        key: the sample's key, where the fault has one.
        offset: byte in the (uncompressed) shard, where the fault has one.
        detail: a sentence for people that names the member and the numbers.
    """

    kind: str
    shard: str
    key: str | None
    offset: int | None
    detail: str

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.kind}: not a kind of fault ({', '.join(KINDS)})")

    def __str__(self) -> str:
        return f"{self.shard}: {self.kind}: {self.detail}"

    def record(self) -> dict[str, Any]:
        """The JSON form: ``kind``, ``shard``, ``key``, ``offset``, ``detail``."""
        return asdict(self)
