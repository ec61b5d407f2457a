"""The drawings of a page: every image is counted, on its side, and the line of the rule is the rule."""

from __future__ import annotations

import re

import numpy as np
import pytest

from curate.ledger.pruner import mass_below
from curate.reporting import charts


def bars(drawing: str, kind: str) -> list[tuple[int, float, float]]:
    """Count and limits of each bar of a kind."""
    found = re.findall(rf'class="{kind}"[^>]*><title>([\d,]+) {kind}, (\S+) to ([^<]+)</title>', drawing)
    return [(int(count.replace(",", "")), float(low), float(high)) for count, low, high in found]


def test_every_image_is_in_a_bar_of_its_side() -> None:
    draws = np.random.default_rng(0)
    kept, pruned = (draws.random(n).astype(np.float32) for n in (300, 2500))
    drawing = charts.histogram(kept, pruned, 0.25, "score")
    for values, kind in ((kept, "kept"), (pruned, "pruned")):
        found = bars(drawing, kind)
        assert sum(count for count, _, _ in found) == len(values)
        for count, low, high in found:
            assert count == np.count_nonzero((values >= low) & ((values < high) | (high == 1.0)))
    cut = re.search(r'class="cut" x1="([\d.]+)"', drawing)
    assert float(cut[1]) == pytest.approx(charts.LEFT + 0.25 * (360 - charts.LEFT - charts.RIGHT), abs=0.1)


def test_bars_grow_with_their_logarithm() -> None:
    drawing = charts.histogram(np.repeat(np.float32([0.1, 0.5, 0.9]), [9, 99, 999]), np.float32([]), None, "score")
    tall = [float(height) for height in re.findall(r'class="kept"[^>]*height="([\d.]+)"', drawing)]
    assert np.diff(tall) == pytest.approx([tall[0]] * 2, abs=0.02)
    assert 'class="cut"' not in drawing


@pytest.mark.parametrize(("lam", "rho"), [(0.25, 0.5), (0.5, 0.9), (0.1, 0.1)])
def test_the_line_between_kept_and_pruned_is_where_the_mass_is_rho(lam: float, rho: float) -> None:
    edges = np.linspace(-3, 3, 41)
    points = np.array([(x, y) for x, y in charts._border(edges, lam, rho) if abs(y) < 14])
    assert len(points) > 50
    assert mass_below(np.exp(points[:, 0]), np.exp(points[:, 1]), lam) == pytest.approx(rho, abs=1e-6)


def test_all_beliefs_are_in_the_frame_and_the_fullest_cell_is_the_darkest() -> None:
    a, b = np.exp(np.float32([-2, 4, 0, 0, 0])), np.exp(np.float32([5, -1, 0, 0, 0]))
    drawing = charts.density(a, b, 0.25, 0.5)
    shades = re.findall(r'class="cell" fill-opacity="([\d.]+)" d="([^"]+)"', drawing)
    assert {opacity: path.count("M") for opacity, path in shades} == {"0.50": 2, "1.00": 1}
    assert charts.density(a, b, None, 0.5).count('class="cut"') == 0


@pytest.mark.parametrize("epochs", [2, 40, 400])
def test_shares_fall_from_all_to_the_last(epochs: int) -> None:
    shares = np.linspace(0.9, 0.1, epochs).tolist()
    drawing = charts.over_epochs(range(1, epochs + 1), shares)
    line = re.search(r'class="kept line" d="M([^"]+)"', drawing)[1].split("L")
    heights = [float(point.split()[1]) for point in line]
    assert heights == pytest.approx([14 + 150 * (1 - share) for share in (1.0, *shares)], abs=0.1)
    assert len(re.findall("<text", drawing)) <= 5 + 10 + 1


def test_nothing_to_draw_is_drawn() -> None:
    """An epoch that judged nobody, and beliefs that are all the prior."""
    none = np.zeros(0, np.float32)
    assert "kept 0" in charts.histogram(none, none, 0.25, "score")
    ones = np.ones(3, np.float32)
    assert 'class="cell"' in charts.density(ones, ones, 0.0, 1.0)
