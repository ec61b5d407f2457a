"""Duplicates by features: of a store, and of a store and another together."""

from __future__ import annotations

import numpy as np
import toyset

from curate.config.schema import MachineConfig
from curate.progress import NullProgress
from curate.runs.features import Choice, Source
from curate.runs.semantic_level import semantic_level

HERE = MachineConfig(device="cpu", workers=0)


def test_copies_are_found_in_a_store_and_between_two(tmp_path):
    """Images 3 and 4 stand again at 40 and 41, and twice in another store; one that does not decode stands alone."""
    pictures = toyset.digits()[0]
    again = {40: toyset.png(pictures[3]), 41: toyset.png(pictures[4]), 20: b"no picture"}
    one = toyset.indexed(toyset.make_store(tmp_path / "one", 48, again))
    two = toyset.indexed(toyset.make_store(tmp_path / "two", 4, {100: again[40], 102: again[41]}, first=100))
    source = Source(Choice("pixels"), one, HERE)
    of, apart = semantic_level([one], source, tmp_path, np.arange(48), NullProgress(), 0.01)
    assert {row: int(of[row]) for row in range(48) if of[row] != row} == {40: 3, 41: 4}
    assert (apart < 1e-6).all()
    of, _ = semantic_level([one, two], source, tmp_path, np.arange(52)[::-1].copy(), NullProgress(), 0.01)
    assert {row: int(of[row]) for row in range(52) if of[row] != row} == {3: 48, 40: 48, 4: 50, 41: 50}
    assert not list(tmp_path.glob(".*"))
