"""The critical-difference diagram: everything in its place, nothing over anything else, the same bytes each time."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from curate.errors import Misuse
from curate.experiments.tables import paper_numbers
from curate.stats.cd_diagram import LINE, Layout, critical_difference_diagram, layout
from curate.stats.friedman import Comparison, compare
from curate.stats.score_table import ScoreTable, table_of

pytest.importorskip("matplotlib")


def comparison_of(n: int, k: int, seed: int, spread: float) -> Comparison:
    """Scores rounded, so that ties come up; the names are of very different lengths."""
    scores = np.random.default_rng(seed).normal(size=(n, k)).round(1) + spread * np.arange(k).round(1)
    return compare(
        ScoreTable(tuple(map(str, range(n))), tuple(f"method {j}" + " long" * (j % 4) for j in range(k)), scores)
    )


def placed(comparison: Comparison) -> Layout:
    """With every letter a tenth of an inch wide."""
    texts = [*comparison.ranks, f"CD = {comparison.cd:.3f} (α = {comparison.alpha:g})"]
    return layout(comparison, {text: 0.1 * len(text) for text in texts})


COMPARISONS = st.builds(
    comparison_of, st.integers(2, 30), st.integers(2, 12), st.integers(0, 99), st.sampled_from([0.0, 0.3, 1.0])
)


@settings(max_examples=40, deadline=None)
@given(COMPARISONS)
def test_labels_stand_in_two_columns_a_line_apart_inside_the_figure(comparison: Comparison) -> None:
    found = placed(comparison)
    for side in (True, False):
        heights = sorted(label.y for label in found.labels if label.is_left is side)
        assert np.diff(heights) == pytest.approx(LINE)
        assert heights[0] > 0
        assert heights[-1] < min([found.axis_y, *(bar.y for bar in found.bars)])
    for label in found.labels:
        width = 0.1 * len(label.text)
        assert width < found.worst_x if label.is_left else found.best_x + width < found.width


@settings(max_examples=40, deadline=None)
@given(COMPARISONS)
def test_no_line_of_a_label_crosses_that_of_another(comparison: Comparison) -> None:
    """Of two labels on a side, the one further out is higher, so its level line ends before the other's upright."""
    for one, other in combinations(placed(comparison).labels, 2):  # from left to right
        assert one.rank_x <= other.rank_x
        if one.is_left == other.is_left:
            assert one.y > other.y if one.is_left else one.y < other.y


@settings(max_examples=40, deadline=None)
@given(COMPARISONS)
def test_bars_span_their_cliques_and_do_not_touch(comparison: Comparison) -> None:
    found = placed(comparison)
    x = {label.text: label.rank_x for label in found.labels}
    assert len(found.bars) == len(comparison.cliques)
    for bar, group in zip(found.bars, comparison.cliques):
        assert bar.left < min(x[name] for name in group)
        assert bar.right > max(x[name] for name in group)
        assert bar.y < found.axis_y
    for one, other in combinations(found.bars, 2):
        assert abs(one.y - other.y) > 0.1 or one.left > other.right or other.left > one.right


def test_the_best_rank_is_on_the_right_and_distances_are_true() -> None:
    """Ranks 3.6 2.8 2.2 1.4 on an axis from 4 to 1."""
    found = placed(compare(table_of(paper_numbers.TABLE2_LOGISTIC)))
    assert [label.text for label in found.labels] == ["RotNet", "NN", "L2RW", "BDW"]
    share = [(label.rank_x - found.worst_x) / (found.best_x - found.worst_x) for label in found.labels]
    assert share == pytest.approx([0.4 / 3, 1.2 / 3, 1.8 / 3, 2.6 / 3])
    assert [label.is_left for label in found.labels] == [True, True, False, False]


def test_a_critical_difference_longer_than_the_axis_fits_into_the_figure() -> None:
    """Two methods on two data sets: CD 1.386 on an axis of length 1."""
    found = placed(compare(ScoreTable(("a", "b"), ("A", "B"), np.eye(2))))
    assert found.worst_x + 1.386 * (found.best_x - found.worst_x) < found.width


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_same_comparison_gives_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    comparison = compare(table_of(paper_numbers.TABLE2_LOGISTIC))
    for name in ("a", "b"):
        critical_difference_diagram(tmp_path / f"{name}{suffix}", comparison)
    first, second = ((tmp_path / f"{name}{suffix}").read_bytes() for name in ("a", "b"))
    assert first == second
    assert first.startswith({".png": b"\x89PNG", ".svg": b"<?xml"}[suffix])
    assert b"dc:date" not in first


def test_methods_ranks_and_the_critical_difference_are_written(tmp_path: Path) -> None:
    """matplotlib writes the text of each label into the SVG, as a comment above its outlines."""
    critical_difference_diagram(tmp_path / "cd.svg", compare(table_of(paper_numbers.TABLE2_LOGISTIC)))
    drawn = (tmp_path / "cd.svg").read_text(encoding="utf-8")
    for text in ("RotNet", "NN", "L2RW", "BDW", "CD = 1.483 (α = 0.05)", "1", "2", "3", "4"):
        assert f"<!-- {text} -->" in drawn


def test_long_names_are_drawn_whole(tmp_path: Path) -> None:
    """The margin stays white whatever letters the names have."""
    critical_difference_diagram(tmp_path / "cd.png", compare(ScoreTable(("a", "b"), ("W" * 30, "i" * 90), np.eye(2))))
    picture = np.asarray(Image.open(tmp_path / "cd.png").convert("L"))
    for edge in (picture[:, :10], picture[:, -10:], picture[:10], picture[-10:]):
        assert edge.min() == 255
    assert picture.min() < 50


def test_the_end_of_a_very_long_name_is_not_drawn(tmp_path: Path) -> None:
    """100 letters are drawn; of 101 the last two give way to an ellipsis."""
    names = ("a" * 100, "b" * 101)
    critical_difference_diagram(tmp_path / "cd.svg", compare(ScoreTable(("a", "b"), names, np.eye(2))))
    drawn = (tmp_path / "cd.svg").read_text(encoding="utf-8")
    assert f"<!-- {names[0]} -->" in drawn
    assert f"<!-- {'b' * 99}… -->" in drawn


@pytest.mark.parametrize("name", ["方法", "طريقة", "विधि"])
def test_letters_that_the_font_lacks_are_boxes_without_a_warning(tmp_path: Path, name: str) -> None:
    """Warnings are errors in these tests."""
    for suffix in (".png", ".svg"):
        path = tmp_path / f"cd{suffix}"
        critical_difference_diagram(path, compare(ScoreTable(("a", "b"), (name, "B"), np.eye(2))))
        assert path.exists()


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"\.png or \.svg"):
        critical_difference_diagram(tmp_path / "cd.pdf", compare(table_of(paper_numbers.TABLE2_LOGISTIC)))
