"""The plan of a rewrite is arithmetic: exact at the byte, greedy, adding up; headers read at once equal the walk."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_makers import indexed, make_store, numbered, write_tar

from shards.errors import ShardError
from shards.indexing import key_hashes
from shards.indexing.index import Index
from shards.indexing.scan import size_and_checksum
from shards.rewriting import plan
from shards.tar.blocks import blocks_of, concatenated_ranges
from shards.tar.header_chain import headers_checksum, run_headers
from shards.tar.writer import END


def keys_of(keys: list[str]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(keys, pa.string())])


def cut(sizes: list[int], keys: list[str], shard_size: int) -> list[list[int]]:
    rows = np.arange(len(sizes), dtype=np.int64)
    return [
        shard.rows.tolist()
        for shard in plan.assign_to_shards(rows, np.array(sizes, np.int64), keys_of(keys), shard_size)
    ]


def test_a_shard_is_filled_to_the_exact_byte() -> None:
    """Two samples of 1,024 bytes and 1,024 of end blocks are 3,072."""
    assert cut([1024] * 4, list("abcd"), 3072) == [[0, 1], [2, 3]]
    assert cut([1024] * 4, list("abcd"), 3071) == [[0], [1], [2], [3]]


def test_a_key_begins_a_new_shard_rather_than_stand_twice_in_one() -> None:
    assert cut([512] * 6, list("abcbca"), 1 << 20) == [[0, 1, 2], [3, 4, 5]]
    assert key_hashes.previous_with_key(keys_of(list("abcbca"))).tolist() == [-1, -1, -1, 1, 2, 0]


@settings(max_examples=200, deadline=None)
@given(
    samples=st.lists(st.tuples(st.integers(1, 40), st.sampled_from("abcdefgh")), max_size=40), room=st.integers(1, 100)
)
def test_cutting_is_what_a_loop_over_the_samples_does(samples: list[tuple[int, str]], room: int) -> None:
    sizes, keys = [512 * n for n, _ in samples], [key for _, key in samples]
    expected: list[list[int]] = []
    for row, (size, key) in enumerate(zip(sizes, keys, strict=True)):
        last = expected[-1] if expected else []
        held = sum(sizes[place] for place in last) + len(END)
        if not last or held + size > 512 * room or key in [keys[place] for place in last]:
            expected.append([row])
        else:
            last.append(row)
    assert cut(sizes, keys, 512 * room) == expected


@pytest.fixture
def store(tmp_path: Path) -> Index:
    return make_store(tmp_path / "store", {f"{n}.tar": numbered(10 * n, 10) for n in range(2)})


def test_counts_that_do_not_add_up_are_an_error_with_both_numbers(store: Index) -> None:
    outcome = np.full(20, plan.KEPT, dtype=np.uint8)
    outcome[[3, 15]] = plan.PRUNED
    counts = plan.counts_by_shard(store, outcome)
    plan.check_conservation(store, counts, np.array([9, 9]))
    with pytest.raises(ShardError, match=r"1\.tar: samples do not add up \(expected 10, found 9 = kept \+ pruned \+"):
        plan.check_conservation(store, counts, np.array([9, 8]))


def test_an_unsafe_sample_counts_as_that_whatever_else_it_is(tmp_path: Path) -> None:
    """Unsafe before imageless before undecodable before what the manifest says."""
    names = ["../a.json", "b.json", "c.jpg", "d.jpg", "e..f/g.jpg", "/h.jpg"]
    store = make_store(tmp_path, {"0.tar": [(name, b"x") for name in names]})
    every = np.arange(6)
    found = plan.outcomes(store, np.array([0, 1, 2, 3, 4]), every[:3], keep_all_broken=False)
    named = dict(zip(store.table["key"].to_pylist(), [plan.OUTCOMES[code] for code in found], strict=True))
    assert named == {
        "../a": "unsafe", "b": "imageless", "c": "undecodable", "d": "kept", "e..f/g": "kept", "/h": "unsafe"
    }  # fmt: skip
    kept = plan.outcomes(store, np.array([3]), every[:3], keep_all_broken=True)
    assert [plan.OUTCOMES[code] for code in kept] == ["unsafe", "kept", "kept", "kept", "pruned", "unsafe"]


def test_the_default_size_is_the_median_of_the_shards_with_samples(tmp_path: Path) -> None:
    """Samples of 1, 2 and 5 members of 1,024 bytes each, and a shard without any."""
    shards = {f"{n}.tar": [(f"{n}.{k}", b"x") for k in range(n)] for n in (1, 2, 5)}
    store = make_store(tmp_path, {**shards, "0.tar": [("README", b"")]})
    assert plan.median_size(store) == 2 * 1024 + len(END)


def test_stretches_are_ranges_one_after_another() -> None:
    assert concatenated_ranges(np.array([5, 9, 1]), np.array([2, 0, 3])).tolist() == [5, 6, 1, 2, 3]


@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_headers_read_at_once_are_those_of_the_walk(tmp_path: Path, format: int) -> None:
    """With long names where the format has them: PAX and GNU put them into extension headers."""
    long = "" if format == tarfile.USTAR_FORMAT else "n" * 150
    members = [(f"{n}{long * (n % 3 == 0)}.{e}", bytes(n * 100)) for n in range(20) for e in ("jpg", "txt")]
    write_tar(tmp_path / "0.tar", members, format)
    index = indexed(tmp_path)
    starts, sizes = index.table["offset"].to_numpy(), index.table["size"].to_numpy()
    data = (tmp_path / "0.tar").read_bytes()
    assert (
        headers_checksum(data, starts, sizes)
        == size_and_checksum(str(tmp_path / "0.tar"))[1]
        == index.shards[0].checksum
    )
    assert (
        headers_checksum(data[:-10240] + b"x" * 512, starts, sizes) is None
    )  # something stands behind the last sample
    assert headers_checksum(data, starts[1:], sizes[1:]) is None  # something stands before the first


def test_what_is_not_in_plain_sight_is_left_to_the_walk(tmp_path: Path) -> None:
    """A size in base-256, a size that runs past the run, a sparse member, damage, a run past the end."""
    write_tar(tmp_path / "0.tar", [("a.jpg", b"x" * 700)])
    good = (tmp_path / "0.tar").read_bytes()
    run = np.array([0]), np.array([3])  # a header and two blocks
    assert run_headers(blocks_of(good), *run) is not None
    base256 = good[:124] + b"\x80" + bytes(10) + b"\x02" + good[136:]
    longer = good[:124] + b"00000010000\0" + good[136:]
    for data in (base256, longer, good[:156] + b"S" + good[157:], bytes(len(good)), good[: 2 * 512]):
        assert run_headers(blocks_of(data), *run) is None


def test_a_link_with_a_size_is_left_to_the_walk() -> None:
    """The size of a link counts for nothing, and readers differ over what follows."""
    member = tarfile.TarInfo("a.jpg")
    member.type, member.linkname, member.size = tarfile.LNKTYPE, "b.jpg", 600
    data = io.BytesIO(member.tobuf(tarfile.USTAR_FORMAT) + bytes(1024)).getvalue()
    assert run_headers(blocks_of(data), np.array([0]), np.array([3])) is None
