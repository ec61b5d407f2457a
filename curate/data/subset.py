"""Kept samples straight from the store's own shards, for any loader of torch: a subset without a second copy.

Owns who reads what: the parts of ranks and workers, the epoch's order, and where it stands. The samples are read by
`shards.stream`, each by its own bytes.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import tee
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch.utils.data import IterableDataset, get_worker_info

from curate.data.resampling import systematic_counts
from curate.errors import Misuse
from curate.types import Ints, Mask, Reals
from shards import shuffle, stream
from shards.errors import ShardError
from shards.indexing.index import Index
from shards.io.storage import clients
from shards.rewriting.manifest import rows_of_lines

#: Under which a subset's state has them on its way to a process that is started.
_SETTINGS = "settings of object stores"


class Subset(IterableDataset[dict[str, Any]]):
    """The kept samples of a store, ``{"__key__", "__url__", "__row__", "jpg", ...}``: each once an epoch.

    Over all ranks, and all workers of their loaders, every kept sample comes once an epoch, or, drawn by weights, as
    often as the draw says. The order is a block shuffle of (seed, epoch), the same for any number of workers and ranks:
    of every ``ranks * batch`` samples of it, each rank takes ``batch``, and its workers take turns. Call `set_epoch`
    before each pass, as a loader's workers have copies of this object.

    Args:
        index: of the store.
        rows: shape (n,), int64, increasing: what is kept.
        weights: shape (n,): what an epoch is drawn by; None for every sample once.
        seed: of orders and draws.
        batch: samples of a loader's batch.
        rank, ranks: of this process, and how many there are.
    """

    def __init__(
        self, index: Index, rows: Ints, weights: Reals | None, *, seed: int, batch: int, rank: int, ranks: int
    ) -> None:
        super().__init__()
        self.rows, self.weights = rows, weights
        self.kept = Index(index.root, index.shards, index.table.take(pa.array(rows)).combine_chunks())
        self.seed, self.batch, self.rank, self.ranks = seed, batch, rank, ranks
        #: Epoch, position in it from which it is read, and whether a worker does: shared, also with workers that stay.
        self._begin = torch.zeros(3, dtype=torch.int64)
        self._begin.share_memory_()  # type: ignore[no-untyped-call]
        #: The same of this process alone: where its own reading stands, and what a worker was told to begin with.
        self._here: tuple[int, int] | None = None
        self._told: tuple[int, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """As any object's; a worker that a loader starts afresh gets the settings of object stores with it."""
        spawning = multiprocessing.context.get_spawning_popen() is not None
        return self.__dict__ | ({_SETTINGS: clients.configured()} if spawning else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what `__getstate__` gave."""
        settings = state.pop(_SETTINGS, clients.configured())
        if settings != clients.configured():
            clients.configure(settings)
        self.__dict__.update(state)

    def __len__(self) -> int:
        """Samples of this rank in a whole epoch; ranks differ by one at most."""
        rounds, rest = divmod(len(self.rows), self.batch * self.ranks)
        return rounds * self.batch + rest * (self.rank + 1) // self.ranks - rest * self.rank // self.ranks

    def set_epoch(self, epoch: int) -> None:
        """Read this epoch in the next pass: from its beginning, or where a state of it that was just loaded stands."""
        check_whole("the number of an epoch", epoch, 0)
        begun = self._here is not None or bool(self._begin[2])
        if epoch == int(self._begin[0]) and not begun:
            return
        self._begin.copy_(torch.tensor([epoch, 0, 0]))
        self._here = None

    def state_dict(self, samples: int | None = None) -> dict[str, Any]:
        """Where the reading stands, for `load_state_dict`.

        Args:
            samples: of the epoch, how many all ranks have used together: what only the training loop knows where a
                loader's workers read. With ``batch`` the loader's, that is steps * batch * ranks, the last step
                included, though it may have fewer. None for what was read in this process.

        Raises:
            Misuse: none where workers read, or more than there are.
        """
        epoch, position = self._here or self._begins()
        if samples is not None:
            check_whole("state_dict: samples", samples, 0)
            last = samples - len(self.rows) < self.batch * self.ranks
            epoch, position = int(self._begin[0]), min(samples, len(self.rows)) if last else samples
        elif self._begin[2] and get_worker_info() is None:
            raise Misuse(
                "state_dict: a loader's workers read", todo="say how many samples all ranks have used together"
            )
        if not 0 <= position <= len(self.rows):
            raise Misuse("state_dict: samples", expected=f"0 to {len(self.rows)}", found=position)
        return {"epoch": epoch, "position": position, "seed": self.seed, "subset": self._digest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on, in the next pass, where ``state`` was taken; ranks, workers and batch may be others since.

        Raises:
            Misuse: it is of another subset, other weights or another seed.
        """
        held = {"seed": self.seed, "subset": self._digest}
        if any(state.get(name) != value for name, value in held.items()):
            raise Misuse("the state is of another subset", todo="make it of the same store, table, weights and seed")
        began = int(state["epoch"]), int(state["position"])
        if get_worker_info() is None:
            self._begin.copy_(torch.tensor([*began, 0]))
            self._here = None
        else:  # the other workers have places of their own
            self._told = began

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The samples of this rank and worker, from where the epoch stands."""
        (epoch, start), self._told = self._told or self._begins(), None
        self._here = epoch, start
        if get_worker_info() is not None:
            self._begin[2] = 1
        parts, again = tee(self._parts(epoch, start))
        positions = (position for part, _ in parts for position in part.tolist())
        samples = stream.samples_by_range(self.kept, (places for _, places in again))
        for position, sample in zip(positions, samples, strict=True):
            self._here = epoch, position + 1
            sample["__row__"] = int(self.rows[sample["__row__"]])
            yield sample
        self._here = epoch, len(self.rows)

    def _begins(self) -> tuple[int, int]:
        epoch, position, _ = self._begin.tolist()
        return epoch, position

    def _parts(self, epoch: int, start: int) -> Iterator[tuple[Ints, Ints]]:
        """Of each window of the order, this worker's positions from ``start`` on, and which sample stands at each."""
        info, n = get_worker_info(), len(self.rows)
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        drawn = np.arange(n)
        if self.weights is not None:
            drawn = np.repeat(drawn, systematic_counts(self.weights, self.seed, epoch))
        for first, places in shuffle.windowed_order(n, self.seed, epoch, start):
            positions = np.arange(first, first + len(places))
            turns, of_rank = rank_turns(positions, n, self.batch, self.rank, self.ranks)
            mine = of_rank & (turns % workers == worker) & (positions >= start)
            yield positions[mine], drawn[places[mine]]

    @cached_property
    def _digest(self) -> str:
        """What the order of an epoch is a function of, beside the seed."""
        digest = hashlib.sha256(self.kept.fingerprint.encode() + np.ascontiguousarray(self.rows, "<i8").tobytes())
        if self.weights is not None:
            digest.update(np.ascontiguousarray(self.weights, "<f8").tobytes())
        return digest.hexdigest()[:16]


def check_whole(name: str, value: object, least: int) -> None:
    """Raise `Misuse` unless a value is a whole number from ``least`` to what 63 bits hold."""
    if not isinstance(value, int | np.integer) or not least <= value < 2**63:
        raise Misuse(name, expected=f"a whole number, at least {least}", found=repr(value))


def rank_turns(positions: Ints, count: int, batch: int, rank: int, ranks: int) -> tuple[Ints, Mask]:
    """Which turn of an epoch each position belongs to, and whether it is this rank's.

    A turn is ``ranks * batch`` positions, of which each rank has ``batch`` that stand together; the last, shorter turn
    is split evenly.
    """
    turns, place = np.divmod(positions, batch * ranks)
    size = np.minimum(batch * ranks, count - turns * batch * ranks)
    return turns, (size * rank // ranks <= place) & (place < size * (rank + 1) // ranks)


def subset(
    index: Index, table: pa.Table, weights: str | None, seed: int, batch: int, rank: int | None, ranks: int | None
) -> Subset:
    """The subset of a store that a table names; see `curate.subset`."""
    if (rank is None) != (ranks is None):
        raise Misuse("rank and ranks: one without the other; give both, or none")
    if not isinstance(index, Index):
        raise Misuse("the index", expected="what shards.open_index gives", found=repr(index)[:80])
    here, of = place_among_ranks() if rank is None or ranks is None else (rank, ranks)
    for name, value, least in (("batch", batch, 1), ("seed", seed, 0), ("rank", here, 0)):
        check_whole(name, value, least)
    check_whole("ranks", of, here + 1)
    if "kept" in table.column_names:
        table = table.filter(pc.equal(table["kept"], True)).drop_columns("kept")
    rows = rows_of_lines(index, table)
    if not len(rows):
        raise ShardError("the table keeps no sample", todo="name some")
    order = np.argsort(rows)
    drawn_by = None if weights is None else weights_of(table, weights)[order]
    made = Subset(index, rows[order], drawn_by, seed=seed, batch=batch, rank=here, ranks=of)
    stream.check_ranges(made.kept)
    return made


def weights_of(table: pa.Table, name: str) -> Reals:
    """A column of weights: shape (lines,), float64.

    Raises:
        ShardError: no such column, or a value that is no finite number of at least 0, or all are 0; or their sum is
            beyond a float.
    """
    if name not in table.column_names:
        raise ShardError(f"the table has no column {name}", found=", ".join(table.column_names), todo="name one it has")
    if not (pa.types.is_integer(table[name].type) or pa.types.is_floating(table[name].type)):
        raise ShardError(f"column {name}", expected="numbers", found=table[name].type, todo="name one of numbers")
    values = np.asarray(pc.cast(table[name], pa.float64()).to_numpy(), np.float64)
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        line = int(np.argmax(wrong))
        raise ShardError(f"line {line}: {name} is {values[line]}", expected="at least 0", todo="leave the line out")
    if not values.any():
        raise ShardError(f"all of column {name} is 0", todo="name another column, or none")
    with np.errstate(over="ignore"):
        total = values.sum()
    if not np.isfinite(total) or not np.isfinite(len(values) * (values.max() / total)):
        raise ShardError(f"column {name} adds up to more than a float holds", todo="divide it by its largest value")
    return values


def place_among_ranks() -> tuple[int, int]:
    """Rank of this process and number of ranks: torch's where its process group is open, else the environment's."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
