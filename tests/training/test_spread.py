"""Steps over several ranks are those of one process: exactly, in float64, and no part of the sums can be left out."""

from __future__ import annotations

import pytest
import ranks_scene
from spread_steps import BROKEN, CASES, errors

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[2, 4])
def found(request, tmp_path_factory):
    """The errors of every case, on each of so many ranks."""
    return ranks_scene.on_each(request.param, tmp_path_factory.mktemp("ranks"), errors)


@pytest.mark.parametrize("case", CASES)
def test_steps_are_double_backward_over_the_whole_batch(found, case):
    """theta' after three steps with momentum and decay, h of every image, and batch norm's running statistics; the last
    batch is too small for the ranks, and each has all of it."""
    assert max(each[case] for each in found) < 1e-12


@pytest.mark.parametrize("part", BROKEN)
def test_no_part_can_be_left_out(found, part):
    """With an error put in on purpose the same comparison fails."""
    assert max(each[part] for each in found) > 1e-4
