"""Contact sheets: each image in its place, in the order asked for, from any kind of shard, the same bytes each time."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import toyset
from PIL import Image

from curate.data.contact_sheet import GREY, MOST, contact_sheet, small_images, spread
from curate.errors import Misuse
from shards.errors import ShardsChanged

COUNT = 40
#: A wide image in the place of one, and bytes that are none in the place of another.
WIDE, BROKEN = 3, 20


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    wide = toyset.png(np.repeat(np.arange(200, dtype=np.uint8)[None], 50, 0))
    return toyset.make_store(tmp_path_factory.mktemp("sheet") / "store", COUNT, {WIDE: wide, BROKEN: b"no image"})


def tile(sheet: Path, place: int, columns: int, side: int, line: int = 0) -> np.ndarray:
    """The pixels of a tile, columns from the left and rows from the top."""
    left, above = 6 + place % columns * (side + 6), 6 + place // columns * (side + 6 + line)
    return np.asarray(Image.open(sheet).convert("RGB"))[above : above + side, left : left + side]


def test_images_stand_in_the_order_asked_for_enlarged_by_a_whole_factor(store: Path, tmp_path: Path) -> None:
    rows = np.array([17, 5, 39, 5])
    contact_sheet(tmp_path / "sheet.png", toyset.indexed(store), rows, columns=3, side=48)
    for place, row in enumerate(rows):
        expected = np.kron(toyset.digits()[0][row], np.ones((3, 3), np.uint8))[..., None].repeat(3, 2)
        assert (tile(tmp_path / "sheet.png", place, 3, 48) == expected).all(), row


def test_what_does_not_decode_is_a_grey_tile_and_a_wide_image_keeps_its_shape(store: Path, tmp_path: Path) -> None:
    index = toyset.indexed(store)
    contact_sheet(tmp_path / "sheet.png", index, np.array([BROKEN, WIDE]), np.array([0.5, 0.25]), side=40)
    assert (tile(tmp_path / "sheet.png", 0, 2, 40, 16) == GREY).all()
    wide = tile(tmp_path / "sheet.png", 1, 2, 40, 16)
    assert (wide[:15] == 255).all()
    assert (wide[-15:] == 255).all()
    assert (wide[16:24, 1:8] < 60).all()


def test_scores_and_a_title_are_written_and_the_bytes_repeat(store: Path, tmp_path: Path) -> None:
    index, rows = toyset.indexed(store), np.arange(10)
    for name, scores, title in (("a", 0.1, "Kept"), ("b", 0.1, "Kept"), ("c", 0.2, "Kept"), ("d", 0.1, "Pruned")):
        contact_sheet(tmp_path / f"{name}.png", index, rows, np.full(10, scores, np.float32), title=title)
    a, b, c, d = ((tmp_path / f"{name}.png").read_bytes() for name in "abcd")
    assert a == b
    assert a != c
    assert a != d
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.png", "c.png", "d.png"]


def test_small_images_of_gzip_shards_are_those_of_the_tars(store: Path, tmp_path: Path) -> None:
    for path in store.glob("*.tar"):
        (tmp_path / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    rows = np.array([30, 2, 19, BROKEN, 0])
    tars, gzips = (small_images(toyset.indexed(place), rows, 96) for place in (store, tmp_path))
    for row, one, other in zip(rows, tars, gzips):
        if row == BROKEN:
            assert one is None
            assert other is None
        else:
            assert (np.asarray(one) == toyset.digits()[0][row]).all()
            assert (np.asarray(other) == np.asarray(one)).all()


@pytest.mark.parametrize(
    ("rows", "scores"), [([], None), ([1, 2], [0.5]), ([0] * (MOST + 1), None)], ids=["none", "unequal", "too many"]
)
def test_what_is_no_sheet_is_refused_before_anything_is_read(store: Path, tmp_path: Path, rows, scores) -> None:
    index, given = toyset.indexed(store), None if scores is None else np.array(scores)
    with pytest.raises(Misuse, match="expected 1 to 10,000 rows, and a score each or none"):
        contact_sheet(tmp_path / "sheet.png", index, np.array(rows, np.int64), given)
    assert not list(tmp_path.iterdir())


def test_a_shard_that_is_gone_is_named(tmp_path: Path) -> None:
    index = toyset.indexed(toyset.make_store(tmp_path / "store", 20))
    (tmp_path / "store" / "000001.tar").unlink()
    with pytest.raises(ShardsChanged, match=r"000001\.tar.*gone"):
        contact_sheet(tmp_path / "sheet.png", index, np.array([19]))


def test_spread_takes_both_ends_and_nothing_twice() -> None:
    for length in (1, 2, 9, 10, 11, 1000):
        found = spread(np.arange(length), 10)
        assert len(set(found.tolist())) == len(found) == min(length, 10)
        assert (found[0], found[-1]) == (0, length - 1)
