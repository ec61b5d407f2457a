"""A run directory as an object: what a notebook asks of a run, in Arrow tables and plain Python, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from curate.config.resolved import ReadyConfig
from curate.errors import CurateError
from curate.ledger import ledger, manifest
from curate.ledger.metrics import read_metrics
from curate.runs import provenance
from shards.io.json_files import parse_json
from shards.io.mirror.copy import url_of
from shards.io.mirror.place import local
from shards.rewriting.marker import MARKER

if TYPE_CHECKING:
    from curate.models.networks import TappedNetwork


@dataclass(frozen=True)
class Run:
    """A run, or a pre-training, on disk.

    Every table is read when it is asked for, so a run may be watched while it trains.

    Args:
        path: the run directory; of one behind a URL the local copy.
        summary: the result of the call that made it; None where it was only opened.
    """

    path: Path
    summary: Any = None

    @cached_property
    def record(self) -> dict[str, Any]:
        """What run.json holds."""
        return provenance.read_run(self.path)

    @property
    def run_id(self) -> str:
        """Sixteen hex digits: a hash of the configuration and of the fingerprints of store and target."""
        return str(self.record["run_id"])

    @property
    def config(self) -> ReadyConfig:
        """The whole configuration, every default filled in."""
        return provenance.config_of(self.record, self.path)

    @property
    def epochs(self) -> list[int]:
        """The epochs that are done, from 1."""
        return list(range(1, len(read_metrics(self.path)) + 1))

    @property
    def curated(self) -> Path | str:
        """The folder of the curated shards; its URL, where the run is behind one.

        Raises:
            CurateError: they are not there, or not finished.
        """
        folder = self.path / "curated"
        if not (folder / MARKER).is_file():
            raise CurateError(f"{folder}: no finished curated shards; the same run command goes on")
        return url_of(folder) or folder

    def ledger(self, epoch: int | None = None) -> pa.Table:
        """What was believed of every image that was live in an epoch; of all epochs, with a column ``epoch``, for None.

        Raises:
            CurateError: there is no such epoch.
            Unfinished: a partition is damaged.
        """
        if epoch is not None:
            return ledger.read_epoch(self.path, epoch)
        table, faults = ledger.read(self.path)
        if faults:
            raise CurateError("; ".join(faults))
        return table

    def weights(self) -> pa.Table:
        """The last state of every image: the columns of the ledger, and ``pruned_epoch``, null for what was kept.

        Raises:
            CurateError: no epoch is done.
        """
        return ledger.final(self.path)

    def manifest(self, epoch: int | None = None) -> pa.Table:
        """What is kept after an epoch, the last one for None: columns ``shard``, ``key``, ``row``.

        Raises:
            CurateError: there is no such epoch.
        """
        return manifest.read(manifest.path_of(self.path, self._chosen(epoch, ledger.epochs(self.path))))[0]

    def metrics(self) -> list[dict[str, Any]]:
        """A dictionary an epoch: losses, rates, kept and pruned, seconds by stage."""
        return [parse_json(line) for line in read_metrics(self.path)]

    def network(self, epoch: int | None = None, device: str = "cpu") -> TappedNetwork:
        """The network after an epoch, the last one for None, in evaluation mode; 0 is before the first.

        Raises:
            CurateError: there is no such epoch, its checkpoint is damaged, or the machine has no such device.
        """
        from curate.models.networks import network_of
        from curate.runs import checkpoint
        from curate.runs.prepare import pick_device

        network = network_of(self.config)
        number = 0 if epoch == 0 else self._chosen(epoch, checkpoint.finished(self.path))
        if number:
            checkpoint.load_model(checkpoint.folder(self.path, number) / "model.safetensors", network)
        return network.to(pick_device(device)).eval()

    def _chosen(self, epoch: int | None, there: Sequence[int]) -> int:
        if not there:
            raise CurateError(f"{self.path}: no epoch is done; the same run command goes on")
        if epoch is not None and epoch not in there:
            raise CurateError(f"{self.path}: no epoch {epoch}; there are {there[0]} to {there[-1]}")
        return there[-1] if epoch is None else epoch


def open_run(path: str | Path) -> Run:
    """Open the directory of a run or of a pre-training.

    Raises:
        CurateError: there is no run in it.

    >>> run = open_run("run")                            # doctest: +SKIP
    >>> run.weights().group_by("kept").aggregate([("mean", "mean")])   # doctest: +SKIP
    """
    run = Run(local(path, without=("curated/*.tar",)))
    run.record  # noqa: B018  (read now, so that a wrong path is an error here)
    return run
