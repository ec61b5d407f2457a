"""Score a network by one of three protocols: logistic regression at one tap or at several, or fine-tuning.

Decides by the options that were given, and refuses those that the protocol would not look at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.data.target import open_target
from curate.errors import Misuse
from curate.evaluation.evaluate import Evaluation, FinetuneResult, Protocol, evaluate, finetune
from curate.evaluation.few_labels import DRAWS
from curate.evaluation.grid import GRIDS, shortened
from curate.evaluation.readings import Read, Reading, read
from curate.evaluation.search import Tell
from curate.evaluation.trained import open_trained

PROTOCOLS = ("logistic", "finetune")
#: Options that only fine-tuning knows.
FINETUNE = ("grid", "epochs", "halving", "out", "seed")
#: Options of logistic regression, of no use where the epoch that is fine-tuned is given.
LOGISTIC = ("tap", "patience", "standardise", "solver")
#: Options that read one network in several ways.
READ = ("labels_per_class", "draws")

Score = Evaluation | FinetuneResult | list[Read]


def score(run: Path, target: str, protocol: str, options: Mapping[str, Any], progress: Tell | None = None) -> Score:
    """Score a run's network on a labelled target.

    Args:
        protocol: one of `PROTOCOLS`.
        options: those that were given, of `FINETUNE`, `LOGISTIC`, `READ`, ``epoch`` and ``device``. ``tap`` is a name
            or several; ``labels_per_class`` counts, None among them for all labels.
        progress: called after each epoch.

    Returns:
        `Evaluation`; a list of `Read` where several taps or few labels are asked for; `FinetuneResult`.

    Raises:
        Misuse: an option that is unknown, out of its range, or that the protocol would not look at.
        CurateError: no run, or no labelled target.
    """
    if protocol not in PROTOCOLS:
        raise Misuse(f"--protocol {protocol}: unknown; known: {', '.join(PROTOCOLS)}")
    unknown = sorted(set(options) - {*FINETUNE, *LOGISTIC, *READ, "epoch", "device"})
    if unknown:
        raise Misuse(f"{', '.join(map(flag, unknown))}: not an option of an evaluation")
    refuse_idle(protocol, options)
    taps, several = taps_of(options.get("tap")), "labels_per_class" in options
    if (several or len(taps) > 1) and protocol == "finetune":
        raise Misuse("--tap, --labels-per-class: several are for logistic regression alone; see compare-baselines")
    named = {name: options[name] for name in (*LOGISTIC, "epoch", "device") if name in options}
    how = Protocol(**{**named, "tap": taps[0] if taps else "pool"})
    if protocol == "finetune":
        return _finetune(run, target, how, options, progress)
    if several or len(taps) > 1:
        asked = readings(taps, options.get("labels_per_class", [None]))
        trained = open_trained(run, target, open_target(target), how.device)
        return read(trained, asked, how, options.get("draws", DRAWS))
    return evaluate(run, target, how, progress)


def taps_of(asked: str | Sequence[str] | None) -> list[str]:
    """The taps as a list: of one name, of several, or empty for None."""
    return [] if asked is None else [asked] if isinstance(asked, str) else list(asked)


def readings(taps: Sequence[str], labels: Sequence[int | None]) -> list[Reading]:
    """Each tap with each count of labels a class, None for all of them."""
    return [Reading(tap, count) for tap in taps or ["pool"] for count in labels]


def refuse_idle(protocol: str, options: Mapping[str, Any]) -> None:
    """Refuse options that the protocol does not read.

    Raises:
        Misuse: one is given; all such are named.
    """
    if protocol != "finetune":
        _refuse(options, FINETUNE, "only for --protocol finetune; add it, or leave them out")
    if "labels_per_class" not in options:
        _refuse(options, ("draws",), "only with --labels-per-class; add it, or leave it out")
    if "epoch" in options:
        if protocol == "finetune":
            _refuse(options, LOGISTIC, "idle where --epoch says which network is fine-tuned; leave them out")
        _refuse(options, ("patience",), "not with --epoch, which leaves one to look at; give one of them")


def flag(name: str) -> str:
    """labels_per_class -> --labels-per-class."""
    return f"--{name.replace('_', '-')}"


def _refuse(options: Mapping[str, Any], names: Sequence[str], why: str) -> None:
    named = [flag(name) for name in names if name in options]
    if named:
        raise Misuse(f"{', '.join(named)}: {why}")


def _finetune(
    run: Path, target: str, how: Protocol, options: Mapping[str, Any], progress: Tell | None
) -> FinetuneResult:
    grid = options.get("grid", "small")
    if grid not in GRIDS:
        raise Misuse(f"--grid {grid}: unknown; known: {', '.join(GRIDS)}")
    chosen = shortened(GRIDS[grid], options.get("epochs"), bool(options.get("halving")))
    out = options.get("out")
    epoch = how if how.epoch is None else how.epoch
    return finetune(
        run, target, chosen, None if out is None else Path(out), options.get("seed", 0), how.device, epoch, progress
    )
