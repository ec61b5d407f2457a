"""pays.json over several calls: what an earlier one found of other targets, pretexts and selectors stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from curate.errors import Misuse
from curate.experiments.pays import presets
from curate.experiments.pays.mixed import TARGETS
from curate.experiments.sweep import Result
from shards.io.json_files import parse_json

#: What must be equal for two calls to be of one study.
_SAME = ("version", "scale", "steps", "labels", "stores")
_ORDER = (*presets.SELECTORS, "untrained", "pixels")


def with_earlier(new: dict[str, Any], path: Path) -> dict[str, Any]:
    """What a call found, and what the pays.json at ``path`` says beside, if there is one.

    Raises:
        Misuse: that is of another study.
    """
    earlier = parse_json(path.read_bytes()) if path.exists() else new
    if other := [name for name in _SAME if earlier.get(name) != new[name]]:
        raise Misuse(f"{path}: is of another study ({', '.join(other)} differ); give another --out")
    whole = {name: _joined(earlier[name], new[name], _arm) for name in ("cells", "verdicts")}
    whole["selected"] = _joined(earlier["selected"], new["selected"], _choice)
    shares = dict.fromkeys((*earlier["encoders"], *new["encoders"]))
    encoders = {share: earlier["encoders"].get(share, {}) | new["encoders"].get(share, {}) for share in shares}
    return new | whole | {"encoders": encoders}


def _joined(earlier: Sequence[Result], new: Sequence[Result], key: Callable[[Result], Any]) -> list[Result]:
    """The lines of both in the study's order; where both have lines of one arm or choice, the new ones."""
    again = {key(line) for line in new}
    return sorted([line for line in earlier if key(line) not in again] + list(new), key=_place)


def _arm(line: Result) -> tuple[Any, ...]:
    return line["share"], line["target"], line["pretext"], line["selector"]


def _choice(line: Result) -> tuple[Any, ...]:
    return line["share"], line["choice"]


def _place(line: Result) -> tuple[float, int, int, int]:
    """Where a line stands: by store, target, pretext and selector."""
    target, selector = (line["target"], line["selector"]) if "target" in line else _parts(line["choice"])
    pretext = list(presets.PRETEXTS).index(line["pretext"]) if "pretext" in line else 0
    return float(line["share"]), TARGETS.index(target), pretext, _ORDER.index(selector)


def _parts(choice: str) -> tuple[str, str]:
    """Target and selector of a choice, whose name may end in a seed.

    >>> _parts("vgg-flowers-classifier-3"), _parts("gtsrb-bdw-prior-0")
    (('vgg-flowers', 'classifier-3'), ('gtsrb', 'bdw-prior'))
    """
    target = next(name for name in TARGETS if choice.startswith(f"{name}-"))
    selector = choice.removeprefix(f"{target}-")
    return target, selector if selector in _ORDER else selector.rpartition("-")[0]
