"""Byte ranges of files behind URLs: only what is asked for, tried again where a fault may pass, one line where not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from http_ranges import Served, serving_ranges
from shard_makers import make_store, numbered
from tar_makers import END, header, member

from shards.errors import NotShards
from shards.indexing.index import Index
from shards.io import remote
from shards.io.byte_ranges import OpenShards
from shards.stream import samples, samples_by_range

DATA = bytes(range(256)) * 8


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    (tmp_path / "x").write_bytes(DATA)
    monkeypatch.setattr(remote, "_PAUSES_S", (0.0, 0.0))
    with serving_ranges(tmp_path) as found:
        yield found


@pytest.mark.parametrize(("offset", "size"), [(0, 1), (5, 300), (0, len(DATA)), (len(DATA) - 1, 1)])
def test_a_range_is_read_and_no_other_byte(served: Served, offset: int, size: int) -> None:
    with OpenShards() as files:
        assert files.read(f"{served.url}/x", offset, size) == DATA[offset : offset + size]
    assert served.sent == [size]


def test_no_bytes_need_no_request(served: Served) -> None:
    assert remote.read_range(f"{served.url}/x", 7, 0) == b""
    assert served.sent == []


@pytest.mark.parametrize("failures", [[503], [429, 500]])
def test_what_may_pass_is_tried_again(served: Served, failures: list[int]) -> None:
    served.failures += failures
    assert remote.read_range(f"{served.url}/x", 3, 4) == DATA[3:7]


@pytest.mark.parametrize(("failures", "left"), [([503, 503, 502, 500], 1), ([404, 404], 1), ([403, 403], 1)])
def test_what_does_not_pass_is_one_line(served: Served, failures: list[int], left: int) -> None:
    served.failures += failures
    with pytest.raises(NotShards, match=r"/x: bytes 3 to 7 cannot be read .HTTP Error \d+") as error:
        remote.read_range(f"{served.url}/x", 3, 4)
    assert len(served.failures) == left
    assert "\n" not in str(error.value)


def test_a_server_that_knows_no_ranges_is_named(served: Served) -> None:
    served.whole = True
    with pytest.raises(NotShards, match="/x: the server knows no byte ranges; serve it by one that does"):
        remote.read_range(f"{served.url}/x", 3, 4)


def test_a_file_that_ends_before_is_named(served: Served) -> None:
    with pytest.raises(NotShards, match=r"/x: bytes 2040 to 2060 cannot be read .8 of 20 bytes came"):
        remote.read_range(f"{served.url}/x", 2040, 20)


def test_other_schemes_are_read_by_fsspec() -> None:
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://ranges/x", "wb") as file:
        file.write(DATA)
    assert remote.read_range("memory://ranges/x", 5, 9) == DATA[5:14]
    with pytest.raises(NotShards, match="memory://ranges/gone: bytes 0 to 1 cannot be read"):
        remote.read_range("memory://ranges/gone", 0, 1)


def test_samples_come_in_the_order_of_their_rows_from_near_and_far(tmp_path: Path) -> None:
    """Hard links and members apart included; parts may be made on the way."""
    linked = member(b"a.jpg", b"image") + member(b"b.jpg", b"other") + member(b"a.txt", b"apart")
    (tmp_path / "9.tar").write_bytes(linked + header(b"c.jpg", 0, b"1", b"a.jpg") + END)
    near = make_store(tmp_path, {"0.tar": numbered(0, 40), "1.tar": numbered(40, 40)})
    rows = np.random.default_rng(0).permutation(83)
    expected = list(samples(near, rows))
    assert [sample["__row__"] for sample in expected] == rows.tolist()
    by_key = {sample["__key__"]: sample for sample in expected}
    assert by_key["c"]["jpg"] == by_key["a"]["jpg"] == b"image"
    assert by_key["a"]["txt"] == b"apart"
    assert list(samples_by_range(near, np.split(rows, [3, 3, 50]))) == expected
    with serving_ranges(tmp_path) as served:
        far = Index(f"{served.url}/", near.shards, near.table)
        found = list(samples_by_range(far, iter([rows])))
    assert [{**sample, "__url__": ""} for sample in found] == [{**sample, "__url__": ""} for sample in expected]


def test_reading_may_stop_early(tmp_path: Path) -> None:
    near = make_store(tmp_path, {"0.tar": numbered(0, 60)})
    with serving_ranges(tmp_path) as served:
        reading = samples_by_range(Index(f"{served.url}/", near.shards, near.table), [np.arange(60)])
        assert next(reading)["__row__"] == 0
        reading.close()
        assert len(served.sent) < 40
