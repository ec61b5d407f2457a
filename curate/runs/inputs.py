"""Checks of a run that need neither torch nor its data: its options, and that its inputs are there."""

from __future__ import annotations

from curate.config.catalogue import SELECTORS
from curate.config.defaults import refuse_impossible
from curate.config.schema import RunConfig
from curate.data.splits import sources_of
from curate.errors import Misuse
from shards.io import shard_set
from shards.io.mirror.place import local
from shards.io.regular_files import check_regular


def check_inputs(config: RunConfig) -> None:
    """Refuse at once what would be refused after a minute or later.

    Raises:
        Misuse: an option out of its range, two that exclude each other, no such file.
        ShardError, CurateError: no shard of the store, no target.
    """
    refuse_impossible(config)
    shard_set.resolve(config.store, allow_pipe=config.machine.allow_pipe)
    if config.target:
        sources_of(config.target)
    prior = config.belief.prior
    named = prior not in (None, "uniform") and prior not in SELECTORS
    if named and not (
        prior and local(prior, without=("*.tar", "*.safetensors")).exists()
    ):  # an empty name is the folder one is in
        raise Misuse(f"--prior {prior}: no such file; give uniform, classifier, a Parquet file, or a run")
    for option, path in (("--index", config.index), ("--nn-features", config.neighbours.nn_features)):
        if path is not None:
            try:
                check_regular(local(path))
            except OSError as error:
                raise Misuse(f"{option} {path}: {error.strerror}; name a file") from error
