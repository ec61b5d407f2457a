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
from curate.config.defaults import usual
from curate.config.packers import PACKERS, PackerSpec, PackReport
from curate.config.schema import PAPER_PIXELS, RunConfig, from_options, read_options
from curate.errors import CurateError, Misuse
from curate.runs.inputs import check_inputs
from shards.errors import Error

if TYPE_CHECKING:
    import pyarrow as pa

    from curate.data.subset import Subset
    from curate.duplicates.audit import Audit
    from curate.duplicates.dedup import Deduplicated
    from curate.evaluation.score import Score
    from curate.evaluation.search import Tell
    from curate.experiments.advice.record import Advice
    from curate.ledger.reprune import Grid
    from curate.ledger.summary import EpochSummary
    from curate.progress import Progress
    from curate.reporting.report import Report
    from curate.runs.dry_run import Forecast
    from curate.runs.features import FeatureSummary
    from curate.runs.opened import Run
    from curate.stats.friedman import Comparison
    from shards.api import ArrowStream
    from shards.indexing.index import Index

PathLike = str | os.PathLike[str]


def run(
    store: PathLike | None = None,
    target: PathLike | None = None,
    *,
    out: PathLike,
    config: PathLike | None = None,
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
        progress: called at every step and epoch, such as `curate.progress.Bar`; None for no output.
        options: of `curate.config.schema.RunConfig`, by name.

    Returns:
        The run, whose ``summary`` is a `curate.runs.run.RunSummary`.

    Raises:
        Misuse: an option that is unknown, out of its range, or of no use to the method.
        RunMismatch: ``out`` holds another run.
        NothingLeft, NonFinite, ShardError: as `curate.runs.run.run`.

    >>> run("store", "target", out="run", epochs=5).curated        # doctest: +SKIP
    """
    configuration = configured(store, target, config, paper, options, Path(out))
    check_inputs(configuration)
    from curate.runs.opened import Run as Opened
    from curate.runs.run import run as start
    from curate.runs.threads import computing

    with computing(configuration.machine.threads, progress.note if progress else None, Path(out)):
        return Opened(Path(out), start(configuration, Path(out), progress))


def dry_run(
    store: PathLike | None = None,
    target: PathLike | None = None,
    *,
    out: PathLike,
    config: PathLike | None = None,
    paper: bool = False,
    **options: Any,
) -> Forecast:
    """Time five steps of what `run` would do; nothing is trained or kept.

    Returns:
        Hours, memory, disk, the shape of a target batch, and what will not work.

    >>> dry_run("store", "target", out="run").hours        # doctest: +SKIP
    """
    configuration = configured(store, target, config, paper, options, Path(out))
    check_inputs(configuration)
    from curate.runs.dry_run import dry_run as estimate
    from curate.runs.threads import computing

    with computing(configuration.machine.threads):
        return estimate(configuration, Path(out))


def configuration(
    store: PathLike | None = None,
    target: PathLike | None = None,
    *,
    config: PathLike | None = None,
    paper: bool = False,
    **options: Any,
) -> dict[str, dict[str, Any]]:
    """Every option that `run` would take, defaults filled in; nothing is run, and the store need not be there.

    Returns:
        The options by group, those of the run itself under the empty name. What only the store can tell (the pixels'
        mean) is left out. `run` takes them all as its ``config``, and the run has the same id.

    Raises:
        Misuse: as `run`.

    >>> configuration("store", "target", epochs=5)["train"]["lr"]
    0.01
    """
    from curate.config.defaults import resolve
    from curate.config.schema import choosable

    asked = configured(store, target, config, paper, options, None)
    return choosable(resolve(asked, labelled=not asked.target or _is_labelled(asked.target) is not False))


def pretrain(
    store: PathLike, *, out: PathLike, steps: int | None = None, progress: Progress | None = None, **options: Any
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
    from curate.runs.threads import computing

    with computing(options.get("threads"), progress.note if progress else None, Path(out)):
        return Opened(Path(out), train(os.fspath(store), Path(out), options, steps, progress))


def prune(
    run: Run | PathLike,
    *,
    lam: float | None = None,
    rho: float | None = None,
    keep: float | None = None,
    by: Literal["mean", "lower"] = "mean",
    out: PathLike | None = None,
) -> pa.Table:
    """Judge a finished run again by other thresholds or a budget, without training.

    Args:
        lam: weight below which an image is no help; None for the run's.
        rho: prune when more than this share of the belief lies below; None for the run's.
        keep: keep this share of the decodable images instead, best first; above 1, so many.
        by: best by the mean of the belief, or by its lower bound.
        out: also write the manifest there, a Parquet file.

    Returns:
        The manifest: columns ``shard``, ``key``, ``row``, sorted by row. Its schema's metadata says the rule.

    Raises:
        Misuse: a budget beside thresholds, a number out of its range, or what keeps nothing.
        CurateError: the run is not finished.

    >>> prune("run", keep=0.25, by="lower")        # doctest: +SKIP
    """
    from curate.ledger import reprune

    return reprune.judge_again(_path(run), reprune.Choice(lam, rho, keep, by), Path(out) if out is not None else None)


def manifest_of(run: Run | PathLike) -> Path:
    """The last manifest of a run; of one that still trains, that of the last epoch which is done.

    Args:
        run: a run, or a manifest, which is returned as it is.

    Raises:
        CurateError: the folder is no run, or has no manifest yet.

    >>> manifest_of("run")        # doctest: +SKIP
    PosixPath('run/manifests/epoch=0012.parquet')
    """
    at = _path(run)
    if not at.is_dir():
        return at
    from curate.ledger import ledger, manifest
    from curate.runs.provenance import read_run

    read_run(at)
    found = [path for epoch in ledger.epochs(at) if (path := manifest.path_of(at, epoch)).is_file()]
    if not found:
        raise CurateError(f"{at}: no epoch of it is done, so it has no manifest; let the run go on")
    return found[-1]


def prune_grid(run: Run | PathLike) -> Grid:
    """How much `prune` would keep, over a grid of thresholds; nothing is written.

    Returns:
        ``kept``: the share of the decodable images, a row a ``lam``, a column a ``rho``.

    Raises:
        CurateError: the run is not finished.

    >>> print(prune_grid("run").text())        # doctest: +SKIP
    """
    from curate.ledger import reprune

    return reprune.grid(_path(run))


def ledger_summary(run: Run | PathLike, *, by: Literal["epoch", "domain"] = "epoch") -> list[EpochSummary]:
    """What a run has learnt, in a few numbers an epoch; of one that still trains, the epochs that are done.

    Args:
        by: a row an epoch, or a row for each domain in each epoch, where ``domains.parquet`` tells the store's domains.

    Returns:
        A dictionary a row: ``epoch``, ``live``, ``kept``, ``mean`` (of the weights), ``undecodable``; by domain also
        ``domain``.

    Raises:
        CurateError: there is no run, or its ledger is damaged.
        ShardError: by domain, and the store or its domains are not there.

    >>> ledger_summary("run")[-1]["kept"]        # doctest: +SKIP
    """
    from curate.ledger import summary
    from curate.runs.provenance import read_run

    read_run(_path(run))
    if by == "epoch":
        return summary.by_epoch(_path(run))
    from curate.runs.run_store import store_of
    from shards.indexing import domains

    return summary.by_epoch_and_domain(_path(run), domains.load(store_of(_path(run))))


def write_weights(run: Run | PathLike) -> Path:
    """Write a run's ``weights.parquet``, the last state of every image, and return its path; a finished run has it.

    Raises:
        CurateError: there is no run, or no epoch of it is done.

    >>> write_weights("run")        # doctest: +SKIP
    """
    from curate.ledger.ledger import write_final
    from curate.runs.provenance import read_run

    read_run(_path(run))
    return write_final(_path(run))


def export(
    folder: PathLike,
    *,
    dali: bool = False,
    datacomp: bool = False,
    metadata: bool = False,
    run: Run | PathLike | None = None,
) -> list[Path]:
    """As `shards.export`, and with what a run believes: write what other readers want beside curated shards.

    Args:
        dali: a ``.idx`` file beside each tar, for NVIDIA DALI.
        datacomp: ``uids.npy``, for DataComp's resharder.
        metadata: of the Parquet file beside each shard of the store, as img2dataset writes it, the rows of what was
            kept, with ``weight``, ``a``, ``b`` and ``kept``: ``metadata/NAME.parquet`` for each curated ``NAME.tar``.
        run: that judged the images; None for the one that ``folder`` lies in.

    Returns:
        The paths written.

    Raises:
        Misuse: ``folder`` lies in no run and none is given, or one is given without ``metadata``.
        CurateError: the run has no epoch yet.
        ShardError: a sample lacks what the format needs, or the store has no such metadata.

    >>> export("run/curated", metadata=True)        # doctest: +SKIP
    """
    import shards
    from curate.runs.run_store import run_of, store_and_weights

    if run is not None and not metadata:
        raise Misuse("--run: only with --metadata; add it, or leave --run out")
    if not metadata:
        return shards.export(folder, dali=dali, datacomp=datacomp)
    store, weights = store_and_weights(run_of(Path(folder)) if run is None else _path(run))
    return shards.export(folder, dali=dali, datacomp=datacomp, metadata_of=store, further=weights)


def subset(
    index: Index,
    manifest: pa.Table | ArrowStream | PathLike,
    weights: str | None = None,
    *,
    seed: int = 0,
    batch: int = 1,
    rank: int | None = None,
    ranks: int | None = None,
) -> Subset:
    """Read the kept samples straight from the store's own shards, in torch: a subset without a second copy.

    Each sample is read by its own byte range, of local shards and of those behind a URL.

    Args:
        index: of the store.
        manifest: columns ``shard`` and ``key``: an Arrow table, a Polars or pandas frame, or a Parquet file. Of
            ``weights.parquet``, or an epoch of the ledger, the lines whose ``kept`` is true count.
        weights: a column of it, such as ``mean``: an epoch has as many samples as are kept, drawn in proportion to it,
            so that each comes floor or ceil of its expected count. None for every one once.
        seed: of the order of each epoch, and of its draw.
        batch: the loader's batch size: then its batches are the same for any number of workers, and a count of steps
            says where an epoch stands.
        rank, ranks: of this process; None for what torch.distributed, or the environment, has.

    Returns:
        An `IterableDataset` of ``{"__key__", "__url__", "__row__", "jpg", ...}``, for a torch loader or as the first
        stage of a webdataset pipeline.

    Raises:
        ShardError: the table does not fit the index, keeps nothing, or has no such weights; a shard is compressed.
        Misuse: a number out of its range.

    >>> len(subset(shards.open_index("store"), "run/weights.parquet", "mean"))        # doctest: +SKIP
    """
    from curate.data.subset import subset as open_subset
    from shards.api import table_of

    return open_subset(index, table_of(manifest), weights, seed, batch, rank, ranks)


def report(run: Run | PathLike, *, out: PathLike | None = None, target: PathLike | None = None) -> Report:
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

    with computing():
        if warn is not None:
            for line in trained_on(_path(run), os.fspath(target)):
                warn(line)
        return score(_path(run), os.fspath(target), protocol, options, progress)


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
    named = list(taps) or ([scoring["tap"]] if "tap" in scoring else usual_taps(_path(run)))
    settings = ComparisonSettings(
        tuple(sets),
        protocol=Protocol(**{"standardise": True, "device": device, **scoring}),
        readings=tuple(readings(named, labels_per_class)),
        **options,
    )
    return against(_path(run), os.fspath(target), settings, None if out is None else Path(out))


def features(
    shards: PathLike,
    *,
    encoder: str = "untrained",
    nets: int = 3,
    calibrate: PathLike | None = None,
    index: PathLike | None = None,
    out: PathLike | None = None,
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
    from curate.runs.threads import computing
    from shards import api as shards_api

    other = shards_api.open_index(calibrate) if calibrate is not None else None
    choice, machine = Choice(encoder, nets), MachineConfig(device=device, workers=workers)
    folder = None if out is None else Path(out)
    progress = progress or NullProgress()
    with computing(None, progress.note):
        if photos := photos_at(os.fspath(shards)):
            return features_of_photos(photos, choice, folder, machine, other)
        return compute(shards_api.open_index(shards, index=index), choice, folder, machine, other, progress)


def dedup(
    store: PathLike,
    *,
    out: PathLike,
    level: Literal["exact", "perceptual", "semantic"] = "perceptual",
    distance: int = 8,
    encoder: str | None = None,
    cosine: float | None = None,
    keep: Literal["largest", "first", "highest-weight"] = "largest",
    run: Run | PathLike | None = None,
    against: PathLike | None = None,
    within: bool | None = None,
    soft: bool = False,
    index: PathLike | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Deduplicated:
    """Find images of a store that show the same, and say which of each group stays.

    Args:
        store: the shards.
        out: folder of ``duplicates.parquet``, ``duplicates.png``, and ``manifest.parquet`` or ``weights.parquet``.
        level: the least sure level that counts: the same bytes or pixels, the same look, or features alike,
            which alone decide then.
        distance: bits of 64 in which hashes of the look may differ, 0 to 12.
        encoder: of the features, as `features` has it; None for untrained networks.
        cosine: 1 - cosine of features up to which they are alike; None for 0.04.
        keep: which stays; ties by key.
        run: whose weights, for highest-weight.
        against: another store, or a target: what of the store is like an image of it goes.
        within: whether images of the store are compared with each other; None for yes without ``against``.
        soft: weights of 1 / images of the group in place of a cut.
        index: of the store, where it is not in its folder.
        workers: processes that hash shards, and threads that compare.

    Returns:
        Counts, by level.

    Raises:
        Misuse: an option out of its range, or that nothing would look at.
        CurateError, ShardError: what is named cannot be read.

    >>> dedup("store", out="copies").dropped        # doctest: +SKIP
    """
    from curate.duplicates.dedup import Choice
    from curate.duplicates.request import deduplicate
    from curate.errors import Misuse
    from curate.progress import NullProgress

    for name, value in (("encoder", encoder), ("cosine", cosine)):
        if value is not None and level != "semantic":
            raise Misuse(f"--{name} {value}: of --level semantic; leave it out")
    features = None
    if level == "semantic":
        from curate.runs.semantic_level import by_features

        features = by_features(encoder or "untrained", cosine, workers)
    weights = None if run is None else _path(run) / "weights.parquet"
    choice = Choice(level, distance, keep, weights, against is None if within is None else within, soft)
    compared = None if against is None else os.fspath(against)
    place = None if index is None else Path(index)
    told = progress or NullProgress()
    return deduplicate(os.fspath(store), compared, choice, Path(out), place, workers, told, features)


def audit(
    target: PathLike,
    store: PathLike | None = None,
    *,
    out: PathLike | None = None,
    distance: int = 8,
    drop: bool = False,
    index: PathLike | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Audit:
    """Does a store hold images of a target's val or test, and do copies stand on two sides of the target itself?

    Args:
        target: a folder with train/, val/ and test/, or images alone.
        store: the shards; None to look at the target alone.
        out: folder of tables and pictures; None for none.
        distance: bits of 64 in which hashes of the look may differ, 0 to 12.
        drop: also write ``manifest.parquet``, the store without those images.
        index: of the store, where it is not in its folder.
        workers: processes that hash shards, and threads that compare.

    Returns:
        ``leaks`` and ``across``, a record for each copy; its ``text()`` is for people.

    Raises:
        Misuse: an option out of its range, or ``drop`` without a store or without ``out``.
        CurateError, ShardError: what is named cannot be read.

    >>> audit("target", "store").leaks        # doctest: +SKIP
    """
    from curate.duplicates.request import look_for_leaks
    from curate.progress import NullProgress

    places = None if store is None else os.fspath(store), None if out is None else Path(out)
    at = None if index is None else Path(index)
    return look_for_leaks(os.fspath(target), *places, distance, drop, at, workers, progress or NullProgress())


def reproduce_pays(
    data: PathLike,
    *,
    out: PathLike,
    scale: Literal["smoke", "mini", "full"] = "mini",
    targets: Sequence[str] | None = None,
    selectors: Sequence[str] | None = None,
    processes: int = 1,
) -> dict[str, Any]:
    """When does curation pay? Mix a store of real images, choose from it in every way, train, score, compare.

    Args:
        data: the folder of the study's sets.
        out: stores, runs, networks, tables and figures; a call for other targets goes on in it.
        scale: how large.
        targets, selectors: some of the scale's; None for all.
        processes: cells at a time.

    Returns:
        What ``pays.json`` says: ``cells``, ``verdicts``, ``selected``.

    >>> reproduce_pays("data", out="pays", scale="smoke")["cells"]        # doctest: +SKIP
    """
    from curate.experiments.pays.study import pays

    return pays(Path(data), Path(out), scale, targets=targets, selectors=selectors, processes=processes)


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
    return compare_results(Path(results), None if out is None else Path(out), options)


def demo(
    *, out: PathLike, pretext: Literal["reconstruction", "rotation"] = "reconstruction", seed: int = 0
) -> dict[str, Any]:
    """Hide handwritten digits among patches of photographs, find them again, and train on what was found; minutes.

    Args:
        out: where everything goes: new, or of an unfinished demo.
        pretext: by which BDW weighs the images, beside the choice by the classifier.

    Returns:
        What ``results.json`` holds: accuracies, differences, shares kept, seconds.

    Raises:
        Misuse: ``out`` holds something else, or a demo with other settings.

    >>> demo(out="demo")["kept"]        # doctest: +SKIP
    """
    from curate.experiments.demo.demo import demo as show

    return show(Path(out), pretext, seed)


def pack(
    packer: str,
    source: PathLike | Sequence[PathLike],
    /,
    *,
    out: PathLike,
    seed: int = 0,
    shard_size: int | None = None,
    **options: Any,
) -> PackReport:
    """Make shards of a kind of data, by the name of its packer; those of plug-ins are known, too.

    Args:
        packer: imagefolder, idx, stl10, decathlon, or one that was registered.
        source: what is packed; several where the packer takes several.
        out: new or empty; it appears whole or not at all.
        seed: of splits and orders.
        shard_size: bytes of a shard; None for 256 MiB.
        options: of ``curate pack PACKER``, with underscores. `shards.pack_imagefolder` and its like have them typed.

    Returns:
        What was packed and left out, by packer; its ``text()`` is for people.

    Raises:
        Misuse: an unknown packer or option, or ``out`` holds files.
        ShardError: what lies there is not of the packer's layout.

    >>> pack("imagefolder", "photos", out="store").samples        # doctest: +SKIP
    """
    from curate.experiments.packing import pack as by_name

    sources = [source] if isinstance(source, str | os.PathLike) else list(source)
    return by_name(packer, [Path(one) for one in sources], Path(out), seed, shard_size, options)


def reproduce_table1(
    data: PathLike,
    *,
    out: PathLike,
    scale: Literal["smoke", "mini", "paper"] = "mini",
    sets: Sequence[str] | None = None,
    epochs: int | None = None,
    seeds: int | None = None,
    processes: int = 1,
    seed: int = 0,
) -> dict[str, Any]:
    """Repeat the paper's Table 1 and Figure 1: a VAE on a mix of MNIST-like sets, weighed for one of them.

    Args:
        data: a folder of folders of MNIST-layout files.
        out: gets ``table1.json``, ``.csv``, ``.md``, figures and every run; the same call goes on in it.
        scale: how large.
        sets: names of three folders; None for the three with the most images.
        epochs, seeds: of every method, and runs of each target; None for the scale's.
        processes: targets at a time.

    Returns:
        What ``table1.json`` holds.

    Raises:
        Misuse: no such scale or sets, or ``out`` holds another experiment.

    >>> reproduce_table1("idx", out="table1", scale="smoke")        # doctest: +SKIP
    """
    from curate.experiments.tables.table1 import table1

    return table1(Path(data), Path(out), scale, sets, processes, seed, epochs, seeds)


def reproduce_table2(
    data: PathLike,
    *,
    out: PathLike,
    scale: Literal["smoke", "mini", "paper"] = "mini",
    domains: Sequence[str] | None = None,
    processes: int = 1,
    devices: Sequence[str] = ("auto",),
    seed: int = 0,
) -> dict[str, Any]:
    """Repeat the paper's Table 2 and Figure 2: rotation features under four weightings, scored on many targets.

    Args:
        data: a folder with ``decathlon-1.0/``, folders of STL-10's binary files, or both.
        out: gets ``table2.json``, ``.csv``, ``.md``, ``.tex``, diagrams and every run; the same call goes on in it.
        scale: how large.
        domains: the targets; None for all there are.
        processes: trainings at a time.
        devices: taken in turn by the trainings.

    Returns:
        What ``table2.json`` holds.

    Raises:
        Misuse: no such scale or data set, or ``out`` holds another experiment.

    >>> reproduce_table2("data", out="table2", scale="smoke")        # doctest: +SKIP
    """
    from curate.experiments.tables.table2 import table2

    return table2(Path(data), Path(out), scale, domains, processes=processes, devices=devices, seed=seed)


def reproduce_table3(
    data: PathLike,
    *,
    out: PathLike,
    scale: Literal["smoke", "mini", "paper"] = "mini",
    domain: str | None = None,
    processes: int = 1,
    devices: Sequence[str] = ("auto",),
    seed: int = 0,
) -> dict[str, Any]:
    """Repeat the paper's Table 3: what eta, rho and lambda do on STL-10.

    Args:
        data: a folder with a folder of STL-10's binary files.
        out: gets ``table3.json``, ``.csv``, ``.md``, ``.tex`` and every run; the same call goes on in it.
        scale: how large.
        domain: which of several such folders.
        processes: trainings at a time.
        devices: taken in turn by the trainings.

    Returns:
        What ``table3.json`` holds.

    Raises:
        Misuse: no such scale, not one such data set, or ``out`` holds another experiment.

    >>> reproduce_table3("data", out="table3", scale="smoke")        # doctest: +SKIP
    """
    from curate.experiments.tables.table3 import table3

    return table3(Path(data), Path(out), scale, domain, processes=processes, devices=devices, seed=seed)


def advise(
    store: PathLike,
    target: PathLike,
    *,
    out: PathLike,
    budget: str = "1h",
    pretexts: Sequence[str] = ("rotation", "simclr"),
    seeds: int = 5,
    steps: int | None = None,
    seed: int = 0,
    processes: int | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Advice:
    """Say before anything is paid for whether curating a store for a target is worth it; goes on where it was stopped.

    Args:
        store: the shards.
        target: with labels a small pilot is trained and scored on its val; without, what the images look like decides.
        out: its folder: index, features, the classifier's run, the pilot, contact sheets, ``advice.json``, ``.md``.
        budget: of the real training, in steps ("20000") or hours ("12h").
        pretexts: that the real training may have, of rotation and simclr.
        seeds: trainings of each set in the pilot.
        steps: of each; None for what fits in about two minutes.
        seed: of every draw.
        processes: trainings at a time; None for two, where there are as many cores.
        options: of the classifier's run: ``encoder``, ``nets``, ``features``, ``index``, ``image``, ``device``,
            ``workers``, ``allow_pipe``.

    Returns:
        Verdict, expected gain and its interval, hours of each plan, and what the classifier found.

    Raises:
        Misuse: an option that is unknown or out of its range; ``out`` holds something else.
        RunMismatch: ``out`` holds advice on another store or target, or asked for otherwise.

    >>> advise("store", "target", out="advice").verdict        # doctest: +SKIP
    """
    if idle := sorted(set(options) - set(_ADVICE)):
        raise Misuse(f"{', '.join(idle)}: not an option of advice; it has {', '.join(_ADVICE)}")
    asked = {"store": os.fspath(store), "target": os.fspath(target), **options}
    check_inputs(from_options({**asked, "method": "classifier", "seed": seed}))
    from curate.experiments.advice.advise import advise as find_out
    from curate.experiments.advice.pilot import Pilot
    from curate.experiments.advice.plans import Budget

    pilot = Pilot(tuple(pretexts), seeds, steps, seed, processes)
    return find_out(asked, Path(out), pilot, Budget.parse(budget), progress)


#: What the classifier of `advise` is told; its cut is its own.
_ADVICE = ("encoder", "nets", "features", "index", "image", "device", "workers", "allow_pipe")


def configured(
    store: PathLike | None,
    target: PathLike | None,
    config: PathLike | None,
    paper: bool,
    options: Mapping[str, Any],
    out: Path | None,
) -> RunConfig:
    """The configuration that arguments, a file and paper mode make together; what is given wins over the file.

    What neither says is as `curate.config.defaults.usual` has it, or as the run in ``out`` began, if there is one.

    Raises:
        Misuse: an unknown option, or paper mode beside an option that it fixes at another value.
    """
    given = {name: value for name, value in options.items() if value is not None}
    given |= {name: os.fspath(path) for name, path in (("store", store), ("target", target)) if path is not None}
    chosen = (read_options(Path(config)) if config is not None else {}) | given
    from_options(chosen)  # what is looked into here is of its type
    if paper:
        fixed = paper_mode(chosen.get("method", "bdw")) | PAPER_PIXELS
        for name, value in fixed.items():
            if given.get(name, value) != value:
                raise Misuse(f"--paper fixes --{name.replace('_', '-')} at {value}; leave one of the two out")
        chosen = {**_papers_meta_loss(chosen.get("target")), **chosen, **fixed}
    else:
        unsaid = usual(chosen)
        if out is not None and (out / "run.json").exists():
            from curate.runs.provenance import held_by

            held = held_by(out)
            unsaid = {name: held[name] for name in unsaid if name in held}
        chosen |= unsaid
    return from_options(chosen)


def _papers_meta_loss(target: str | None) -> dict[str, str]:
    """The paper's meta-loss: prototypical where the target has labels. A target that cannot be read raises later."""
    labelled = not target or _is_labelled(target)
    return {} if labelled is None else {"meta_loss": "prototypical" if labelled else "self-supervised"}


def _is_labelled(target: str) -> bool | None:
    """Whether a target has labels; None where it cannot be read."""
    from curate.data.target import is_labelled, open_target

    try:
        return is_labelled(open_target(target))
    except Error:
        return None


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


def register_packer(name: str, factory: str | Callable[..., Any], **spec: Any) -> None:
    """Add a packer, under a name that `pack` and ``curate pack`` take from then on.

    Args:
        factory: called with the path of the source, ``out``, ``seed``, and what options were given; gives a
            `curate.config.packers.PackReport`.
        spec: what else `PackerSpec` says: ``title`` and ``layout``, at least; ``makes``, ``options``.
    """
    PACKERS.register(name, PackerSpec(factory, **spec))


def _path(run: Run | PathLike) -> Path:
    return Path(run) if isinstance(run, str | os.PathLike) else run.path
