"""Drawings of a page as inline SVG: numbers in, the same text out each time. Colours are the page's classes.

A drawing is 360 units wide, so that its letters are as large as the text on a phone, and larger on a desk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from curate.ledger.pruner import mass_below
from curate.types import Floats, Reals

WIDTH, LEFT, RIGHT = 360, 44, 10
BINS, CELLS, LEVELS = 40, 40, 6
#: Beliefs end here (`curate.methods.bdw`): logarithms of a and b.
_FAR = 15.0


def histogram(kept: Floats, pruned: Floats, cut: float | None, measure: str) -> str:
    """Images by weight: the kept upwards, the pruned downwards, counts on one logarithmic scale.

    Args:
        kept, pruned: weights or scores, each of shape (any,), at least 0.
        cut: drawn as a line; None for none.
        measure: what they are.
    """
    top, half, middle = _round_up(max((float(x.max()) for x in (kept, pruned) if len(x)), default=1.0)), 92, 112
    edges = np.linspace(0, top, BINS + 1)
    counts = [np.histogram(np.clip(part, 0, top), edges)[0] for part in (kept, pruned)]
    most = max(10, int(max(part.max() for part in counts)))
    scale, wide = half / math.log10(1 + most), (WIDTH - LEFT - RIGHT) / BINS
    parts = []
    for power in range(int(math.log10(most)) + 1):
        away = math.log10(1 + 10**power) * scale
        for y in (middle - away, middle + away):
            parts.append(_line(LEFT, y, WIDTH - RIGHT, y, "grid"))
            parts.append(_text(LEFT - 5, y + 3.5, f"{10**power:,}", "end"))
    for part, name, up in zip(counts, ("kept", "pruned"), (True, False)):
        for place in np.flatnonzero(part).tolist():
            tall = math.log10(1 + int(part[place])) * scale
            box = (LEFT + place * wide + 0.5, middle - tall if up else middle, wide - 1, tall)
            parts.append(_box(box, name, f"{part[place]:,} {name}, {edges[place]:.4g} to {edges[place + 1]:.4g}"))
    parts.append(_line(LEFT, middle, WIDTH - RIGHT, middle, "axis"))
    for y, word in ((middle - half - 8, f"kept {len(kept):,}"), (middle + half + 15, f"pruned {len(pruned):,}")):
        parts.append(_text(WIDTH - RIGHT, y, word, "end"))
    if cut is not None and cut <= top:
        x = LEFT + cut / top * (WIDTH - LEFT - RIGHT)
        parts.append(_line(x, middle - half, x, middle + half, "cut"))
        parts.append(_text(x + (4 if cut < top / 2 else -4), middle - half - 8, f"{cut:.3g}", _away(cut < top / 2)))
    for share in (0, 0.25, 0.5, 0.75, 1):
        x = LEFT + share * (WIDTH - LEFT - RIGHT)
        parts.append(_text(x, 2 * middle + 12, f"{share * top:g}", "middle"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, 2 * middle + 28, measure, "middle"))
    return _drawing(2 * middle + 36, f"Images by {measure}: {len(kept):,} kept, {len(pruned):,} pruned", parts)


def density(a: Floats, b: Floats, lam: float | None, rho: float) -> str:
    """Where the beliefs Beta(a, b) lie, more images in a stronger colour, by powers of ten; the rule is a line.

    Args:
        a, b: shape (n,), n > 0.
        lam: of the rule; None where none is applied.
    """
    log_a, log_b = np.log(a.astype(np.float64)), np.log(b.astype(np.float64))
    edges = _around(log_a, log_b)
    counts = np.histogram2d(log_a, log_b, (edges, edges))[0]
    low, span = float(edges[0]), float(edges[-1] - edges[0])
    left, above, side = LEFT + 14, 14, WIDTH - LEFT - 14 - RIGHT - 22

    def at(x: float, y: float) -> tuple[float, float]:
        return left + (x - low) / span * side, above + side - (y - low) / span * side

    parts, cell = [], side / CELLS
    levels = np.ceil(np.log10(1 + counts) / max(1e-9, float(np.log10(1 + counts.max()))) * LEVELS).astype(int)
    for level in range(1, LEVELS + 1):
        corners = [at(edges[i], edges[j + 1]) for i, j in np.argwhere(levels == level).tolist()]
        path = "".join(f"M{x:.1f} {y:.1f}h{cell:.2f}v{cell:.2f}h-{cell:.2f}z" for x, y in corners)
        if path:
            parts.append(f'<path class="cell" fill-opacity="{level / LEVELS:.2f}" d="{path}"/>')
    for mean in (0.1, 0.5, 0.9):
        shift = math.log(mean / (1 - mean))  # log a - log b
        ends = (max(low, low + shift), min(low + span, low + span + shift))
        parts.append(_path([at(x, x - shift) for x in ends], "grid"))
        far = ends[1] - 0.07 * span
        x, y = at(far, far - shift)
        parts.append(_text(x, y + 4, f"{mean:g}", "middle", "halo"))
    if lam is not None:
        border = [(x, y) for x, y in _border(edges, lam, rho) if low <= y <= low + span]
        parts.append(_path([at(x, y) for x, y in border], "cut"))
    parts.append(f'<rect class="frame" x="{left}" y="{above}" width="{side}" height="{side}"/>')
    for tick in _ticks(low, low + span):
        (x, _), (_, y) = at(tick, low), at(low, tick)
        parts += [_text(x, above + side + 15, f"{tick:g}", "middle"), _text(left - 6, y + 4, f"{tick:g}", "end")]
    middle = above + side / 2
    parts.append(_text(left + side / 2, above + side + 32, "log a: evidence for the image", "middle"))
    turned = f'x="14" y="{middle:g}" transform="rotate(-90 14 {middle:g})"'
    parts.append(f'<text {turned} text-anchor="middle">log b: evidence against it</text>')
    return _drawing(above + side + 40, f"Where the beliefs of {len(a):,} images lie", parts)


def over_epochs(numbers: Sequence[int], shares: Sequence[float]) -> str:
    """The share of the images that is kept: at the start, and after each epoch.

    Args:
        numbers: of the epochs, from 1; or from 0, where there is a prior.
        shares: as long, in [0, 1].
    """
    tall, above = 150, 14
    wide = (WIDTH - LEFT - RIGHT) / max(1, len(shares))
    points = [(LEFT + i * wide, above + tall * (1 - share)) for i, share in enumerate([1.0, *shares])]
    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = above + tall * (1 - share)
        parts += [_line(LEFT, y, WIDTH - RIGHT, y, "grid"), _text(LEFT - 5, y + 4, f"{share:.0%}", "end")]
    floor = [(points[-1][0], above + tall), (points[0][0], above + tall)]
    parts.append(_path([*points, *floor], "kept area"))
    parts.append(_path(points, "kept line"))
    step = -(-len(shares) // 8)
    for i in range(0, len(shares) + 1, step):
        word = str(numbers[i - 1]) if i else "start"
        parts.append(_text(LEFT + i * wide, above + tall + 16, word, "middle"))
    if len(shares) <= 40:
        for number, part, (x, y) in zip(numbers, shares, points[1:]):
            parts.append(f'<circle class="kept" cx="{x:.1f}" cy="{y:.1f}" r="3">{_hint(number, part)}</circle>')
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, above + tall + 33, "after epoch", "middle"))
    return _drawing(above + tall + 40, f"Share kept after {len(shares)} epochs: {shares[-1]:.1%}", parts)


def _hint(epoch: int, share: float) -> str:
    return f"<title>epoch {epoch}: {share:.1%} kept</title>"


def _around(log_a: Reals, log_b: Reals) -> Reals:
    """Edges of the cells along both axes: all beliefs and the uniform prior, with a margin."""
    both = np.concatenate([log_a, log_b, [-2.0, 2.0]])
    margin = 0.05 * float(both.max() - both.min())
    return np.asarray(np.linspace(both.min() - margin, both.max() + margin, CELLS + 1))


def _border(edges: Reals, lam: float, rho: float) -> list[tuple[float, float]]:
    """Points (log a, log b) where just ``rho`` of the belief lies below ``lam``: above the line an image goes."""
    log_a = np.linspace(edges[0], edges[-1], 121)
    low, high = np.full(len(log_a), -_FAR), np.full(len(log_a), _FAR)
    for _ in range(40):  # the mass below grows with b
        middle = (low + high) / 2
        kept = mass_below(np.exp(log_a), np.exp(middle), lam) <= rho
        low, high = np.where(kept, middle, low), np.where(kept, high, middle)
    return list(zip(log_a.tolist(), ((low + high) / 2).tolist()))


def _ticks(low: float, high: float) -> list[float]:
    """Three to seven round numbers between two."""
    step = _round_up((high - low) / 7)
    return [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _round_up(value: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that is not below.

    >>> _round_up(0.6), _round_up(1.0), _round_up(0.013)
    (1.0, 1.0, 0.02)
    """
    if value <= 0:
        return 1.0
    power = math.floor(math.log10(value))
    return float(min(x for k in (power, power + 1) for f in (1, 2, 5) if (x := float(f"{f}e{k}")) >= value * 0.9999999))


def _drawing(height: float, says: str, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{says}">{"".join(parts)}</svg>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _path(points: Sequence[tuple[float, float]], kind: str) -> str:
    return f'<path class="{kind}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}"/>' if points else ""


def _box(box: tuple[float, float, float, float], kind: str, says: str) -> str:
    x, y, width, height = box
    sides = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
    return f'<rect class="{kind}" {sides}><title>{says}</title></rect>'


def _text(x: float, y: float, word: str, anchor: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{word}</text>'


def _away(right: bool) -> str:
    return "start" if right else "end"
