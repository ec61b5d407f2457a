"""Duplicates of a store by their features."""

from __future__ import annotations

import numpy as np
import pytest
import toyset

from curate.api import dedup
from curate.errors import Misuse
from curate.progress import NullProgress
from curate.runs.semantic_level import by_features


def test_copies_are_found_and_what_does_not_decode_stands_alone(tmp_path):
    """Images 3 and 4 stand again at 40 and 41; another order, another representative."""
    pictures = toyset.digits()[0]
    again = {40: toyset.png(pictures[3]), 41: toyset.png(pictures[4]), 20: b"no picture"}
    index = toyset.indexed(toyset.make_store(tmp_path / "store", 48, again))
    level = by_features("pixels", 0.01, 0)(index, tmp_path / "out", NullProgress())
    for order, expected in ((np.arange(48), {40: 3, 41: 4}), (np.arange(48)[::-1].copy(), {3: 40, 4: 41})):
        of, apart = level(order)
        assert {row: int(of[row]) for row in range(48) if of[row] != row} == expected
        assert (apart < 1e-6).all()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["features"]


def test_what_cannot_be_meant_is_refused():
    """Before any work."""
    with pytest.raises(Misuse, match="--cosine 1: must be between 0 and 1"):
        by_features("pixels", 1.0, 0)
    with pytest.raises(Misuse, match="--encoder nothing: unknown"):
        by_features("nothing", 0.1, 0)


@pytest.mark.slow
def test_dedup_takes_it(tmp_path):
    """The manifest keeps one of each; the table says how far apart the features are."""
    pictures = toyset.digits()[0]
    darker = (pictures[4] * 0.97).astype(np.uint8)
    toyset.make_store(tmp_path / "store", 48, {40: toyset.png(pictures[3]), 41: toyset.png(darker)})
    found = dedup(
        tmp_path / "store", out=tmp_path / "out", level="semantic", encoder="pixels", cosine=0.05, keep="first"
    )
    assert found.dropped >= 2
    rows = {
        key: (level, semantic)
        for key, level, semantic, kept in toyset.rows_of(
            tmp_path / "out" / "duplicates.parquet", "key", "level", "semantic", "kept"
        )
        if not kept
    }
    assert rows["000040"] == ("exact", pytest.approx(0, abs=1e-6))
    assert 0 < rows["000041"][1] < 0.05
    kept = [row for (row,) in toyset.rows_of(tmp_path / "out" / "manifest.parquet", "row")]
    assert len(kept) == 48 - found.dropped
    assert not {40, 41} & set(kept)
    with pytest.raises(Misuse, match="--against: features of two stores are not compared"):
        dedup(tmp_path / "store", out=tmp_path / "other", level="semantic", against=tmp_path / "store")
    with pytest.raises(Misuse, match=r"--cosine 0\.1: of --level semantic"):
        dedup(tmp_path / "store", out=tmp_path / "other", cosine=0.1)
