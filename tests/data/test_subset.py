"""A subset read from the store's own shards: every kept sample once over ranks and workers, in any order of stops."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from http_ranges import serving_ranges
from shard_makers import indexed, make_store, manifest_of, numbered
from torch.utils.data import DataLoader

import curate
import shards
from curate.data.subset import Subset, rank_turns
from shards.indexing.index import Index

pytestmark = pytest.mark.filterwarnings(
    "ignore:This DataLoader will create"
)  # more workers than this machine has cores

N_STORE, BATCH = 180, 4
KEPT = sorted(np.random.default_rng(0).choice(N_STORE, 101, replace=False).tolist())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return make_store(tmp_path_factory.mktemp("store"), {f"{n}.tar": numbered(60 * n, 60) for n in range(3)})


def opened(store: Index, **options: Any) -> Subset:
    return curate.subset(store, manifest_of(store, KEPT), **{"batch": BATCH, **options})


def unchanged(batch: list[dict[str, Any]]) -> list[int]:
    return [sample["__row__"] for sample in batch]


def rows_through(subset: Subset, workers: int, batch: int = BATCH, **options: Any) -> list[list[int]]:
    """The rows of each batch that a loader gives."""
    return list(DataLoader(subset, batch_size=batch, num_workers=workers, collate_fn=unchanged, **options))


def flat(batches: list[list[int]]) -> list[int]:
    return [row for batch in batches for row in batch]


@pytest.mark.parametrize("workers", [0, 1, 3, 7])
@pytest.mark.parametrize("ranks", [1, 2])
def test_every_kept_sample_comes_once_over_ranks_and_workers(store: Index, workers: int, ranks: int) -> None:
    found = [flat(rows_through(opened(store, rank=rank, ranks=ranks), workers)) for rank in range(ranks)]
    assert sorted(flat(found)) == KEPT
    assert [len(one) for one in found] == [len(opened(store, rank=rank, ranks=ranks)) for rank in range(ranks)]
    assert max(map(len, found)) - min(map(len, found)) <= 1
    assert flat(found) != KEPT


def test_samples_are_those_of_the_shards(store: Index) -> None:
    whole = {sample["__row__"]: sample for sample in shards.samples(store)}
    for sample in opened(store):
        assert sample == whole[sample["__row__"]]
        assert set(sample) == {"__key__", "__url__", "__row__", "jpg", "txt"}


def test_batches_are_the_same_for_any_number_of_workers(store: Index) -> None:
    """That of the loader given; the last one is short."""
    alone = rows_through(opened(store), 0)
    assert [len(batch) for batch in alone] == [4] * 25 + [1]
    for workers in (1, 3):
        assert rows_through(opened(store), workers) == alone


def test_ranks_share_the_batches_of_one_order(store: Index) -> None:
    alone = rows_through(opened(store, rank=0, ranks=1), 0)
    first, second = (rows_through(opened(store, rank=rank, ranks=2), 2) for rank in (0, 1))
    assert [batch for pair in zip(first[:12], second[:12]) for batch in pair] == alone[:24]


def test_another_epoch_or_seed_is_another_order(store: Index) -> None:
    subset = opened(store)
    first = flat(rows_through(subset, 0))
    assert flat(rows_through(subset, 0)) == first
    subset.set_epoch(1)
    second = flat(rows_through(subset, 0))
    assert second != first
    assert sorted(second) == KEPT
    assert flat(rows_through(opened(store, seed=1), 0)) not in (first, second)


def test_workers_that_stay_hear_of_the_next_epoch(store: Index) -> None:
    subset = opened(store)
    loader = DataLoader(subset, batch_size=BATCH, num_workers=2, collate_fn=unchanged, persistent_workers=True)
    found = []
    for epoch in range(2):
        subset.set_epoch(epoch)
        found.append(flat(list(loader)))
    assert found[0] != found[1]
    assert sorted(found[1]) == KEPT
    alone = opened(store)
    alone.set_epoch(1)
    assert flat(rows_through(alone, 0)) == found[1]


@pytest.mark.parametrize("stop", [0, 1, 37, 101])
def test_one_process_goes_on_where_it_stopped(store: Index, stop: int) -> None:
    subset, found = opened(store), []
    subset.set_epoch(2)
    reading = iter(subset)
    for _ in range(stop):
        found.append(next(reading)["__row__"])
    state = pickle.loads(pickle.dumps(subset.state_dict()))
    again = opened(store)
    again.load_state_dict(state)
    rest = [sample["__row__"] for sample in again]
    whole = opened(store)
    whole.set_epoch(2)
    assert found + rest == [sample["__row__"] for sample in whole]


@pytest.mark.parametrize(("before", "after"), [((1, 3), (2, 0)), ((2, 1), (1, 7)), ((2, 3), (3, 2))])
def test_a_loop_goes_on_with_other_ranks_and_workers(
    store: Index, before: tuple[int, int], after: tuple[int, int]
) -> None:
    """After five steps of each rank: what is left is read once, whoever reads it."""
    steps, (ranks, workers) = 5, before
    used: list[int] = []
    for rank in range(ranks):
        subset = opened(store, rank=rank, ranks=ranks)
        used += flat(rows_through(subset, workers)[:steps])
    state = subset.state_dict(steps * BATCH * ranks)
    ranks, workers = after
    rest: list[int] = []
    for rank in range(ranks):
        subset = opened(store, rank=rank, ranks=ranks)
        subset.load_state_dict(state)
        rest += flat(rows_through(subset, workers))
    assert sorted(used + rest) == KEPT


def test_a_state_says_nothing_where_workers_read(store: Index) -> None:
    """It would be the beginning; the training loop knows better."""
    subset = opened(store)
    rows_through(subset, 1)
    with pytest.raises(curate.Misuse, match="workers read; say how many samples all ranks have used together"):
        subset.state_dict()
    assert subset.state_dict(8)["position"] == 8
    assert subset.state_dict(26 * 4)["position"] == 101  # the last of its 26 steps has one
    with pytest.raises(curate.Misuse, match="expected 0 to 101, found 108"):
        subset.state_dict(27 * 4)


@pytest.mark.parametrize("other", [{"seed": 1}, {"weights": "w"}, {"rows": KEPT[1:]}])
def test_the_state_of_another_subset_is_refused(store: Index, other: dict[str, Any]) -> None:
    state = opened(store).state_dict()
    table = manifest_of(store, other.pop("rows", KEPT))
    table = table.append_column("w", pa.array(np.arange(len(table)) + 1.0))
    with pytest.raises(curate.Misuse, match="the state is of another subset"):
        curate.subset(store, table, **other).load_state_dict(state)


@pytest.mark.parametrize("workers", [0, 3])
def test_by_weights_each_comes_floor_or_ceil_of_what_is_expected(store: Index, workers: int) -> None:
    weights = np.random.default_rng(1).gamma(0.7, size=len(KEPT))
    table = manifest_of(store, KEPT).append_column("mean", pa.array(weights))
    table = table.take(pa.array(np.random.default_rng(2).permutation(len(KEPT))))  # lines stand in any order
    subset = curate.subset(store, table, "mean", batch=BATCH)
    expected = dict(zip(KEPT, (len(KEPT) * weights / weights.sum()).tolist()))
    for epoch in range(3):
        subset.set_epoch(epoch)
        counts = Counter(flat(rows_through(subset, workers)))
        assert sum(counts.values()) == len(KEPT)
        assert set(counts) <= set(KEPT)
        assert all(int(e) <= counts[row] <= int(e) + 1 for row, e in expected.items())


def test_of_a_table_of_weights_the_lines_kept_count(store: Index) -> None:
    kept = np.isin(np.arange(N_STORE), KEPT)
    table = store.table.select(["shard", "key"]).append_column("kept", pa.array(kept))
    assert sorted(sample["__row__"] for sample in curate.subset(store, table)) == KEPT


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, -1.0], r"line 1: w is -1\.0 \(expected at least 0\)"),
        ([float("nan"), 1.0], "line 0: w is nan"),
        ([None, 1.0], "line 0: w is nan"),
        ([0.0, 0.0], "all of column w is 0"),
        ([1e308, 1e308], "column w adds up to more than a float holds; divide it by its largest value"),
        (["a", "b"], r"column w \(expected numbers, found string\)"),
    ],
)
def test_weights_that_are_none_are_refused(store: Index, values: list[Any], message: str) -> None:
    table = manifest_of(store, [0, 1]).append_column("w", pa.array(values))
    with pytest.raises(curate.Error, match=message) as error:
        curate.subset(store, table, "w")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch": 0}, "batch .expected a whole number, at least 1, found 0"),
        ({"batch": None}, "batch .expected a whole number, at least 1, found None"),
        ({"batch": 1.5}, "batch .expected a whole number, at least 1, found 1.5"),
        ({"batch": 2**63}, "batch"),
        ({"seed": -1}, "seed"),
        ({"seed": "1"}, "seed .expected a whole number, at least 0, found '1'"),
        ({"rank": 2, "ranks": 2}, "ranks .expected a whole number, at least 3, found 2"),
        ({"rank": 0.0, "ranks": 2}, "rank .expected a whole number"),
        ({"rank": 0}, "give both, or none"),
        ({"weights": "mean"}, "has no column mean"),
    ],
)
def test_what_cannot_be_meant_is_refused(store: Index, options: dict[str, Any], message: str) -> None:
    with pytest.raises(curate.Error, match=message):
        opened(store, **options)


@pytest.mark.parametrize("index", ["store", Path("store"), None])
def test_what_is_no_index_is_refused(index: Any) -> None:
    """A path is opened by `shards.open_index`, which has options of its own."""
    with pytest.raises(curate.Misuse, match=r"the index \(expected what shards.open_index gives, found"):
        curate.subset(index, pa.table({"shard": ["a"], "key": ["b"]}))


@pytest.mark.parametrize("epoch", [-1, 0.5, None])
def test_what_is_no_epoch_is_refused(store: Index, epoch: Any) -> None:
    with pytest.raises(curate.Misuse, match="the number of an epoch"):
        opened(store).set_epoch(epoch)


def test_a_run_stands_for_what_it_kept(store: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last manifest, and by weights its weights.parquet; a run of which nothing is done says so."""
    monkeypatch.setattr("curate.runs.provenance.read_run", lambda run: {})
    run = tmp_path / "run"
    part = run / "ledger" / "epoch=0001" / "part-0.parquet"
    part.parent.mkdir(parents=True)
    part.touch()
    (run / "run.json").write_text("{}")
    with pytest.raises(curate.Error, match="no epoch of it is done"):
        curate.subset(store, run)
    kept = store.table.select(["shard", "key"]).append_column("kept", pa.array(np.isin(np.arange(N_STORE), KEPT)))
    pq.write_table(kept.append_column("mean", pa.array(np.ones(N_STORE))), run / "weights.parquet")
    (run / "manifests").mkdir()
    pq.write_table(manifest_of(store, KEPT[:3]), run / "manifests" / "epoch=0001.parquet")
    assert len(curate.subset(store, run, "mean")) == len(KEPT)
    assert sorted(sample["__row__"] for sample in curate.subset(store, str(run))) == KEPT[:3]


def test_nothing_kept_is_refused(store: Index) -> None:
    with pytest.raises(curate.Error, match="keeps no sample"):
        curate.subset(store, manifest_of(store, []))


def test_the_place_among_ranks_is_the_environments(store: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    subset = opened(store)
    assert (subset.rank, subset.ranks) == (1, 3)


@pytest.mark.parametrize(("count", "batch", "ranks"), [(0, 1, 1), (1, 4, 3), (103, 4, 3), (96, 4, 3), (7, 2, 5)])
def test_turns_part_the_positions_evenly(count: int, batch: int, ranks: int) -> None:
    parts = [rank_turns(np.arange(count), count, batch, rank, ranks)[1] for rank in range(ranks)]
    assert (np.sum(parts, axis=0) == 1).all()
    sizes = [int(part.sum()) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@pytest.fixture
def far_store(store: Index) -> Iterator[tuple[Index, Any]]:
    """The same store behind a URL."""
    with serving_ranges(Path(store.root)) as served:
        yield Index(f"{served.url}/", store.shards, store.table), served


@pytest.mark.parametrize("workers", [0, 2])
def test_behind_a_url_only_the_bytes_of_kept_samples_are_read(
    store: Index, far_store: tuple[Index, Any], workers: int
) -> None:
    far, served = far_store
    assert rows_through(opened(far), workers) == rows_through(opened(store), 0)
    assert sum(served.sent) == sum(store.table["size"].take(pa.array(KEPT)).to_pylist())
    one = next(iter(opened(far)))
    assert one["jpg"] == next(iter(opened(store)))["jpg"]
    assert one["__url__"].startswith(served.url)


def test_a_compressed_shard_is_refused_before_anything_is_read(tmp_path: Path, store: Index) -> None:
    import gzip

    (tmp_path / "0.tar.gz").write_bytes(gzip.compress((Path(store.root) / "0.tar").read_bytes()))
    squeezed = indexed(tmp_path)
    with pytest.raises(
        shards.ShardError, match=r"0\.tar\.gz: is compressed, so no sample can be read by itself; unpack"
    ):
        curate.subset(squeezed, manifest_of(squeezed, [0]))


def test_set_epoch_after_a_state_keeps_its_place(store: Index) -> None:
    """The loop of every epoch names it first; another epoch, and the same again, begin at the beginning."""
    first, second = opened(store), opened(store)
    first.set_epoch(1)
    reading = iter(first)
    used = [next(reading)["__row__"] for _ in range(10)]
    second.load_state_dict(first.state_dict())
    second.set_epoch(1)
    rest = [sample["__row__"] for sample in second]
    assert (len(rest), sorted(used + rest)) == (len(KEPT) - 10, KEPT)
    second.set_epoch(1)
    assert len(list(second)) == len(KEPT)
    second.load_state_dict(first.state_dict())
    second.set_epoch(2)
    assert len(list(second)) == len(KEPT)


def test_an_iterator_left_in_the_middle_ends_in_silence(store: Index) -> None:
    """At the interpreter's end, too, when modules are gone."""
    code = "import sys, shards; from shards import stream; import numpy as np; index = shards.open_index(sys.argv[1])\n"
    code += "it = stream.samples_by_range(index, [np.arange(5)]); next(it)"
    done = subprocess.run([sys.executable, "-c", code, store.root], capture_output=True, text=True, check=True)
    assert done.stderr == ""
