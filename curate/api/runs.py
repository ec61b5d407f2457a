"""Runs: what is trained, and by which options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.api.paths import SHARDS
from curate.config.defaults import paper as paper_mode
from curate.config.defaults import usual
from curate.config.schema import PAPER_PIXELS, RunConfig, from_options, read_options
from curate.errors import Misuse
from curate.runs import torchrun
from curate.runs.inputs import check_inputs
from shards.errors import Error
from shards.io import remote
from shards.io.mirror.place import filled, local

if TYPE_CHECKING:
    from curate.api.paths import PathLike
    from curate.progress import Progress
    from curate.runs.dry_run import Forecast
    from curate.runs.opened import Run


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
        out: the run directory, new or of the same run; a path, or a URL of an object store.
        config: a TOML or JSON file of options, or a run.json; what is given here wins over it.
        paper: the paper's constants, and none of our options.
        progress: called at every step and epoch, such as `curate.progress.Bar`; None for no output.
        options: of `curate.config.schema.RunConfig`, by name.

    Returns:
        The run, whose ``summary`` is a `curate.runs.run.RunSummary`; None in a process that torchrun has started beside
        the first.

    Raises:
        Misuse: an option that is unknown, out of its range, or of no use to the method.
        RunMismatch: ``out`` holds another run.
        NothingLeft, NonFinite, ShardError: as `curate.runs.run.run`.

    >>> run("store", "target", out="run", epochs=5).curated        # doctest: +SKIP
    """
    with filled(out, without=SHARDS) as folder:
        configuration = torchrun.asked(configured(store, target, config, paper, options, folder))
        _refuse_far(out, configuration)
        check_inputs(configuration)
        from curate.runs.launch import on_ranks
        from curate.runs.opened import Run as Opened
        from curate.runs.run import run as start

        work = partial(start, configuration, folder)
        return Opened(folder, on_ranks(work, configuration.machine, folder, progress))


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
    with filled(out, without=SHARDS) as folder:
        configuration = configured(store, target, config, paper, options, folder)
        check_inputs(configuration)
        from curate.runs.dry_run import dry_run as estimate
        from curate.runs.threads import computing

        with computing(configuration.machine.threads):
            return estimate(configuration, folder)


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
        The run, whose ``summary`` is a `curate.runs.pretrain.PretrainSummary`, or None as of `run`.

    >>> pretrain("run/curated", out="net", epochs=35).network()        # doctest: +SKIP
    """
    given = {**options, "store": os.fspath(store), "target": "", "method": "uniform"}
    configuration = torchrun.asked(from_options(given))
    _refuse_far(out, configuration)
    check_inputs(configuration)
    from curate.runs.launch import on_ranks
    from curate.runs.opened import Run as Opened
    from curate.runs.pretrain import pretrain as train

    machine = configuration.machine
    with filled(out) as folder:
        work = partial(train, os.fspath(store), folder, {**options, "devices": machine.devices}, steps)
        return Opened(folder, on_ranks(work, machine, folder, progress))


def _refuse_far(out: PathLike, config: RunConfig) -> None:
    """Refuse to send away what one of several processes writes, as another would have to follow it."""
    if config.machine.devices > 1 and remote.is_url(os.fspath(out)):
        raise Misuse(f"--out {out}: with --devices {config.machine.devices} it must be a folder; give one, and copy it")


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
    chosen = (read_options(local(config)) if config is not None else {}) | given
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
