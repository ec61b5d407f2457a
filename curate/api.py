"""The public calls of the package, under the names that `curate` gives them; the command line makes the same calls.

Stores and targets are named by strings or paths: a folder, a tar, a brace pattern, a list file or a URL. Options are
those of the command line, with underscores: ``epochs=5, lr_drops=(3,)``. Whatever can go wrong is a
`shards.errors.Error` whose text is one line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from curate.config.catalogue import (
    META_LOSSES,
    METHODS,
    NETWORKS,
    PRETEXTS,
    MetaLossSpec,
    MethodSpec,
    NetworkSpec,
    PretextSpec,
)
from curate.config.defaults import paper as paper_mode
from curate.config.schema import RunConfig, from_options, read_options
from curate.errors import Misuse
from curate.runs.inputs import check_inputs
from shards.errors import Error

if TYPE_CHECKING:
    import pyarrow as pa

    from curate.evaluation.score import Score
    from curate.evaluation.search import Tell
    from curate.progress import Progress
    from curate.reporting.report import Report
    from curate.runs.dry_run import Forecast
    from curate.runs.features import FeatureSummary
    from curate.runs.opened import Run

Place = str | os.PathLike[str]


def run(
    store: Place | None = None,
    target: Place | None = None,
    *,
    out: Place,
    config: Place | None = None,
    paper: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Run:
    """Weigh every image of a store by a target, prune, and rewrite what is kept; goes on where it was stopped.

    Args:
        store: the shards that are curated; may stand in ``config``.
        target: what for; not needed by methods that look at none.
        out: the run directory, new or of the same run.
        config: a TOML or JSON file of options, or a run.json; what is given here wins over it.
        paper: the paper's constants, and none of our options.
        progress: told what happens, such as `curate.progress.Bar`; None for silence.
        options: of `curate.config.schema.RunConfig`, by name.

    Returns:
        The run, whose ``summary`` is a `curate.runs.run.RunSummary`.

    Raises:
        Misuse: an option that is unknown, out of its range, or of no use to the method.
        RunMismatch: ``out`` holds another run.
        NothingLeft, NonFinite, ShardError: as `curate.runs.run.run`.

    >>> run("store", "target", out="run", epochs=5).curated        # doctest: +SKIP
    """
    asked = configured(store, target, config, paper, options)
    check_inputs(asked)
    from curate.runs.opened import Run as Opened
    from curate.runs.run import run as start

    return Opened(Path(out), start(asked, Path(out), progress))


def dry_run(
    store: Place | None = None,
    target: Place | None = None,
    *,
    out: Place,
    config: Place | None = None,
    paper: bool = False,
    **options: Any,
) -> Forecast:
    """Time five steps of what `run` would do; nothing is trained or kept.

    Returns:
        Hours, memory, disk, the shape of a target batch, and what will not work.

    >>> dry_run("store", "target", out="run").hours        # doctest: +SKIP
    """
    asked = configured(store, target, config, paper, options)
    check_inputs(asked)
    from curate.runs.dry_run import dry_run as estimate

    return estimate(asked, Path(out))


def pretrain(
    store: Place, *, out: Place, steps: int | None = None, progress: Progress | None = None, **options: Any
) -> Run:
    """Train a network plainly on any shards, every image alike; goes on where it was stopped.

    Args:
        steps: train for exactly so many; None for ``epochs``.

    Returns:
        The run, whose ``summary`` is a `curate.runs.pretrain.PretrainSummary`.

    >>> pretrain("run/curated", out="net", epochs=35).network()        # doctest: +SKIP
    """
    check_inputs(from_options({**options, "store": os.fspath(store), "target": "", "method": "uniform"}))
    from curate.runs.opened import Run as Opened
    from curate.runs.pretrain import pretrain as train

    return Opened(Path(out), train(os.fspath(store), Path(out), options, steps, progress))


def prune(
    run: Run | Place,
    *,
    lam: float | None = None,
    rho: float | None = None,
    keep: float | None = None,
    by: Literal["mean", "lower"] = "mean",
    out: Place | None = None,
) -> pa.Table:
    """Judge a finished run again by other thresholds or a budget, without training.

    Args:
        lam: weight below which an image is no help; None for the run's.
        rho: prune when more than this share of the belief lies below; None for the run's.
        keep: keep this share of the decodable images instead, best first.
        by: best by the mean of the belief, or by its lower bound.
        out: also write the manifest there, a Parquet file.

    Returns:
        The manifest: columns ``shard``, ``key``, ``row``, sorted by row. Its schema's metadata says the rule.

    Raises:
        Misuse: a budget beside thresholds, or a number out of its range.
        CurateError: the run is not finished.

    >>> prune("run", keep=0.25, by="lower")        # doctest: +SKIP
    """
    from curate.ledger import reprune

    return reprune.judge_again(_path(run), reprune.Choice(lam, rho, keep, by), Path(out) if out is not None else None)


def report(run: Run | Place, *, out: Place | None = None, target: Place | None = None) -> Report:
    """Show a run on one HTML page that needs nothing else: what was kept and why, pictures, costs, what to do next.

    Args:
        run: finished or not, or a pre-training.
        out: the page; None for ``report.html`` in the run.
        target: whose images are looked for among the kept; None for the run's own.

    Returns:
        Its ``path``, and the ``numbers`` that it shows.

    Raises:
        Misuse: ``out`` is a folder, or holds something else.
        CurateError: no run, or a damaged file of it. A store or a target that is gone is said in the page.

    >>> report("run").path        # doctest: +SKIP
    """
    from curate.reporting.report import report as write

    return write(_path(run), None if out is None else Path(out), None if target is None else os.fspath(target))


def evaluate(
    run: Run | Place,
    target: Place,
    *,
    protocol: Literal["logistic", "finetune"] = "logistic",
    progress: Tell | None = None,
    **options: Any,
) -> Score:
    """Score the features of a run or a pre-training on a labelled target.

    Args:
        protocol: logistic regression on frozen features, or training the whole network on.
        progress: told of each epoch.
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
    from curate.evaluation.score import score

    return score(_path(run), os.fspath(target), protocol, options, progress)


def compare_baselines(
    run: Run | Place,
    target: Place,
    *,
    sets: Sequence[str] = ("raw", "random"),
    taps: Sequence[str] = (),
    labels_per_class: Sequence[int | None] = (5, None),
    out: Place | None = None,
    device: str = "auto",
    **options: Any,
) -> dict[str, Any]:
    """Train plainly on a run's curated shards and on others, alike, and tell what is better.

    Args:
        sets: what to compare with, of raw, random, nn, oracle.
        taps: where the networks are read; none for the usual ones.
        labels_per_class: counts, None for all labels.
        out: its folder; None for one in the run's evaluations.
        options: ``seeds``, ``steps``, ``epochs``, ``domain``, ``processes``, ``draws``, ``allow_pipe``.

    Returns:
        What ``against.json`` holds: accuracies, intervals and verdicts of each set, regime and reading.

    >>> compare_baselines("run", "target", sets=["raw", "random"], steps=500)        # doctest: +SKIP
    """
    from curate.evaluation.evaluate import Protocol
    from curate.evaluation.score import readings
    from curate.experiments.baselines.against import Asked, against, usual_taps

    asked = Asked(
        tuple(sets),
        protocol=Protocol(standardise=True, device=device),
        readings=tuple(readings(list(taps) or usual_taps(_path(run)), labels_per_class)),
        **options,
    )
    return against(_path(run), os.fspath(target), asked, None if out is None else Path(out))


def features(
    shards: Place,
    *,
    encoder: str = "untrained",
    nets: int = 3,
    calibrate: Place | None = None,
    index: Place | None = None,
    out: Place | None = None,
    workers: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> FeatureSummary:
    """Compute features of every image once; selectors use them again and again.

    Args:
        shards: a shard set, or a folder or list of image files.
        encoder: of `curate.config.catalogue.ENCODERS`, with what it needs after a colon.
        nets: networks of the untrained encoder, 1 to 3.
        calibrate: for a target: the store that the untrained networks are measured on.
        index: of the shards, where it is not in their folder.
        out: folder; None for ``features`` beside the shards.

    >>> features("store", encoder="untrained").images_per_second        # doctest: +SKIP
    """
    from curate.config.schema import MachineConfig
    from curate.data.photos import photos_at
    from curate.progress import NullProgress
    from curate.runs.features import Choice, features_of_photos
    from curate.runs.features import features as compute
    from shards import api as shards_api

    other = shards_api.open_index(calibrate) if calibrate is not None else None
    choice, machine = Choice(encoder, nets), MachineConfig(device=device, workers=workers)
    folder = None if out is None else Path(out)
    if photos := photos_at(os.fspath(shards)):
        return features_of_photos(photos, choice, folder, machine, other)
    return compute(
        shards_api.open_index(shards, index=index), choice, folder, machine, other, progress or NullProgress()
    )


def configured(
    store: Place | None, target: Place | None, config: Place | None, paper: bool, options: Mapping[str, Any]
) -> RunConfig:
    """The configuration that arguments, a file and paper mode make together; what is given wins over the file.

    Raises:
        Misuse: an unknown option, or paper mode beside an option that it fixes at another value.
    """
    given = {name: value for name, value in options.items() if value is not None}
    given |= {name: os.fspath(place) for name, place in (("store", store), ("target", target)) if place is not None}
    chosen = (read_options(Path(config)) if config is not None else {}) | given
    if paper:
        fixed = paper_mode(chosen.get("method", "bdw"))
        for name, value in fixed.items():
            if given.get(name, value) != value:
                raise Misuse(f"--paper fixes --{name.replace('_', '-')} at {value}; leave one of the two out")
        chosen = {**_papers_meta_loss(chosen.get("target")), **chosen, **fixed}
    return from_options(chosen)


def _papers_meta_loss(target: str | None) -> dict[str, str]:
    """The paper's: prototypical where the target has labels. One that cannot be opened is told of by who needs it."""
    from curate.data.target import is_labelled, open_target

    try:
        labelled = not target or is_labelled(open_target(target))
    except Error:
        return {}
    return {"meta_loss": "prototypical" if labelled else "self-supervised"}


def register_method(name: str, factory: str | Callable[..., Any], **spec: Any) -> None:
    """Add a way to weigh images, under a name that ``method`` takes from then on.

    Args:
        factory: called with `curate.methods.base.MethodInputs`, gives a `curate.methods.base.Method`; or where to
            import it from, ``module:Class``.
        spec: what else `MethodSpec` says: ``needs_target``, ``inputs``, ``defaults``, ``inapplicable``.

    Raises:
        Misuse: the name is taken.

    >>> register_method("half", lambda inputs: ..., needs_target=False)        # doctest: +SKIP
    """
    METHODS.register(name, MethodSpec(factory, **spec))


def register_pretext(name: str, factory: str | Callable[..., Any], **spec: Any) -> None:
    """Add a pretext task, under a name that ``pretext`` takes from then on.

    Args:
        factory: called with (`Augment`, `NetworkConfig`), gives a `curate.pretexts.base.Pretext`.
        spec: what else `PretextSpec` says: ``defaults`` of options, ``outputs`` of the head, ``network``,
            ``statistics``.
    """
    PRETEXTS.register(name, PretextSpec(factory, **spec))


def register_meta_loss(name: str, factory: str | Callable[..., Any], **spec: Any) -> None:
    """Add a loss on the target.

    Args:
        factory: called with (target images, `MetaConfig`, `Augment`, `Pretext`, seed), gives a
            `curate.metalosses.base.MetaLoss`.
        spec: what else `MetaLossSpec` says: ``needs_labels``, ``is_pretext``.
    """
    META_LOSSES.register(name, MetaLossSpec(factory, **spec))


def register_network(name: str, factory: str | Callable[..., Any], **spec: Any) -> None:
    """Add a network, under a name that ``network`` takes from then on.

    Args:
        factory: called with (`NetworkConfig`, `ImageConfig`, outputs of the head), gives a
            `curate.models.networks.TappedNetwork`.
        spec: what else `NetworkSpec` says: ``title``, ``pretext``.
    """
    NETWORKS.register(name, NetworkSpec(factory, **{"title": name, **spec}))


def _path(run: Run | Place) -> Path:
    return Path(run) if isinstance(run, str | os.PathLike) else run.path
