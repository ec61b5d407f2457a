"""Batches of the store: every row once an epoch, in one order for every number of workers, cached or not."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
import toyset
from shard_makers import manifest_of

from curate.data import image_store
from curate.data.decode import Decoder
from curate.data.image_store import Cache, ImageStore, ShardView
from curate.types import ERRORS
from shards.io import parallel
from shards.rewriting.rewrite import rewrite

CPU = torch.device("cpu")
COUNT, SIZE = 50, 8
GREY = Decoder(16, "grey")
BROKEN = {3: b"", 20: b"no picture", 33: b"\x89PNG\r\n\x1a\n cut"}


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    return toyset.indexed(toyset.make_store(tmp_path_factory.mktemp("store"), COUNT))


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    return toyset.indexed(toyset.make_store(tmp_path_factory.mktemp("damaged"), COUNT, BROKEN))


def images(index, workers=0, cache_bytes=0, view=None):
    return ImageStore(view or ShardView.whole(index), GREY, workers, cache_bytes, CPU)


def epoch(of, rows=None, number=1):
    return list(of.batches(of.order(np.arange(COUNT) if rows is None else rows, 0, number), SIZE))


def pictures(rows):
    return torch.from_numpy(toyset.digits()[0][rows])[:, None]


def test_an_epoch_has_every_row_once_with_its_own_pixels(index):
    """In batches of the size asked for; the last is short."""
    batches = epoch(images(index))
    assert [len(batch.rows) for batch in batches] == [SIZE] * 6 + [2]
    rows = torch.cat([batch.rows for batch in batches])
    assert sorted(rows.tolist()) == list(range(COUNT))
    assert rows.tolist() != list(range(COUNT))
    assert torch.equal(torch.cat([batch.pixels for batch in batches]), pictures(rows))


def test_another_epoch_has_another_order(index):
    """The same rows."""
    one, two = (torch.cat([batch.rows for batch in epoch(images(index), number=number)]) for number in (1, 2))
    assert not torch.equal(one, two)
    assert torch.equal(one.sort().values, two.sort().values)


@pytest.mark.parametrize("workers", [1, 2])
def test_batches_do_not_depend_on_the_workers(index, workers):
    """Nor does their order."""
    for one, two in zip(epoch(images(index)), epoch(images(index, workers)), strict=True):
        assert torch.equal(one.rows, two.rows)
        assert torch.equal(one.pixels, two.pixels)


def test_a_cache_changes_nothing_but_the_reading(index):
    """Later epochs over fewer rows come out of it, with no shard to read, and with the same pixels."""
    cached, plain = images(index, cache_bytes=COUNT * GREY.n_bytes), images(index)
    epoch(cached)
    assert cached.cache is not None
    assert cached.cache.filled
    # Nothing is read any more: these shards are not there.
    cached.view = ShardView(dataclasses.replace(index, root="/nowhere"), np.arange(COUNT))
    kept = np.arange(1, COUNT, 3)
    for one, two in zip(epoch(cached, kept, 2), epoch(plain, kept, 2), strict=True):
        assert torch.equal(one.rows, two.rows)
        assert torch.equal(one.pixels, two.pixels)


def test_a_cache_that_does_not_fit_is_not_made(index):
    """One byte too few; when enough is pruned, it is."""
    of = images(index, cache_bytes=COUNT * GREY.n_bytes - 1)
    epoch(of)
    assert of.cache is None
    epoch(of, np.arange(COUNT - 1), 2)
    assert of.cache is not None


def test_an_epoch_that_was_broken_off_leaves_no_cache_to_trust(index):
    """The next one reads again."""
    of = images(index, cache_bytes=COUNT * GREY.n_bytes)
    next(iter(of.batches(np.arange(COUNT), SIZE)))
    assert of.cache is not None
    assert not of.cache.filled
    rows = torch.cat([batch.pixels for batch in epoch(of)])
    assert torch.equal(rows, torch.cat([batch.pixels for batch in epoch(images(index))]))


@pytest.mark.parametrize("cache_bytes", [0, COUNT * GREY.n_bytes])
def test_an_undecodable_image_leaves_its_slot_empty(damaged, cache_bytes):
    """Its batch is one image shorter, the others stay where they were, and its row comes with a code."""
    of = images(damaged, cache_bytes=cache_bytes)
    batches = epoch(of)
    slots = of.order(np.arange(COUNT), 0, 1)
    found = {row: ERRORS[code] for batch in batches for row, code in batch.bad}
    assert found == {3: "empty-member", 20: "not-an-image", 33: "truncated-image"}
    for at, batch in enumerate(batches):
        expected = [row for row in slots[at * SIZE : (at + 1) * SIZE].tolist() if row not in BROKEN]
        assert batch.rows.tolist() == expected
        assert torch.equal(batch.pixels, pictures(batch.rows))
        assert all(row in slots[at * SIZE : (at + 1) * SIZE] for row, _ in batch.bad)
    whole = np.setdiff1d(np.arange(COUNT), list(BROKEN))
    again = epoch(of, whole, 2)
    assert not any(batch.bad for batch in again)
    assert torch.equal(torch.cat([b.pixels for b in again]), pictures(torch.cat([b.rows for b in again])))


def test_rows_stay_the_stores_after_a_rewrite(damaged, tmp_path):
    """A generation holds fewer samples at other places: the same rows, pixels, order and codes come out of it."""
    kept = np.array([0, 3, 5, 16, 17, 20, 31, 40, 41, 42, 49])
    # Rows that do not decode stay in it here, so that their codes are seen.
    rewrite(damaged, manifest_of(damaged, kept), tmp_path / "generation")
    generation = toyset.indexed(tmp_path / "generation")
    assert len(generation) == len(kept)
    old, new = images(damaged), images(damaged, view=ShardView(generation, kept))
    for one, two in zip(epoch(old, kept, 3), epoch(new, kept, 3), strict=True):
        assert torch.equal(one.rows, two.rows)
        assert torch.equal(one.pixels, two.pixels)
        assert one.bad == two.bad


def test_a_sample_of_rows_is_read_in_order_and_not_cached(index):
    """For statistics."""
    of = images(index, cache_bytes=COUNT * GREY.n_bytes)
    rows = np.array([2, 7, 30])
    assert torch.equal(torch.cat(list(of.sample(rows))), pictures(rows))
    assert of.cache is None


def test_a_gzipped_store_is_visited_shard_by_shard(tmp_path):
    """It cannot seek: rows of a shard stand together, and every row is there with its pixels."""
    import gzip

    folder = toyset.make_store(tmp_path / "store", COUNT)
    for path in sorted(folder.glob("*.tar")):
        with gzip.GzipFile(folder / f"{path.name}.gz", "wb", mtime=0) as packed:
            packed.write(path.read_bytes())
        path.unlink()
    index = toyset.indexed(folder)
    of = images(index, workers=2)
    order = of.order(np.arange(COUNT), 0, 1)
    shards = index.shard_numbers[order]
    assert (np.diff(shards) != 0).sum() == len(set(shards.tolist())) - 1
    batches = epoch(of)
    rows = torch.cat([batch.rows for batch in batches])
    assert np.array_equal(rows.numpy(), order)
    assert torch.equal(torch.cat([batch.pixels for batch in batches]), pictures(rows))


def test_a_cache_holds_what_was_put():
    """Rows need not be consecutive."""
    cache = Cache(np.array([2, 5, 9]), Decoder(2, "rgb"), CPU)
    pixels = torch.arange(24, dtype=torch.uint8).view(2, 3, 2, 2)
    cache.put(image_store.Pixels(torch.tensor([9, 2]), pixels))
    assert torch.equal(cache.get(torch.tensor([2, 9])), pixels.flip(0))


def test_the_machines_defaults_are_sensible():
    """At least one worker and at most 8; free memory is more than nothing, and a quarter of it is for the cache."""
    assert 1 <= parallel.default_workers() <= 8
    assert image_store.free_memory() > 2**20
    assert 0 < image_store.default_cache_bytes(CPU) <= image_store.free_memory()
