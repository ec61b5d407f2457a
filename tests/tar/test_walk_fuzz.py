"""Every fast reading of a tar is the exact one, on tars of chance; and the two tars that once were not."""

from __future__ import annotations

from pathlib import Path

import pytest
from index_makers import indexed, put, rows
from mutations import FUZZ
from tar_makers import END, header, member, padded, pax
from walk_fuzz import hold_equal, hold_many


def test_every_fast_reading_of_some_tars_is_the_exact_one() -> None:
    assert hold_many(0, 1_500) > 75  # one in twenty at least is regular: both halves of a scan did their work


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_every_fast_reading_of_many_tars_is_the_exact_one(seed: int) -> None:
    """In parts, for as many workers."""
    assert hold_many(seed, FUZZ // 4) > FUZZ // 80


def test_a_key_that_ends_where_a_folder_has_its_dot_is_another_sample(tmp_path: Path) -> None:
    """`data.png` behind `data.v1/0001.txt` was taken for a member of that sample."""
    put(tmp_path, "0.tar", [("data.v1/0001.txt", b"1"), ("data.png", b"2"), ("data.v1/0002.png", b"3")])
    index, report = indexed(tmp_path)
    assert [(row["key"], row["image"], row["offset"]) for row in rows(index)] == [
        ("data.v1/0001", None, 0),
        ("data", "png", 1024),
        ("data.v1/0002", "png", 2048),
    ]
    assert [(fault.kind, fault.key) for fault in report.faults] == [("no-image", "data.v1/0001")]
    with_images = [("data.v1/0001.png", b"1"), ("data.jpg", b"2"), ("data.cls", b"3")]
    put(tmp_path, "0.tar", with_images)
    assert [row["key"] for row in rows(indexed(tmp_path)[0])] == ["data.v1/0001", "data"]


def test_a_size_in_a_pax_record_is_never_passed_over_by_way_of_the_body() -> None:
    """The body looks like a header, so that a chain that takes the size of the header goes the wrong way unseen."""
    inner = header(b"c.jpg")
    tar = member(b"a.jpg", b"x") + pax(b"size=512") + header(b"b.jpg", 0) + padded(inner) + member(b"d.jpg") + END
    for far in (False, True):
        hold_equal(tar, far)
