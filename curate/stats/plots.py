"""Figures of a run: who got which weight, what is believed, and what kept and pruned images look like.

Owns how they look. What is drawn (values, labels of domains, pictures) comes from the caller as arrays; nothing is read
from a run here. matplotlib is imported on call, is drawn with through its objects alone (no display, no state that
outlives the call, no settings of the user's), and the same values give the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from curate.errors import CurateError, Misuse
from curate.types import Floats
from shards.io.atomic import write_bytes

#: Okabe and Ito's colours, told apart with any kind of colour vision, in the order in which domains get them.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")

_STYLE = {
    "figure.dpi": 150,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "text.parse_math": False,  # a dollar in the name of a domain is a dollar
    "svg.hashsalt": "curate",
}


@dataclass(frozen=True)
class Pictures:
    """Some images and the weight of each.

    Args:
        images: m arrays, uint8, of shape (h, w) or (h, w, 3); sizes may differ.
        means: shape (m,), E[w] of each.
    """

    images: Sequence[npt.NDArray[np.uint8]]
    means: Floats

    def __post_init__(self) -> None:
        if len(self.images) != len(self.means):
            raise CurateError(f"pictures: {len(self.images)} images with {len(self.means)} means; give one mean each")


def histogram_of_means(
    path: Path, mean: Floats, domain: npt.NDArray[Any], cut: float | None = None, measure: str = "E[w]"
) -> None:
    """Draw how E[w] is spread over each domain, as shares of the domain, with the cut as a line.

    Args:
        path: ``.png`` or ``.svg``.
        mean: shape (n,), in [0, 1].
        domain: shape (n,), strings: where each example comes from.
        cut: the weight that divides kept from pruned; None draws none.
        measure: what ``mean`` is, where it is no expected weight.

    Raises:
        Misuse: another suffix. CurateError: no example, unequal lengths, or matplotlib is missing.
    """
    groups = _by_domain(domain, len(mean))
    edges = np.linspace(0, 1, 41)
    with canvas(path, 6.4, 1.1 + 1.25 * len(groups)) as figure:
        panels = figure.subplots(len(groups), 1, sharex=True, sharey=True, squeeze=False).ravel()
        for place, (panel, (name, members)) in enumerate(zip(panels, groups.items())):
            percent = 100 * np.histogram(mean[members], edges)[0] / len(members)
            panel.stairs(percent, edges, fill=True, color=COLOURS[place % len(COLOURS)])
            panel.set_title(_heading(name, mean[members], cut))
            if cut is not None:
                panel.axvline(cut, color="black", linestyle="--", linewidth=1.2, label=f"cut at {measure} = {cut:g}")
        panels[0].set(xlim=(0, 1), ylim=(0, None))
        panels[-1].set_xlabel("expected weight E[w]" if measure == "E[w]" else measure)
        figure.supylabel("share of the domain's images [%]", fontsize=10)
        if cut is not None:
            panels[0].legend(loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0)


def density_of_beliefs(path: Path, a: Floats, b: Floats, domain: npt.NDArray[Any]) -> None:
    """Draw where the beliefs (log a, log b) of each domain lie: a panel a domain, one scale of colour for all.

    Dashed lines join beliefs of equal E[w]; the cross is the uniform prior, where every image starts.

    Args:
        path: ``.png`` or ``.svg``.
        a, b: shape (n,), > 0.
        domain: shape (n,), strings.

    Raises:
        As `histogram_of_means`.
    """
    groups = _by_domain(domain, len(a))
    log_a, log_b = np.log(a.astype(np.float64)), np.log(b.astype(np.float64))
    edges = _square_of(log_a, log_b)
    counts = [np.histogram2d(log_a[places], log_b[places], (edges, edges))[0].T for places in groups.values()]
    columns = 2 if len(groups) == 4 else min(3, len(groups))
    rows = -(-len(groups) // columns)
    with canvas(path, 1.6 + 2.7 * columns, 1.1 + 2.9 * rows) as figure:
        panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
        shades, scale = _shades(), _shared_scale(counts)
        for panel, (name, places), count in zip(panels, groups.items(), counts):
            mesh = panel.pcolormesh(
                edges, edges, np.ma.masked_equal(count, 0), norm=scale, cmap=shades, rasterized=True
            )
            _mark_equal_weights(panel, edges)
            panel.set_title(f"{name} (n = {len(places):,})")
            panel.set(aspect="equal", xlim=edges[[0, -1]], ylim=edges[[0, -1]])
            panel.tick_params(labelbottom=True)
        for panel in panels[len(groups) :]:
            panel.set_visible(False)
        figure.supxlabel("log a (evidence for the image)", fontsize=10)
        figure.supylabel("log b (evidence against it)", fontsize=10)
        figure.colorbar(mesh, ax=panels, label="images per cell", shrink=0.8, format="{x:g}")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)


def picture_grid(path: Path, kept: Pictures, pruned: Pictures, columns: int = 6, measure: str = "E[w]") -> None:
    """Draw kept images beside pruned ones, each over its E[w], or whatever ``measure`` names, in the order given.

    Raises:
        As `histogram_of_means`.
    """
    if not len(kept.means) + len(pruned.means):
        raise CurateError("picture grid: no image to show; give kept or pruned images")
    rows = max(-(-len(side.means) // columns) for side in (kept, pruned))
    with canvas(path, 1.7 * columns, 0.6 + 1.0 * rows) as figure:
        sides = figure.subfigures(1, 2, wspace=0.06)
        for side, pictures, title, colour in zip(sides, (kept, pruned), ("Kept", "Pruned"), COLOURS):
            heading = f"{title}: {measure} below each image" if len(pictures.means) else f"{title}: none"
            side.suptitle(heading, color=colour, fontsize=11)
            cells = side.subplots(rows, columns, squeeze=False).ravel()
            for cell in cells:
                cell.set_axis_off()
            for cell, image, mean in zip(cells, pictures.images, pictures.means):
                cell.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
                cell.text(0.5, -0.04, f"{mean:.2f}", transform=cell.transAxes, ha="center", va="top", fontsize=8)


@contextmanager
def canvas(path: Path, width: float, height: float) -> Iterator[Any]:
    """A figure of so many inches, published as ``path`` when the block ends well."""
    if path.suffix not in (".png", ".svg"):
        raise Misuse(f"{path}: expected a name that ends in .png or .svg; rename the figure")
    try:
        import matplotlib.style
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as cause:
        raise CurateError("figures need matplotlib; pip install 'curate-bdw[report]'") from cause
    with matplotlib.style.context(["default", _STYLE]):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        yield figure
        drawing = io.BytesIO()
        unstamped = {"Software": None} if path.suffix == ".png" else {"Date": None, "Creator": None}
        figure.savefig(drawing, format=path.suffix[1:], metadata=unstamped)
    write_bytes(path, drawing.getvalue())


def _by_domain(domain: npt.NDArray[Any], expected: int) -> dict[str, npt.NDArray[np.int64]]:
    """Places of each domain's examples, domains in order of their name."""
    if len(domain) != expected or not expected:
        raise CurateError(f"figure: {len(domain)} domains for {expected} examples; give one domain each, at least one")
    names, codes = np.unique(domain, return_inverse=True)
    return {str(name): np.flatnonzero(codes == code) for code, name in enumerate(names)}


def _heading(name: str, mean: Floats, cut: float | None) -> str:
    above = "" if cut is None else f", {np.mean(mean > cut):.0%} above the cut"
    return f"{name} (n = {len(mean):,}{above})"


def _square_of(log_a: npt.NDArray[np.float64], log_b: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Edges of 40 cells along both axes: all beliefs, the prior with room for the lines around it, and a margin."""
    both = np.concatenate([log_a, log_b, [-3.0, 3.0]])
    margin = 0.05 * (both.max() - both.min())
    return np.linspace(both.min() - margin, both.max() + margin, 41)


def _shared_scale(counts: list[npt.NDArray[np.float64]]) -> Any:
    from matplotlib.colors import LogNorm

    return LogNorm(1, max(10.0, max(count.max() for count in counts)))


def _shades() -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("images", ["#B7D7EC", COLOURS[0], "#001B2E"])


def _mark_equal_weights(panel: Any, edges: npt.NDArray[np.float64]) -> None:
    low, high = edges[0], edges[-1]
    for mean in (0.1, 0.5, 0.9):
        shift = np.log(mean / (1 - mean))  # log a - log b
        label = "equal E[w]" if mean == 0.5 else None
        panel.plot([low, high], [low - shift, high - shift], color="0.45", linestyle="--", linewidth=0.8, label=label)
        place = high - 0.06 * (high - low) + min(0.0, shift)
        box = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        panel.text(place, place - shift, f"{mean:g}", color="0.25", fontsize=8, ha="center", va="center", bbox=box)
    panel.plot(0, 0, "+", color="black", markersize=9, label="uniform prior Beta(1, 1)")
