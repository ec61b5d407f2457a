"""A gzip gives all that can be unpacked of it, and says what is wrong: cut, damaged, its checksum wrong."""

from __future__ import annotations

import gzip
import io
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_makers import indexed, kinds, put, rows
from strategies import tar_of

from shards.indexing.index_file import load, save
from shards.io.byte_ranges import uncompressed
from shards.io.inflate import CHUNK, GzipReader
from shards.stream import image_batches

RANDOM = random.Random(0).randbytes(3 << 20)


def unpacked(packed: bytes) -> tuple[bytes, str | None, str | None]:
    """All bytes, the damage and the mismatch."""
    stream = GzipReader(io.BytesIO(packed))
    data = stream.read()
    return data or b"", stream.damage, stream.mismatch


def with_wrong(packed: bytes, place: int) -> bytes:
    """One byte changed, counted from the end: 8 to 5 are the CRC, 4 to 1 the length."""
    return packed[:-place] + bytes((packed[-place] ^ 1,)) + packed[len(packed) - place + 1 :]


@given(st.lists(st.binary(max_size=2000), min_size=1, max_size=4), st.integers(0, 9), st.integers(0, 600))
def test_a_sound_gzip_is_what_was_packed(parts: list[bytes], level: int, n_zeros: int) -> None:
    packed = b"".join(gzip.compress(part, level) for part in parts)
    assert unpacked(packed + bytes(n_zeros)) == (b"".join(parts), None, None)


@pytest.mark.parametrize("data", [RANDOM, bytes(5 << 20), RANDOM[: CHUNK + 1]], ids=["random", "zeros", "chunk"])
def test_a_large_gzip_is_what_was_packed(data: bytes) -> None:
    assert unpacked(gzip.compress(data, 1)) == (data, None, None)


def test_a_header_with_all_that_may_stand_in_it_is_passed() -> None:
    deflated = gzip.compress(b"body")[10:]
    head = b"\x1f\x8b\x08" + bytes((2 | 4 | 8 | 16,)) + bytes(6) + b"\x03\x00abc" + b"name\0" + b"comment\0" + b"\1\2"
    assert unpacked(head + deflated) == (b"body", None, None)


@pytest.mark.parametrize(("place", "words"), [(8, "the CRC of the gzip"), (4, "the length of the gzip")])
@pytest.mark.parametrize("data", [b"small", RANDOM], ids=["small", "large"])
def test_a_wrong_checksum_costs_no_byte_and_is_told(data: bytes, place: int, words: str) -> None:
    assert unpacked(with_wrong(gzip.compress(data, 1), place)) == (data, None, f"{words} is wrong")


def test_what_follows_a_member_with_a_wrong_checksum_is_unpacked() -> None:
    first, second, third = (gzip.compress(data) for data in (b"first", b"second", b"third"))
    found = unpacked(first + with_wrong(second, 8) + third)
    assert found == (b"firstsecondthird", None, "the CRC of its member 1 is wrong")


@pytest.mark.parametrize("n_bytes", [1, 9, 10, 12, 5_000, 1_500_000])
def test_a_cut_gzip_gives_what_zlib_gives_and_ends_early(n_bytes: int) -> None:
    packed = gzip.compress(RANDOM[: 2 << 20], 1)[:n_bytes]
    data, damage, mismatch = unpacked(packed)
    assert (RANDOM.startswith(data), damage, mismatch) == (True, "it ends early", None)
    assert len(data) > n_bytes - 70_000  # random bytes are stored, in blocks of at most 65,535 bytes


def test_all_that_stands_before_damage_is_given() -> None:
    text = b" ".join(b"%d" % number for number in range(200_000))
    packed = bytearray(gzip.compress(text))
    packed[len(packed) // 2 :] = b"\xff" * (len(packed) - len(packed) // 2)
    data, damage, _ = unpacked(bytes(packed))
    n_right = next(n for n in range(len(data) + 1) if n == len(data) or data[n] != text[n])
    assert damage is not None
    assert n_right > 0.4 * len(text)


@settings(max_examples=300)
@given(st.binary(max_size=300), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3))
def test_no_damage_breaks_the_reading(data: bytes, damage: list[tuple[int, int]]) -> None:
    packed = bytearray(gzip.compress(data))
    for place, value in damage:
        packed[place % len(packed)] = value
    found, ends, mismatch = unpacked(bytes(packed))
    assert found == data or ends or mismatch


def test_a_store_whose_gzip_has_a_wrong_checksum_loses_no_sample(tmp_path: Path) -> None:
    """Indexed and streamed alike, large (more than a piece that is unpacked at once) or small."""
    for name, n in (("large", 1000), ("small", 3)):
        members = [(f"{number:04d}.jpg", RANDOM[number : number + 2000]) for number in range(n)]
        folder = put(tmp_path / name, "0.tgz", members)
        (folder / "0.tgz").write_bytes(with_wrong(gzip.compress(tar_of(members), 1), 8))
        index, report = indexed(folder)
        assert [row["key"] for row in rows(index)] == [f"{number:04d}" for number in range(n)]
        assert kinds(report) == ["wrong-checksum"]
        assert "the CRC of the gzip is wrong" in report.faults[0].detail
        save(index, folder / "index.parquet")
        (found,) = image_batches(load(folder / "index.parquet"), [np.arange(n)], bodies_of, workers=0)
        assert found == [body for _, body in members]


def bodies_of(samples: list[dict[str, bytes]]) -> list[bytes]:
    return [sample["jpg"] for sample in samples]


def test_a_gzip_of_which_nothing_can_be_unpacked_is_refused_as_such(tmp_path: Path) -> None:
    put(tmp_path, "1.tar", [("a.jpg", b"x")])
    (tmp_path / "0.tgz").write_bytes(gzip.compress(b"x" * 100)[:10])
    _, report = indexed(tmp_path, skip_bad=True)
    assert kinds(report) == ["truncated"]
    assert "no header in the 0 bytes that can be unpacked of this gzip (it ends early)" in report.faults[0].detail


def test_a_stream_of_a_gzip_reads_what_its_index_counted() -> None:
    tar = tar_of([("a.jpg", RANDOM)])
    assert uncompressed(io.BytesIO(with_wrong(gzip.compress(tar, 1), 8))).read() == tar
