"""A copy of a tar without its large bodies: a walk finds in it what it finds in the tar."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_makers import write_tar
from tar_makers import END, header, member

from shards.io.mapped import open_mapped
from shards.io.storage.objects import ObjectInfo
from shards.tar import far_headers
from shards.tar.far_headers import open_headers
from shards.tar.walk import walk

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"


@pytest.fixture(scope="module", autouse=True)
def local_objects() -> Iterator[list[int]]:
    """Files stand for objects, in few bytes at a time; the list has how many were read."""
    read: list[int] = []

    def read_blocks(info: ObjectInfo, start: int, stop: int) -> Iterator[memoryview]:
        data = Path(info.url).read_bytes()[start:stop]
        read.append(len(data))
        yield from (memoryview(data[at : at + 2048]) for at in range(0, len(data), 2048))

    def info(path: str) -> ObjectInfo:
        return ObjectInfo(path, Path(path).stat().st_size, "etag")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(far_headers, "is_object", lambda location: True)
        patch.setattr(far_headers.ranges, "info_of", lambda path, _: info(path))
        patch.setattr(far_headers.ranges, "read_blocks", read_blocks)
        patch.setattr(far_headers, "STRIDE", 8192)
        patch.setattr(far_headers, "PROBE", 1024)
        patch.setattr(far_headers, "WORTH_SKIPPING", 4096)
        yield read


def agree(path: Path) -> None:
    """The walk, and the bytes of all headers, are those of the whole tar."""
    headers: dict[str, bytearray] = {"whole": bytearray(), "far": bytearray()}
    with open_mapped(str(path)) as whole, open_headers(str(path)) as far:
        expected = list(walk(whole.buffer, "x", headers["whole"].extend))
        assert list(walk(far.buffer, "x", headers["far"].extend)) == expected
        assert (far.size, far.gzip, far.etag) == (whole.size, whole.gzip, "etag")
    assert headers["far"] == headers["whole"]


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from([0, 1, 511, 512, 700, 9000, 60_000]), max_size=9),
    st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
    st.booleans(),
)
def test_members_of_any_sizes(tmp_path_factory, sizes: list[int], kind: int, long: bool) -> None:
    path = tmp_path_factory.mktemp("far") / "x.tar"
    bytes_of = np.random.default_rng(len(sizes)).bytes
    long = long and kind != tarfile.USTAR_FORMAT
    write_tar(path, [(f"{n:04d}{'y' * 120 * long}.jpg", bytes_of(size)) for n, size in enumerate(sizes)], kind)
    agree(path)


def test_what_is_passed_over_is_not_read(tmp_path: Path, local_objects: list[int]) -> None:
    write_tar(tmp_path / "x.tar", [(f"{n}.jpg", bytes(100_000)) for n in range(10)])
    local_objects.clear()
    agree(tmp_path / "x.tar")
    assert sum(local_objects) < 0.2 * (tmp_path / "x.tar").stat().st_size


def test_a_size_that_an_extension_sets_is_not_overlooked(tmp_path: Path) -> None:
    """The header says 0 bytes, its PAX record 60,000: whoever follows the header alone takes the body for headers."""
    record = b"14 size=60000\n"
    body = member(b"inside.jpg", b"no member")
    data = header(b"pax", len(record), b"x") + record.ljust(512, b"\0") + header(b"a.jpg", 0)
    (tmp_path / "x.tar").write_bytes(data + body.ljust(60_416, b"\0") + member(b"b.jpg", b"b") + END)
    agree(tmp_path / "x.tar")


@pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not here")
def test_every_damaged_tar() -> None:
    found = [path for path in sorted(CASES.rglob("*")) if path.is_file() and ".tar" in path.name]
    assert len(found) > 10
    for path in found:
        agree(path)
