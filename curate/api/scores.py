"""How good features are on a target, and whether one method beats another."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from curate.api.paths import SHARDS, place_of
from shards.io.mirror.place import filled, local

if TYPE_CHECKING:
    from curate.api.paths import PathLike
    from curate.evaluation.score import Score
    from curate.evaluation.search import Tell
    from curate.runs.opened import Run
    from curate.stats.friedman import Comparison


def evaluate(
    run: Run | PathLike,
    target: PathLike,
    *,
    protocol: Literal["logistic", "finetune"] = "logistic",
    progress: Tell | None = None,
    warn: Callable[[str], None] | None = None,
    **options: Any,
) -> Score:
    """Score the features of a run or a pre-training on a labelled target.

    Args:
        protocol: logistic regression on frozen features, or training the whole network on.
        progress: called after each epoch with what is trained, the epochs done and those in all.
        warn: called with a line where the network was trained on images of the target's val or test.
        options: of the command line: ``tap`` (a name or several), ``labels_per_class``, ``draws``, ``epoch``,
            ``patience``, ``standardise``, ``solver``, ``device``; of fine-tuning ``grid``, ``epochs``, ``halving``,
            ``out``, ``seed``.

    Returns:
        `Evaluation`; a list of readings where several taps or few labels are asked for; `FinetuneResult`.

    Raises:
        Misuse: an option that the protocol would not look at.
        CurateError: no finished epoch, or a target without labels.

    >>> evaluate("net", "target", tap="layer2").test_accuracy        # doctest: +SKIP
    """
    from curate.evaluation.leaks import trained_on
    from curate.evaluation.score import score
    from curate.runs.threads import computing

    place = options.pop("out", None)
    if protocol == "finetune" or place is not None:
        places: AbstractContextManager[tuple[Path, Path | None]] = _read_and_filled(run, place, SHARDS)
    else:
        places = nullcontext((local(place_of(run), without=SHARDS), None))
    with places as (at, out), computing():
        if warn is not None:
            for line in trained_on(at, os.fspath(target)):
                warn(line)
        named = options if out is None else {**options, "out": out}
        return score(at, os.fspath(target), protocol, named, progress)


def compare_baselines(
    run: Run | PathLike,
    target: PathLike,
    *,
    sets: Sequence[str] = ("raw", "random"),
    taps: Sequence[str] = (),
    labels_per_class: Sequence[int | None] = (5, None),
    out: PathLike | None = None,
    device: str = "auto",
    **options: Any,
) -> dict[str, Any]:
    """Train plainly on a run's curated shards and on others, alike, and tell what is better.

    Args:
        sets: what to compare with, of raw, random, nn, oracle.
        taps: where the networks are read; none for the usual ones.
        labels_per_class: counts, None for all labels.
        out: its folder; None for one in the run's evaluations.
        options: ``seeds``, ``steps``, ``epochs``, ``domain``, ``processes``, ``draws``, ``allow_pipe``; of the logistic
            regression ``epoch``, ``patience``, ``standardise`` (on), ``solver``, and ``tap``, where it is one.

    Returns:
        What ``against.json`` holds: accuracies, intervals and verdicts of each set, regime and reading.

    Raises:
        Misuse: an unknown set, or an option out of its range or that nothing would look at.
        CurateError: the run is not finished, or the target has no labels.

    >>> compare_baselines("run", "target", sets=["raw", "random"], steps=500)        # doctest: +SKIP
    """
    from curate.evaluation.evaluate import Protocol
    from curate.evaluation.score import LOGISTIC, readings, refuse_idle
    from curate.experiments.baselines.against import ComparisonSettings, against, usual_taps

    scoring: dict[str, Any] = {name: options.pop(name) for name in (*LOGISTIC, "epoch") if name in options}
    refuse_idle("logistic", scoring)
    with _read_and_filled(run, out, ()) as (at, folder):
        named = list(taps) or ([scoring["tap"]] if "tap" in scoring else usual_taps(at))
        settings = ComparisonSettings(
            tuple(sets),
            protocol=Protocol(**{"standardise": True, "device": device, **scoring}),
            readings=tuple(readings(named, labels_per_class)),
            **options,
        )
        return against(at, os.fspath(target), settings, folder)


def compare(
    results: PathLike,
    *,
    metric: str | None = None,
    lower_is_better: bool = False,
    alpha: float = 0.05,
    out: PathLike | None = None,
) -> Comparison:
    """Test whether methods differ over data sets: mean ranks, Friedman, Iman-Davenport, Nemenyi (Demsar, 2006).

    Args:
        results: a CSV file with a method a column after the data set's name, or with columns domain, method and scores.
        metric: column of the scores, where the file has several.
        lower_is_better: the lowest score is the best, as of losses.
        alpha: level of the tests, in [1e-10, 1).
        out: also write the critical-difference diagram (PNG, SVG) and a table (Markdown) into this folder.

    Raises:
        CurateError: the file is no complete table of two methods and two data sets at least; or matplotlib is missing.
        Misuse: an option that the file does not fit.

    >>> compare("accuracies.csv").ranks        # doctest: +SKIP
    """
    from curate.stats.comparison import ComparisonOptions, compare_results

    options = ComparisonOptions(metric, "lowest" if lower_is_better else "highest", alpha)
    with nullcontext() if out is None else filled(out) as folder:
        return compare_results(local(results), folder, options)


@contextmanager
def _read_and_filled(
    run: Run | PathLike, out: PathLike | None, without: tuple[str, ...]
) -> Iterator[tuple[Path, Path | None]]:
    """The run, and the folder that is filled: where none is named it is one in the run."""
    if out is None:
        with filled(place_of(run), without=without) as at:
            yield at, None
    else:
        with filled(out) as folder:
            yield local(place_of(run), without=without), folder
