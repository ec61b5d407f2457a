"""Names that occur twice are found among many headers at once, and headers are hashed the same."""

from __future__ import annotations

import tarfile

import numpy as np
import pytest
import xxhash
from strategies import tar_of

from shards.tar import header_chain
from shards.tar.blocks import blocks_of
from shards.tar.header_chain import hash_distinct, hash_headers, may_have_duplicates
from shards.tar.text_hashes import hashes_of


def runs_of(names: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The blocks of a tar of one-block members, and a run for each of them."""
    blocks = blocks_of(tar_of([(name, b"x") for name in names], tarfile.USTAR_FORMAT))
    return blocks, np.arange(len(names)) * 2, np.full(len(names), 2)


@pytest.mark.parametrize("batch", [2, 1024])
@pytest.mark.parametrize(
    ("names", "distinct"),
    [
        (["a.jpg", "a.txt", "b.jpg"], True),
        (["a.jpg", "b.jpg", "c.jpg", "a.jpg"], False),
        (["a.jpg", "b.longer.name.of.many.letters", "A.JPG"], False),  # the other's length pads them apart
        (["é.jpg", "É.JPG"], False),
        (["é.jpg", "e.jpg"], True),
        (["d/" * 60 + "a.jpg", "d/" * 60 + "b.jpg"], True),
        (["d/" * 60 + "a.jpg", "a.jpg"], True),
    ],
)
def test_names_that_differ_only_by_case_are_found(
    names: list[str], distinct: bool, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(header_chain, "_BATCH", batch)
    runs = runs_of(names)
    plain, digest = xxhash.xxh3_64(), xxhash.xxh3_64()
    assert hash_headers(*runs, plain)
    assert hash_distinct(*runs, digest) == distinct == (not may_have_duplicates(*runs))
    assert digest.hexdigest() == plain.hexdigest()


def test_rubbish_behind_the_end_of_a_name_does_not_hide_its_like() -> None:
    blocks, first, counts = runs_of(["a.jpg", "a.jpg"])
    changed = blocks.copy()
    changed[2, 50] = ord("x")
    assert not hash_distinct(changed, first, counts, xxhash.xxh3_64())


def test_padding_does_not_count() -> None:
    names = np.frombuffer(b"abcdefghij".ljust(40, b"\0") + b"k".ljust(40, b"\0"), np.uint8).reshape(2, 40)
    assert hashes_of(names).tolist() == hashes_of(names[:, :10]).tolist()
