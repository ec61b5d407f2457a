"""Features of a store: made once, a part a shard, the same bytes however often they were stopped; used again."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toyset

from curate.config.schema import MachineConfig
from curate.data.photos import photos_at
from curate.errors import CurateError, Misuse
from curate.progress import NullProgress
from curate.runs.features import Choice, Source, beside, features, features_of_photos, make, of_store
from curate.selection import feature_files

HERE = MachineConfig(device="cpu", workers=0)
ONE = Choice("untrained", 1)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """48 digits in three shards; one does not decode."""
    return toyset.make_store(tmp_path_factory.mktemp("data") / "store", 48, {20: b"no picture"})


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class Stopped(BaseException):
    """What a test stops the work by."""


class StopAfter(NullProgress):
    """Stops when so many images are done."""

    def __init__(self, most):
        self.left = most

    def images(self, label, total, done):
        from contextlib import nullcontext

        def tell(more):
            self.left -= more
            if self.left < 0:
                raise Stopped

        return nullcontext(tell)


def test_features_are_the_same_bytes_after_a_kill_and_with_workers(store, tmp_path):
    """Stopped in every shard in turn; a part that is there is not made again."""
    index = toyset.indexed(store)
    source = Source(ONE, index, HERE)
    make(source, index, tmp_path / "whole", NullProgress())
    for _ in range(3):
        with pytest.raises(Stopped):
            make(Source(ONE, index, HERE), index, tmp_path / "stopped", StopAfter(16))
    made = make(Source(ONE, index, HERE), index, tmp_path / "stopped", NullProgress())
    assert made < 48
    by_workers = MachineConfig(device="cpu", workers=2)
    make(Source(ONE, index, by_workers), index, tmp_path / "workers", NullProgress())
    assert contents(tmp_path / "whole") == contents(tmp_path / "stopped") == contents(tmp_path / "workers")


def test_a_part_is_a_plain_table(store, tmp_path):
    """shard, key, embedding in float16 (null where the image does not decode), error."""
    index = toyset.indexed(store)
    folder = tmp_path / "features"
    make(Source(ONE, index, HERE), index, folder, NullProgress())
    table = pq.read_table(feature_files.part_of(folder, 1))
    assert table.column_names == ["shard", "key", "embedding", "error"]
    assert str(table.schema.field("embedding").type) == "fixed_size_list<element: halffloat>[512]"
    assert table["key"].to_pylist() == [f"{i:06d}" for i in range(14, 28)]
    assert [i for i, x in enumerate(table["error"].to_pylist()) if x] == [6]
    assert table["embedding"].null_count == 1
    found = feature_files.load(folder, index)
    assert found.rows.tolist() == [i for i in range(48) if i != 20]
    assert found.values.dtype == np.float16
    mapped = feature_files.load(folder, index, tmp_path / "values.npy")
    assert np.array_equal(mapped.rows, found.rows)
    assert np.array_equal(np.load(tmp_path / "values.npy"), found.values)


def test_a_count_of_features_holds_one_part_at_a_time(store, tmp_path):
    """The same figures as all of them loaded, and the same complaint about a part that does not fit."""
    index = toyset.indexed(store)
    make(Source(ONE, index, HERE), index, tmp_path / "f", NullProgress())
    whole = feature_files.load(tmp_path / "f", index)
    assert feature_files.count(tmp_path / "f", index) == (len(whole.rows), whole.values.shape[1]) == (47, 512)
    names = index.table.select(["shard", "key"]).slice(0, len(index.rows(0)))
    first = np.zeros((len(names), 3), np.float32)
    feature_files.write_part(feature_files.part_of(tmp_path / "f", 0), names, first, np.zeros(len(names), np.uint8))
    for read in (feature_files.load, feature_files.count):
        with pytest.raises(CurateError, match="512 numbers an image, others have 3; remove"):
            read(tmp_path / "f", index)


def test_features_beside_the_store_are_used_again(store, tmp_path):
    """Found by encoder and store: the second call computes nothing, another encoder or store does."""
    index = toyset.indexed(toyset.make_store(tmp_path / "store", 32))
    first = features(index, ONE, None, HERE, None, NullProgress())
    assert (first.images, first.computed, first.numbers) == (32, 32, 512)
    assert first.folder.startswith(str(tmp_path / "store" / "features" / "untrained-"))
    assert features(index, ONE, None, HERE, None, NullProgress()).computed == 0
    assert features(index, Choice("untrained", 2), None, HERE, None, NullProgress()).computed == 32
    used = of_store(Source(ONE, index, HERE), index, [*beside(index), tmp_path / "run"], NullProgress())
    assert len(used.rows) == 32
    assert not (tmp_path / "run").exists()
    other = toyset.indexed(toyset.make_store(tmp_path / "other", 32, first=5))
    assert features(other, ONE, tmp_path / "store" / "features", HERE, None, NullProgress()).computed == 32


def test_a_store_that_may_not_be_written_is_left_alone(tmp_path, monkeypatch):
    """It says what to give; with --out it works."""
    index = toyset.indexed(toyset.make_store(tmp_path / "store", 16))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(Misuse, match="may not be written; say where the features go with --out"):
        features(index, ONE, None, HERE, None, NullProgress())
    assert features(index, ONE, tmp_path / "out", HERE, None, NullProgress()).images == 16
    assert not (tmp_path / "store" / "features").exists()


def test_a_part_of_another_shard_is_found_out(store, tmp_path):
    """Rows do not match."""
    index = toyset.indexed(store)
    folder = tmp_path / "features"
    make(Source(ONE, index, HERE), index, folder, NullProgress())
    last = len(index.shards) - 1
    feature_files.part_of(folder, 0).write_bytes(feature_files.part_of(folder, last).read_bytes())
    with pytest.raises(CurateError, match=r"000000.parquet: holds \d+ rows, the shard \d+"):
        feature_files.load(folder, index)


def test_a_part_without_features_is_one_line(store, tmp_path):
    """A table with the right rows, whose column is of another type."""
    index = toyset.indexed(store)
    folder = tmp_path / "features"
    make(Source(ONE, index, HERE), index, folder, NullProgress())
    path = feature_files.part_of(folder, 0)
    table = pq.read_table(path)
    text = table.set_column(2, "embedding", pa.array(["x"] * len(table)))
    pq.write_table(text.replace_schema_metadata(table.schema.metadata), path)
    with pytest.raises(CurateError, match=r"000000.parquet: embedding is of type string, no features; remove it"):
        feature_files.load(folder, index)


def test_image_files_have_features_too(tmp_path):
    """One part, of the shard ""; the networks are calibrated on a store, which has to be named."""
    (tmp_path / "photos").mkdir()
    for i in range(3):
        (tmp_path / "photos" / f"{i}.png").write_bytes(toyset.png(toyset.digits()[0][i]) if i != 1 else b"no picture")
    photos, store = photos_at(str(tmp_path / "photos")), toyset.indexed(toyset.make_store(tmp_path / "store", 16))
    with pytest.raises(Misuse, match="--encoder untrained: is calibrated on a store; name it with --calibrate"):
        features_of_photos(photos, ONE, tmp_path / "out", HERE, None)
    made = features_of_photos(photos, ONE, tmp_path / "out", HERE, store)
    assert (made.images, made.left_out, made.numbers) == (2, 1, 512)
    table = pq.read_table(next((tmp_path / "out").glob("untrained-*/000000.parquet")))
    assert table.select(["shard", "key", "error"]).to_pydict() == {
        "shard": ["", "", ""],
        "key": ["0.png", "1.png", "2.png"],
        "error": [None, "not-an-image", None],
    }
    own = Source(ONE, store, HERE)
    make(own, store, tmp_path / "whole", NullProgress())
    whole = pq.read_table(feature_files.part_of(tmp_path / "whole", 0))["embedding"].to_pylist()
    assert table["embedding"].to_pylist()[0] == pytest.approx(whole[0], abs=1e-2)
