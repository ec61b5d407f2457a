"""The figures: right marks in the right places, the same bytes each time, no trace left in matplotlib's settings."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageColor

from curate.errors import CurateError, Misuse
from curate.stats.plots import COLOURS, Pictures, density_of_beliefs, histogram_of_means, picture_grid

matplotlib = pytest.importorskip("matplotlib")

MEANS = np.repeat(np.array([0.2, 0.8], np.float32), 50)
DOMAINS = np.repeat(np.array(["photos", "digits"]), 50)


def pixels(path: Path) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(path).convert("RGB"))


def places_of(path: Path, colour: str) -> np.ndarray[Any, Any]:
    """Columns (x) of the pixels that have exactly this colour, as shares of the width."""
    picture = pixels(path)
    return np.nonzero((picture == ImageColor.getrgb(colour)).all(axis=2))[1] / picture.shape[1]


def solid(colour: str, size: tuple[int, int] = (8, 8)) -> np.ndarray[Any, Any]:
    return np.broadcast_to(np.array(ImageColor.getrgb(colour), np.uint8), (*size, 3))


def draw_all(folder: Path, suffix: str) -> list[Path]:
    paths = [folder / f"{name}{suffix}" for name in ("histogram", "density", "grid")]
    histogram_of_means(paths[0], MEANS, DOMAINS, 0.5)
    density_of_beliefs(paths[1], np.exp(MEANS), np.exp(-MEANS), DOMAINS)
    picture_grid(paths[2], Pictures([solid("red")], MEANS[:1]), Pictures([solid("blue")], MEANS[:1]))
    return paths


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_the_same_values_give_the_same_bytes_and_no_time(tmp_path: Path, suffix: str) -> None:
    first = [path.read_bytes() for path in draw_all(tmp_path / "a", suffix)]
    second = [path.read_bytes() for path in draw_all(tmp_path / "b", suffix)]
    assert first == second
    assert all(data.startswith({".png": b"\x89PNG", ".svg": b"<?xml"}[suffix]) for data in first)
    assert not any(b"dc:date" in data or b"Software" in data for data in first)
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(
        f"{name}{suffix}" for name in ("histogram", "density", "grid")
    )


def test_each_domain_has_its_colour_on_its_side_of_the_cut(tmp_path: Path) -> None:
    histogram_of_means(tmp_path / "h.png", MEANS, DOMAINS, 0.5)
    digits, photos = (places_of(tmp_path / "h.png", colour) for colour in COLOURS[:2])
    assert len(digits) > 100
    assert len(photos) > 100
    assert digits.min() > 0.7  # E[w] = .8 lies in the right part of the axis, .2 in the left
    assert photos.max() < 0.4


def test_the_cut_is_a_dark_line_and_is_left_out_without_one(tmp_path: Path) -> None:
    histogram_of_means(tmp_path / "cut.png", MEANS, DOMAINS, 0.5)
    histogram_of_means(tmp_path / "none.png", MEANS, DOMAINS)
    dark = [(pixels(tmp_path / name).max(axis=2) < 60).sum(axis=0) for name in ("cut.png", "none.png")]
    width = len(dark[0])
    middle = slice(int(0.45 * width), int(0.6 * width))  # the axis runs from about .08 to .98 of the width
    assert dark[0][middle].max() > 3 * dark[1][middle].max()


def test_axes_and_domains_are_named_with_units_and_counts(tmp_path: Path) -> None:
    # matplotlib writes the text of each label into the SVG, as a comment above its outlines.
    histogram, density, grid = (path.read_text() for path in draw_all(tmp_path, ".svg"))
    for text in ("expected weight E[w]", "[%]", "digits (n = 50, 100% above the cut)", "cut at E[w] = 0.5"):
        assert text in histogram
    for text in ("log a", "log b", "images per cell", "photos (n = 50)", "uniform prior Beta(1, 1)"):
        assert text in density
    for text in ("Kept: E[w] below each image", "Pruned: E[w] below each image", "<!-- 0.20 -->"):
        assert text in grid


def test_kept_images_are_on_the_left_and_pruned_ones_on_the_right(tmp_path: Path) -> None:
    kept = Pictures([solid("red"), solid("red", (4, 12))], np.array([0.9, 0.8], np.float32))
    gray = Pictures([np.full((8, 8), 77, np.uint8)], np.array([0.1], np.float32))
    picture_grid(tmp_path / "g.png", kept, gray)
    assert places_of(tmp_path / "g.png", "red").max() < 0.5
    # 77 = 0x4d: gray levels are shown as they are (the median, as rims of letters may have any gray)
    assert np.median(places_of(tmp_path / "g.png", "#4d4d4d")) > 0.5


def test_a_side_without_images_says_none(tmp_path: Path) -> None:
    picture_grid(tmp_path / "g.svg", Pictures([solid("red")], MEANS[:1]), Pictures([], MEANS[:0]))
    assert "Pruned: none" in (tmp_path / "g.svg").read_text()


def test_more_evidence_for_an_image_lies_further_right(tmp_path: Path) -> None:
    for name, log_a in (("low", -1.0), ("high", 1.0)):
        a = np.exp(np.full(50, log_a, np.float32))
        density_of_beliefs(tmp_path / f"{name}.png", a, np.ones(50, np.float32), np.repeat("x", 50))
    # All 50 lie in one cell, which is drawn in the darkest shade; so is the end of the bar, at the far right.
    columns = [np.median(places_of(tmp_path / f"{name}.png", "#001b2e")) for name in ("low", "high")]
    assert columns[0] < columns[1] < 0.8


@pytest.mark.parametrize("domains", [1, 5])
def test_any_number_of_domains_and_the_corners_of_the_beliefs_can_be_drawn(tmp_path: Path, domains: int) -> None:
    names = np.array([f"domain ${i % domains}$ \\frac" for i in range(18)])
    a, b = np.exp(np.linspace(-15, 15, 18)).astype(np.float32), np.ones(18, np.float32)
    density_of_beliefs(tmp_path / "d.png", a, b, names)
    histogram_of_means(tmp_path / "h.png", a / (a + b), names, 0.5)
    assert pixels(tmp_path / "d.png").shape[1] > 400


def test_the_users_settings_neither_matter_nor_change(tmp_path: Path) -> None:
    first = draw_all(tmp_path / "a", ".png")
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        before = matplotlib.rcParams.copy()
        second = draw_all(tmp_path / "b", ".png")
        assert matplotlib.rcParams.copy() == before
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_matplotlib_comes_in_on_call_only_and_pyplot_never(tmp_path: Path) -> None:
    code = """
import sys, pathlib, numpy, curate.stats.plots
assert "matplotlib" not in sys.modules
curate.stats.plots.histogram_of_means(pathlib.Path(sys.argv[1]), numpy.ones(1), numpy.array(["x"]))
assert "matplotlib.figure" in sys.modules
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "h.png")], check=True)


def test_without_matplotlib_the_extra_to_install_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(CurateError, match=r"^figures need matplotlib; pip install 'curate-bdw\[report\]'$"):
        histogram_of_means(tmp_path / "h.png", MEANS, DOMAINS)
    assert list(tmp_path.iterdir()) == []


def test_another_suffix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"h\.pdf: expected a name that ends in \.png or \.svg; rename the figure$"):
        histogram_of_means(tmp_path / "h.pdf", MEANS, DOMAINS)


def test_values_without_a_domain_each_and_no_values_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CurateError, match=r"^figure: 3 domains for 100 examples; give one domain each, at least one$"):
        histogram_of_means(tmp_path / "h.png", MEANS, DOMAINS[:3])
    with pytest.raises(CurateError, match=r"^figure: 0 domains for 0 examples"):
        density_of_beliefs(tmp_path / "d.png", MEANS[:0], MEANS[:0], DOMAINS[:0])


def test_pictures_need_a_mean_each_and_a_grid_needs_a_picture(tmp_path: Path) -> None:
    with pytest.raises(CurateError, match=r"^pictures: 1 images with 2 means; give one mean each$"):
        Pictures([solid("red")], MEANS[:2])
    with pytest.raises(CurateError, match=r"^picture grid: no image to show; give kept or pruned images$"):
        picture_grid(tmp_path / "g.png", Pictures([], MEANS[:0]), Pictures([], MEANS[:0]))
