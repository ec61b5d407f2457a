"""The work of an index grows with the bytes of a shard and no faster, whatever stands in them.

Held by processor time, four times the input against the input: linear work takes four times as long, quadratic work
sixteen times; ten is the bound. Never an absolute time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from index_makers import indexed
from tar_makers import END, header, line, member, pax

from shards.indexing import members
from shards.stream import samples

PATIENCE = 3


def long_name(name: bytes) -> bytes:
    return member(b"long", name, b"L") + member(name[:90], b"x")


def plain_members(n: int) -> bytes:
    return b"".join(member(b"%06d.jpg" % number, b"x") for number in range(n))


def many_records(n: int) -> bytes:
    return member(b"g", b"".join(line(b"comment.%d=x" % number) for number in range(20 * n)), b"g") + plain_members(n)


SHARDS: dict[str, tuple[int, Callable[[int], bytes]]] = {
    "folders in a name": (20_000, lambda n: long_name(b"a/" * n + b"a")),
    "slashes": (20_000, lambda n: long_name(b"/" * n + b"a")),
    "slashes and a dot": (20_000, lambda n: long_name(b"/" * n + b".a")),
    "line feeds": (20_000, lambda n: long_name(b"a.\n/" * n + b"a.jpg")),
    "underscores": (20_000, lambda n: long_name(b"_" * n)),
    "a global header of many records": (400, many_records),
    "a global name": (400, lambda n: pax(b"path=" + b"p" * 500 * n, kind=b"g") + plain_members(n)),
    "hard links": (300, lambda n: b"".join(header(b"%d.png" % i, 0, b"1", b"000000.jpg") for i in range(n))),
    "zero blocks": (120, lambda n: b"".join(member(b"%d.jpg" % number) + bytes(512) for number in range(n))),
    "extensions in one another": (1000, lambda n: b"".join(header(b"x", 512 * (n - i), b"x") for i in range(2 * n))),
    "images of one sample": (500, lambda n: b"".join(member(b"a.%d.jpg" % number, b"x") for number in range(n))),
    "samples apart": (500, lambda n: plain_members(n) + plain_members(n).replace(b"jpg", b"cls")),
    "bad headers": (100, lambda n: (b"?" * 512 + member(b"a.jpg", b"x")) * n),
}  # fmt: skip


def seconds(folder: Path, tar: bytes, check: bool) -> float:
    """Processor time of an index of one shard, the least of a few."""
    (folder / "0.tar").write_bytes(plain_members(1) + tar + END)
    times = []
    for _ in range(PATIENCE):
        start = time.process_time()
        indexed(folder, check=check)
        times.append(time.process_time() - start)
    return min(times)


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("name", SHARDS)
def test_four_times_the_bytes_take_about_four_times_as_long(name: str, check: bool, tmp_path: Path) -> None:
    n, make = SHARDS[name]
    assert seconds(tmp_path, make(4 * n), check) < 10 * max(seconds(tmp_path, make(n), check), 0.002)


def test_a_shard_of_hard_links_is_walked_once_for_all_its_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = b"".join(header(b"%d.jpg" % number, 0, b"1", b"000000.jpg") for number in range(1, 30))
    (tmp_path / "0.tar").write_bytes(plain_members(1) + links + END)
    index, _ = indexed(tmp_path)
    walks = []
    whole = members.members_by_key
    monkeypatch.setattr(members, "members_by_key", lambda *given: walks.append(given) or whole(*given))
    assert [sample["jpg"] for sample in samples(index, np.arange(30))] == [b"x"] * 30
    assert len(walks) == 1
