"""What to do next with a run, as commands that can be pasted."""

from __future__ import annotations

import shlex

from curate.reporting.reading import Reading
from shards.io.mirror.copy import url_of
from shards.io.mirror.place import child


def commands(reading: Reading, target: str) -> list[tuple[str, str]]:
    """What each is for, and the command. Of a run that is not finished: how it goes on.

    Args:
        target: empty where none is known.
    """
    place = url_of(reading.path) or str(reading.path)
    run, store = _word(place), _word(str(reading.options.get("store") or "STORE"))
    aim = _word(target) if target else "TARGET"
    if not reading.finished and reading.judged is None and reading.metrics:
        return []  # of a pre-training: only the call that began it knows how long it was to be
    if not reading.finished:
        return [("Go on with the run", f"curate run --config {_word(child(place, 'run.json'))} --out {run}")]
    if reading.judged is None:
        return [("Score the network's features", f"curate evaluate {run} --target {aim}")]
    curated = _word(child(place, "curated"))
    return [
        ("Choose again, without training", f"curate prune {run} --keep 0.25 --out chosen.parquet"),
        ("Write the shards of that choice", f"curate rewrite --store {store} --manifest chosen.parquet --out chosen"),
        ("Pre-train on what this run kept", f"curate pretrain --store {curated} --out net"),
        ("Score the network's features", f"curate evaluate net --target {aim}"),
        ("Did it pay?", f"curate compare-baselines {run} --target {aim}"),
    ]


def _word(text: str) -> str:
    """As one word of a shell, and no option."""
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
