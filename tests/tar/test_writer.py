"""Tars that we write: reproducible, read back by `tarfile` and webdataset, rolled over at the exact byte."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_makers import read_set, read_tar

from shards.errors import Misuse
from shards.tar.writer import END, member_header, sample_bytes, shard_name, write_shards

SAMPLES = [[(f"{n:03d}.jpg", bytes([n]) * 100), (f"{n:03d}.cls", str(n).encode())] for n in range(5)]
#: One member of 100 bytes: header 512, body padded to 512; the label likewise.
SAMPLE_BYTES = 4 * 512


def test_members_come_back_in_order_with_their_bytes(tmp_path: Path) -> None:
    (path,) = write_shards(tmp_path, SAMPLES)
    assert path.name == "000000.tar"
    assert read_tar(path) == [member for sample in SAMPLES for member in sample]


def test_headers_hold_no_clock_and_no_owner(tmp_path: Path) -> None:
    write_shards(tmp_path, SAMPLES)
    with tarfile.open(tmp_path / "000000.tar") as tar:
        for member in tar:
            assert (member.mtime, member.uid, member.gid, member.uname, member.gname) == (0, 0, 0, "", "")
            assert member.mode == 0o644


def test_bytes_of_a_small_shard_are_these(tmp_path: Path) -> None:
    """The digest is of the first file this function wrote; readers of `tarfile` confirmed its members above."""
    (path,) = write_shards(tmp_path, [[("a.txt", b"hello")]])
    expected = tarfile_bytes("a.txt", b"hello")
    assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(expected).digest()


def tarfile_bytes(name: str, body: bytes) -> bytes:
    """The same by hand: a header of `tarfile`, the body, zeros to the block, two zero blocks."""
    member = tarfile.TarInfo(name)
    member.size = len(body)
    return member.tobuf(tarfile.USTAR_FORMAT) + body + bytes(512 - len(body)) + bytes(1024)


def test_a_shard_is_filled_to_the_exact_byte(tmp_path: Path) -> None:
    """Two samples and the end blocks fit 2 * 2048 + 1024 bytes; one byte less, and only one does."""
    exact = 2 * SAMPLE_BYTES + len(END)
    assert len(write_shards(tmp_path / "fits", SAMPLES, shard_size=exact)) == 3  # 2 + 2 + 1
    assert (tmp_path / "fits" / "000000.tar").stat().st_size == exact
    assert len(write_shards(tmp_path / "less", SAMPLES, shard_size=exact - 1)) == 5


def test_a_sample_larger_than_a_shard_has_one_of_its_own(tmp_path: Path) -> None:
    paths = write_shards(tmp_path, SAMPLES, shard_size=1)
    assert [path.name for path in paths] == [shard_name(n) for n in range(5)]
    assert all(len(read_tar(path)) == 2 for path in paths)


def test_no_sample_makes_no_shard(tmp_path: Path) -> None:
    assert write_shards(tmp_path, []) == []
    assert list(tmp_path.iterdir()) == []


def test_a_shard_size_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"size of a shard \(expected 1 to [0-9]+ bytes, found 0\)"):
        write_shards(tmp_path, SAMPLES, shard_size=0)


def test_a_failure_leaves_no_shard_under_a_final_name(tmp_path: Path) -> None:
    def samples():  # type: ignore[no-untyped-def]
        yield SAMPLES[0]
        raise RuntimeError("source gone")

    with pytest.raises(RuntimeError, match="source gone"):
        write_shards(tmp_path, samples())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # webdataset leaves files open
def test_webdataset_reads_what_we_write(tmp_path: Path) -> None:
    import webdataset

    paths = write_shards(tmp_path, SAMPLES, shard_size=3 * SAMPLE_BYTES)
    found = list(webdataset.WebDataset([str(path) for path in paths], shardshuffle=False))
    assert [(sample["__key__"], sample["jpg"], sample["cls"]) for sample in found] == [
        (image[0][:-4], image[1], label[1]) for image, label in SAMPLES
    ]


names = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=130)
samples = st.lists(st.lists(st.tuples(names, st.binary(max_size=1500)), min_size=1, max_size=3), max_size=8)


@settings(max_examples=25, deadline=None)
@given(samples=samples, shard_size=st.integers(1, 20_000))
def test_any_names_and_bytes_come_back_and_twice_the_same(
    tmp_path_factory: pytest.TempPathFactory, samples: list[list[tuple[str, bytes]]], shard_size: int
) -> None:
    first, second = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    paths = write_shards(first, samples, shard_size=shard_size)
    again = write_shards(second, samples, shard_size=shard_size)
    assert read_set(first) == [member for sample in samples for member in sample]
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in again]
    for path in paths:
        assert path.stat().st_size <= shard_size or len(read_tar(path)) <= 3


def test_a_name_that_is_not_utf8_survives_byte_for_byte(tmp_path: Path) -> None:
    name = b"fran\xe7ais.txt".decode("utf-8", "surrogateescape")
    (path,) = write_shards(tmp_path, [[(name, b"x")]])
    assert read_tar(path) == [(name, b"x")]


def test_every_part_is_whole_blocks() -> None:
    assert len(member_header("a" * 300, 5)) % 512 == 0
    assert len(sample_bytes([("a.txt", b"x" * 513)])) == 512 + 2 * 512
