"""Indexing, reading and rewriting in an object store: the same bytes as between folders, and little more is read."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from object_server import Asked, ObjectServer, failing
from shard_makers import make_store, manifest_of, numbered

import shards
from shards import stream
from shards.errors import Misuse, ShardError, ShardsChanged
from shards.indexing import far_index
from shards.indexing.index import Index
from shards.io.storage.objects import delete, list_objects, put, read_all
from shards.io.storage.uploads import MIN_PART, unended_uploads
from shards.rewriting.clean import Leftovers
from shards.rewriting.marker import IN_PROGRESS, MARKER
from shards.tar.far_headers import WORTH_SKIPPING

MANY = 1 << 30


def send(folder: Path, url: str) -> None:
    """Every file of a folder as an object."""
    for path in folder.rglob("*"):
        if path.is_file():
            put(f"{url}/{path.relative_to(folder)}", path.read_bytes())


def there(url: str) -> dict[str, str]:
    """Hash of every object by its name."""
    found = (info.url for info in list_objects(url))
    return {one.removeprefix(f"{url}/"): hashlib.sha256(read_all(one, MANY)).hexdigest() for one in found}


def here(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def some_of(index: Index, share: float, seed: int = 0) -> pa.Table:
    kept = np.flatnonzero(np.random.default_rng(seed).random(len(index)) < share)
    return manifest_of(index, kept)


@pytest.fixture
def near(tmp_path: Path) -> Index:
    """A store of six shards of small samples, one in a folder of its own."""
    names = [f"{number}.tar" for number in range(5)] + ["more/5.tar"]
    return make_store(tmp_path / "store", {name: numbered(40 * n, 40, 6000) for n, name in enumerate(names)})


@pytest.fixture
def far(near: Index, tmp_path: Path, objects: ObjectServer) -> str:
    """The URL of the same store in a bucket."""
    bucket = objects.place()
    send(tmp_path / "store", f"{bucket}/store")
    return f"{bucket}/store"


class TestIndex:
    def test_it_holds_what_the_local_one_holds_and_lies_beside_the_shards(self, near: Index, far: str) -> None:
        made, report = shards.index(f"{far}/")
        assert made.fingerprint == near.fingerprint
        assert made.table.to_pylist() == near.table.to_pylist()
        assert all(shard.etag for shard in made.shards)
        assert report.samples == 240
        assert {f".curate/index.{end}" for end in ("parquet", "report.json")} <= there(far).keys()
        again = shards.open_index(f"{far}/")
        assert [shard.etag for shard in again.shards] == [shard.etag for shard in made.shards]

    def test_opening_it_again_reads_no_shard(self, far: str, objects: ObjectServer) -> None:
        shards.index(f"{far}/")
        objects.between.forget()
        shards.open_index(f"{far}/")
        assert not [one for one in objects.between.asked if ".tar" in one.path]

    def test_it_goes_where_it_is_told_and_not_over_something_else(self, far: str) -> None:
        bucket = far.removesuffix("/store")
        shards.index(f"{far}/", f"{bucket}/elsewhere.parquet")
        assert len(shards.open_index(f"{far}/", index=f"{bucket}/elsewhere.parquet")) == 240
        put(f"{bucket}/mine.parquet", b"something else")
        shards.index(f"{far}/")
        shards.index(f"{far}/")  # an index may be replaced
        put(f"{bucket}/mine.txt", b"mine")
        with pytest.raises(Misuse, match=r"/mine.txt: holds something else"):
            shards.index(f"{far}/", f"{bucket}/mine.txt")

    def test_a_shard_of_another_etag_is_named(self, far: str) -> None:
        index, _ = shards.index(f"{far}/")
        data = bytearray(read_all(f"{far}/2.tar", MANY))
        data[700] ^= 1  # in a body: size and headers stay
        put(f"{far}/2.tar", bytes(data))
        with pytest.raises(
            ShardsChanged, match=r"^2\.tar: ETag changed since it was indexed \(expected \"\w+\", found"
        ):
            shards.open_index(f"{far}/")
        with pytest.raises(ShardsChanged, match=r"/2\.tar: changed since it was indexed; index the shards again"):
            list(shards.samples(index))

    def test_parts_of_it_are_of_the_objects_that_are_there_when_they_are_joined(self, far: str, tmp_path: Path) -> None:
        whole, place = shards.index(f"{far}/")[0], tmp_path / "index.parquet"
        for number in (2, 1):
            shards.index_part(f"{far}/", f"{number}/2", place)
        data = bytearray(read_all(f"{far}/2.tar", MANY))
        put(f"{far}/2.tar", bytes([*data[:700], data[700] ^ 1, *data[701:]]))
        with pytest.raises(ShardsChanged, match=r"^2\.tar: ETag changed"):
            shards.join_index(f"{far}/", place)
        assert not place.exists()
        put(f"{far}/2.tar", bytes(data))
        assert shards.join_index(f"{far}/", place)[0].fingerprint == whole.fingerprint

    def test_of_one_that_is_replaced_only_the_footer_is_read(self, objects: ObjectServer, tmp_path: Path) -> None:
        table = pa.table({"x": np.random.default_rng(0).random(100_000)}, metadata={"curate.index": "{}"})
        pq.write_table(table, tmp_path / "index.parquet")
        url = f"{objects.place()}/index.parquet"
        put(url, (tmp_path / "index.parquet").read_bytes())
        objects.between.forget()
        assert far_index.check_place(url) is not None
        assert objects.between.sent < 10_000
        put(url, b"PAR1")
        far_index.check_place(url)

    def test_a_large_one_is_written_where_nobody_has_written_since(
        self, far: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In parts, which no condition goes along with."""
        monkeypatch.setattr(far_index, "MAX_CONDITIONAL", 100)
        shards.index(f"{far}/")
        shards.index(f"{far}/")
        checked = far_index.check_place

        def and_then_another(url: str) -> object:
            found = checked(url)
            put(url, read_all(url, MANY)[::-1])
            return found

        monkeypatch.setattr(far_index, "check_place", and_then_another)
        with pytest.raises(ShardError, match="was written by another process at the same time"):
            shards.index(f"{far}/")

    def test_the_place_of_the_shards_by_that_of_an_index(self) -> None:
        assert far_index.root_of("s3://b/s/.curate/index.parquet") == "s3://b/s/"
        assert far_index.root_of("s3://b/my.curate/index.parquet") == "s3://b/my.curate/"
        assert far_index.root_of("s3://b/index.parquet") == "s3://b/"

    def test_a_folder_holds_what_it_would_hold_here(self, near: Index, far: str, tmp_path: Path) -> None:
        """What is hidden is no part of it, and a number that is left out is told."""
        for name in ("7.tar", "._7.tar", ".trash/8.tar", "more/.9.tar"):
            path = tmp_path / "store" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes((tmp_path / "store" / "0.tar").read_bytes())
            put(f"{far}/{name}", path.read_bytes())
        mine, theirs = shards.index(f"{far}/")[1], shards.index(tmp_path / "store")[1]
        assert mine.faults == theirs.faults
        assert {fault.shard for fault in mine.faults if fault.kind == "missing-shard"} == {"5.tar", "6.tar"}

    def test_a_folder_needs_no_slash(self, near: Index, far: str) -> None:
        """Where nothing but a folder can be meant."""
        assert shards.index(far)[0].fingerprint == near.fingerprint
        assert len(shards.open_index(far)) == 240
        put(f"{far}/9.tar", read_all(f"{far}/0.tar", MANY))
        with pytest.raises(ShardsChanged, match=r"9\.tar: is not in the index of the store"):
            shards.open_index(far)
        delete([f"{far}/9.tar", f"{far}/4.tar"])
        with pytest.raises(ShardsChanged, match=r"4\.tar: size changed .*no object"):
            shards.open_index(far)

    def test_a_folder_without_shards(self, far: str) -> None:
        put(f"{far}-not/x.tar.zst", b"x")
        for place, found in (
            (f"{far}/none/", "none"),
            (f"{far}/none", "none"),
            (f"{far}-not/", "none; 1 that are not"),
        ):
            with pytest.raises(ShardError, match=rf"no shard in this folder \(expected .tar .*found {found}"):
                shards.index(place)

    def test_a_store_that_fails_is_no_bad_shard(self, far: str, objects: ObjectServer) -> None:
        """Passed over with `skip_bad`, its shards would be missing in the index without a word."""
        objects.between.fault = failing(MANY, (403, "ExpiredToken"), r"/[23]\.tar")
        with pytest.raises(ShardError, match=r"/2\.tar: .*403 Forbidden, ExpiredToken\); check the credentials"):
            shards.index(f"{far}/", skip_bad=True)

    def test_large_members_are_passed_over(self, tmp_path: Path, objects: ObjectServer) -> None:
        members = [(f"{n}.jpg", np.random.default_rng(n).bytes(3 * WORTH_SKIPPING)) for n in range(8)]
        local = make_store(tmp_path / "large", {"0.tar": members})
        url = objects.place()
        send(tmp_path / "large", url)
        objects.between.forget()
        found, _ = shards.index(f"{url}/")
        assert found.fingerprint == local.fingerprint
        assert objects.between.sent < 0.6 * local.shards[0].size

    @pytest.mark.parametrize("workers", [1, 3])
    def test_options_reach_the_workers(
        self, near: Index, far: str, workers: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import os

        from shards.io.storage import clients

        endpoint = os.environ["AWS_ENDPOINT_URL"]
        monkeypatch.delenv("AWS_ENDPOINT_URL")
        clients.configure({"endpoint": endpoint})
        assert shards.index(f"{far}/", workers=workers)[0].fingerprint == near.fingerprint


class TestRead:
    def test_samples_are_those_of_the_local_store(self, near: Index, far: str) -> None:
        index, _ = shards.index(f"{far}/")
        rows = np.random.default_rng(1).permutation(240)[:90]
        mine, theirs = ([{**one, "__url__": ""} for one in shards.samples(of, rows)] for of in (index, near))
        assert mine == theirs

    def test_scattered_samples_cost_what_they_weigh(self, tmp_path: Path, objects: ObjectServer) -> None:
        local = make_store(tmp_path / "s", {"0.tar": numbered(0, 60, 60_000)})
        url = objects.place()
        send(tmp_path / "s", url)
        index, _ = shards.index(f"{url}/")
        rows = np.arange(0, 60, 7)
        objects.between.forget()
        assert len(list(shards.samples(index, rows))) == 9
        assert objects.between.sent <= 1.1 * local.table["size"].to_numpy()[rows].sum()
        assert all(one.range and one.range.rpartition("-")[2] for one in objects.between.asked)


class TestRewrite:
    @pytest.mark.parametrize("workers", [1, 2])
    def test_it_writes_what_the_local_one_writes(self, near: Index, far: str, tmp_path: Path, workers: int) -> None:
        bucket = far.removesuffix("/store")
        manifest = some_of(near, 0.4)
        local = shards.rewrite(near, manifest, tmp_path / "out")
        index, _ = shards.index(f"{far}/")
        for source, out in ((index, f"{bucket}/both"), (near, f"{bucket}/up"), (index, str(tmp_path / "down"))):
            assert shards.rewrite(source, manifest, out, workers=workers) == local
            assert (there if out.startswith("s3:") else here)(out if "s3:" in out else Path(out)) == here(
                tmp_path / "out"
            )
        assert shards.rewrite(index, manifest, f"{bucket}/both") == local
        assert shards.verify(f"{bucket}/both", index) == []

    @pytest.mark.parametrize("rename", [False, True])
    def test_hard_links_and_new_names(self, tmp_path: Path, objects: ObjectServer, rename: bool) -> None:
        from tar_makers import END, header, member

        folder = tmp_path / "s"
        folder.mkdir()
        parts = member(b"a.jpg", b"image") + member(b"b.jpg", b"other") + member(b"a.txt", b"apart")
        (folder / "0.tar").write_bytes(parts + header(b"c.jpg", 0, b"1", b"a.jpg") + END)
        (folder / "1.tar").write_bytes(member(b"x.jpg", b"1") + member(b"x.jpg", b"2") + member(b"y.jpg", b"3") + END)
        near, url = shards.open_index(folder), objects.place()
        send(folder, f"{url}/s")
        far, _ = shards.index(f"{url}/s/")
        manifest = manifest_of(near, np.array([0, 2, 3]))
        expected = shards.rewrite(near, manifest, tmp_path / "out", rename=rename)
        assert shards.rewrite(far, manifest, f"{url}/out", rename=rename) == expected
        assert there(f"{url}/out") == here(tmp_path / "out")

    @pytest.mark.parametrize("how", ["gzip", "link", "rename"])
    def test_a_source_that_is_read_whole_is_the_one_that_was_indexed(
        self, tmp_path: Path, objects: ObjectServer, how: str
    ) -> None:
        """Checked when the index was opened, and replaced since, by one with the same names and sizes."""
        from tar_makers import END, header, member

        url = objects.place()
        tails = {"gzip": b"", "link": header(b"b.jpg", 0, b"1", b"a.jpg"), "rename": b""}
        bodies = [member(b"a.jpg", body) + tails[how] + END for body in (b"before", b"behind")]
        first, second = (gzip.compress(body, 0) if how == "gzip" else body for body in bodies)
        put(f"{url}/s/0.tar", first)
        index, _ = shards.index(f"{url}/s/")
        manifest = manifest_of(index, range(len(index)))
        shards.rewrite(index, manifest, f"{url}/whole", rename=how == "rename")
        kept = stream.samples(index, np.arange(len(index)))
        put(f"{url}/s/0.tar", second)
        with pytest.MonkeyPatch.context() as later:
            later.setattr("shards.rewriting.rewrite.check_sources", lambda *_, **__: None)
            with pytest.raises(ShardsChanged, match=r"/s/0\.tar: changed since it was indexed"):
                shards.rewrite(index, manifest, f"{url}/out", rename=how == "rename")
        with pytest.raises(ShardsChanged, match=r"/s/0\.tar: changed since it was indexed"):
            list(kept)
        with pytest.raises(ShardsChanged, match=r"/s/0\.tar: changed since it was indexed"):
            list(stream.images(index, np.arange(len(index))))
        with pytest.raises(ShardsChanged, match=r"/s/0\.tar: changed since it was indexed"):
            shards.verify(f"{url}/whole", index)

    def test_what_lies_there_stays(self, near: Index, far: str) -> None:
        bucket = far.removesuffix("/store")
        put(f"{bucket}/out/mine.txt", b"mine")
        with pytest.raises(Misuse, match=r"/out/: holds something else \(mine.txt\)"):
            shards.rewrite(near, some_of(near, 0.5), f"{bucket}/out")
        with pytest.raises(Misuse, match="output and store lie in one another"):
            shards.rewrite(shards.index(f"{far}/")[0], some_of(near, 0.5), f"{far}/out")
        shards.rewrite(near, some_of(near, 0.5), f"{bucket}/done")
        with pytest.raises(Misuse, match="holds another finished curated set"):
            shards.rewrite(near, some_of(near, 0.3), f"{bucket}/done")

    def test_it_goes_on_where_it_was_stopped(
        self, near: Index, far: str, objects: ObjectServer, tmp_path: Path
    ) -> None:
        bucket, manifest = far.removesuffix("/store"), some_of(near, 0.7)
        index, _ = shards.index(f"{far}/")
        objects.between.fault = failing(99, (403, "ExpiredToken"), r"/out/00000[34]\.tar", "PUT")
        with pytest.raises(
            ShardError, match=r"/out/000003.tar: cannot be written \(403 Forbidden, ExpiredToken\); check"
        ):
            shards.rewrite(index, manifest, f"{bucket}/out", shard_size=100_000)
        with pytest.raises(ShardError, match="run the same rewrite again to finish it"):
            shards.open_index(f"{bucket}/out/")
        objects.between.fault = lambda asked: None
        objects.between.forget()
        shards.rewrite(index, manifest, f"{bucket}/out", shard_size=100_000)
        again = [one.path for one in objects.between.asked if one.method == "PUT" and "tar" in one.path.split("/")[-1]]
        assert not [path for path in again if "00000[012].tar" in path or path.endswith("000000.tar")]
        shards.rewrite(near, manifest, tmp_path / "out", shard_size=100_000)
        assert there(f"{bucket}/out") == here(tmp_path / "out")

    def test_another_plan_begins_anew(self, near: Index, far: str, objects: ObjectServer, tmp_path: Path) -> None:
        bucket = far.removesuffix("/store")
        objects.between.fault = failing(99, (403, "AccessDenied"), r"/out/000003\.tar", "PUT")
        with pytest.raises(ShardError, match="AccessDenied"):
            shards.rewrite(near, some_of(near, 0.9), f"{bucket}/out", shard_size=100_000)
        objects.between.fault = lambda asked: None
        assert IN_PROGRESS in there(f"{bucket}/out")
        shards.rewrite(near, some_of(near, 0.1), f"{bucket}/out", shard_size=100_000)
        shards.rewrite(near, some_of(near, 0.1), tmp_path / "out", shard_size=100_000)
        assert there(f"{bucket}/out") == here(tmp_path / "out")

    def test_two_plans_at_once_make_no_mixture(self, near: Index, far: str, objects: ObjectServer) -> None:
        """One is written, in part, when the other begins in the same place, and goes on when that is done."""
        bucket = far.removesuffix("/store")

        def another(asked: Asked) -> None:
            if asked.method == "PUT" and asked.path.endswith("/out/000002.tar"):
                objects.between.fault = lambda asked: None
                shards.rewrite(near, some_of(near, 0.4), f"{bucket}/out", shard_size=100_000)

        objects.between.fault = another
        with pytest.raises(ShardError, match=r"/out/: another rewrite has begun here since; choose another --out"):
            shards.rewrite(near, some_of(near, 0.9), f"{bucket}/out", shard_size=100_000)
        # The shard that was under way came last: the set that was finished is damaged, and says so.
        assert [line[:10] for line in shards.verify(f"{bucket}/out")] in ([], ["000002.tar"])

    def test_a_shard_that_is_replaced_before_the_end(self, near: Index, far: str, objects: ObjectServer) -> None:
        bucket, manifest = far.removesuffix("/store"), some_of(near, 0.7)

        def replace_it(asked: Asked) -> None:
            if asked.method == "PUT" and asked.path.endswith("/out/index.parquet"):
                objects.between.fault = lambda asked: None
                put(f"{bucket}/out/000001.tar", b"another's")

        objects.between.fault = replace_it
        with pytest.raises(ShardError, match=r"/out/000001.tar: was replaced since it was written; run the same"):
            shards.rewrite(near, manifest, f"{bucket}/out", shard_size=100_000)
        assert MARKER not in there(f"{bucket}/out")
        shards.rewrite(near, manifest, f"{bucket}/out", shard_size=100_000)
        assert shards.verify(f"{bucket}/out", near) == []

    def test_a_finished_set_that_has_lost_a_shard(self, near: Index, far: str) -> None:
        bucket, manifest = far.removesuffix("/store"), some_of(near, 0.7)
        shards.rewrite(near, manifest, f"{bucket}/out", shard_size=100_000)
        delete([f"{bucket}/out/000001.tar"])
        with pytest.raises(ShardError, match=r"/out/000001.tar: damaged since it was finished \(expected 9.*no object"):
            shards.rewrite(near, manifest, f"{bucket}/out", shard_size=100_000)

    def test_no_file_of_a_set_is_too_large_to_verify(
        self, near: Index, far: str, objects: ObjectServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        out = f"{far.removesuffix('/store')}/out"
        shards.rewrite(near, some_of(near, 0.7), out)
        objects.between.forget()
        assert shards.verify(out) == []
        assert all(
            one.range for one in objects.between.asked if one.path.endswith(("index.parquet", "manifest.parquet"))
        )


class TestServerCopies:
    @pytest.fixture
    def large(self, tmp_path: Path) -> Index:
        """Two shards of 24 MB."""
        return make_store(tmp_path / "large", {f"{n}.tar": numbered(200 * n, 200, 120_000) for n in range(2)})

    def test_light_pruning_sends_little(self, large: Index, tmp_path: Path, objects: ObjectServer) -> None:
        url = objects.place()
        send(tmp_path / "large", f"{url}/large")
        index, _ = shards.index(f"{url}/large/")
        manifest = manifest_of(index, np.setdiff1d(np.arange(400), [60, 250]))
        objects.between.forget()
        shards.rewrite(index, manifest, f"{url}/out", shard_size=60_000_000)
        n_bytes = objects.between.sent + objects.between.received
        sizes = parts_of(objects, "/out/000000.tar")
        assert len(sizes) > 3
        assert min(sizes[:-1]) >= MIN_PART, "S3 takes no smaller one but the last; this server would"
        shards.rewrite(large, manifest, tmp_path / "out", shard_size=60_000_000)
        mine, theirs = there(f"{url}/out"), here(tmp_path / "out")
        assert {name for name in mine if mine[name] != theirs.get(name)} == {MARKER}
        assert n_bytes < 0.3 * large.table["size"].to_numpy().sum()
        line = json.loads(read_all(f"{url}/out/{MARKER}", MANY))["shards"][0]
        assert (line["sha256"], line["xxh3"]) == (None, None)
        assert line["copied"].startswith("parts of it by the server")
        assert shards.verify(f"{url}/out", index) == []
        put(f"{url}/out/000000.tar", read_all(f"{url}/out/000000.tar", MANY)[:-512] + bytes(511) + b"1")
        assert "changed since it was written" in shards.verify(f"{url}/out")[0]

    def test_an_object_that_changes_meanwhile_is_named(
        self, large: Index, tmp_path: Path, objects: ObjectServer
    ) -> None:
        url = objects.place()
        send(tmp_path / "large", f"{url}/large")
        index, _ = shards.index(f"{url}/large/")
        data = read_all(f"{url}/large/1.tar", MANY)

        def replace_it(asked: Asked) -> None:
            if asked.method == "GET" and asked.path.endswith("/0.tar") and asked.range:
                objects.between.fault = lambda asked: None
                put(f"{url}/large/1.tar", data[:600] + b"?" + data[601:])

        objects.between.fault = replace_it
        with pytest.raises(ShardsChanged, match=r"/large/1\.tar: changed since it was indexed; index the shards again"):
            shards.rewrite(index, manifest_of(index, np.arange(0, 400, 9)), f"{url}/out")
        assert list(unended_uploads(url)) == []


class TestForecast:
    @pytest.mark.parametrize(("size", "share"), [(6_000, 0.4), (120_000, 0.99), (60_000, 0.2)])
    def test_it_says_what_the_server_sees(self, tmp_path: Path, objects: ObjectServer, size: int, share: float) -> None:
        make_store(tmp_path / "s", {"0.tar": numbered(0, 150, size), "1.tar": numbered(150, 150, size)})
        url = objects.place()
        send(tmp_path / "s", f"{url}/s")
        index, _ = shards.index(f"{url}/s/")
        manifest = some_of(index, share)
        told = shards.forecast(index, manifest, f"{url}/out")
        objects.between.forget()
        shards.rewrite(index, manifest, f"{url}/out")
        of_store = [one for one in objects.between.asked if one.method == "GET" and "/s/" in one.path]
        assert sum(size_of(one) for one in of_store) == told.bytes_read
        kinds = objects.between.kinds
        lists = sum("list-type" in one.path for one in objects.between.asked)
        deletes = sum(one.path.endswith("?delete") for one in objects.between.asked)  # which cost nothing
        assert kinds["GET"] + kinds["HEAD"] - lists == told.reads
        assert kinds["PUT"] + kinds["UploadPart"] + kinds["POST"] + lists - deletes == told.writes
        assert told.bytes_written <= objects.between.received <= told.bytes_written + 60_000
        made = sum(info.size for info in list_objects(f"{url}/out") if info.url.endswith(".tar"))
        assert told.bytes_written + told.bytes_copied == made

    def test_its_cost(self, near: Index, far: str, tmp_path: Path) -> None:
        index, _ = shards.index(f"{far}/")
        told = shards.forecast(index, some_of(index, 0.5), tmp_path / "out")
        assert told.writes == 1, "the store is listed"
        assert told.cost(1.0, 5.0, 10.0) == pytest.approx((told.reads + 5) / 1000 + told.bytes_read / 1e8)
        local = shards.forecast(near, some_of(near, 0.5), tmp_path / "out")
        assert (local.reads, local.writes, local.bytes_copied) == (0, 0, 0)


def parts_of(objects: ObjectServer, name: str) -> list[int]:
    """Bytes of the parts of an upload, those that were copied included, in their order."""
    sizes = {}
    for one in objects.between.asked:
        number = re.search(r"partNumber=(\d+)", one.path)
        if number and name in one.path:
            sizes[int(number[1])] = one.size or size_of(one)
    return [sizes[number] for number in sorted(sizes)]


def size_of(asked: Asked) -> int:
    first, last = (asked.copied or asked.range or "").removeprefix("bytes=").split("-")
    return int(last) - int(first) + 1


REWRITE = (
    "import sys, shards; shards.rewrite(shards.open_index(sys.argv[1]), sys.argv[2], sys.argv[3], shard_size=8 << 20)"
)


class TestKills:
    @pytest.fixture
    def command(self, tmp_path: Path, objects: ObjectServer) -> Callable[[str], list[str]]:
        """What rewrites a store of 16 MB with large images, into a place."""
        make_store(tmp_path / "s", {f"{n}.tar": numbered(30 * n, 30, 120_000) for n in range(4)})
        url = objects.place()
        send(tmp_path / "s", f"{url}/s")
        index, _ = shards.index(f"{url}/s/")
        pq.write_table(manifest_of(index, np.delete(np.arange(120), [7, 80])), tmp_path / "m.parquet")
        return lambda out: [sys.executable, "-c", REWRITE, f"{url}/s/", str(tmp_path / "m.parquet"), f"{url}/{out}"]

    @pytest.mark.slow
    def test_it_is_killed_and_goes_on(self, command: Callable[[str], list[str]], objects: ObjectServer) -> None:
        began = time.monotonic()
        subprocess.run(command("whole"), check=True)
        took, chance = time.monotonic() - began, random.Random(0)
        for _ in range(5):
            process = subprocess.Popen(command("out"))
            with suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0.4, 0.9) * took)
            process.kill()
            process.wait()
        subprocess.run(command("out"), check=True)
        out = command("out")[-1]
        assert there(out) == there(command("whole")[-1])
        shards.clean(out)
        assert shards.leftovers(out) == Leftovers((), ())
        assert there(out) == there(command("whole")[-1])

    @pytest.mark.slow
    def test_clean_takes_what_is_unfinished_and_nothing_else(
        self, command: Callable[[str], list[str]], objects: ObjectServer
    ) -> None:
        subprocess.run(command("whole"), check=True)
        out, whole = command("out")[-1], command("whole")[-1]
        stop = (
            f"import os; from shards.rewriting import far; far.finish = lambda *_: os.kill(os.getpid(), 9); {REWRITE}"
        )
        assert subprocess.run([sys.executable, "-c", stop, *command("out")[3:]], check=False).returncode == -9
        before = there(whole)
        left = shards.leftovers(out)
        assert f"{out}/{IN_PROGRESS}" in left.objects
        assert f"{out}/000000.tar" in left.objects
        assert shards.clean(out.rpartition("/")[0]).objects == left.objects
        assert there(out) == {}
        assert there(whole) == before


class TestLoading:
    def test_batches_come_through_workers(self, near: Index, far: str) -> None:
        """Fresh processes: a forked one would have none of the clients."""
        index, _ = shards.index(f"{far}/")
        batches = [np.arange(0, 9), np.arange(100, 120)]
        for workers in (0, 1):
            found = list(stream.image_batches(index, batches, bodies, workers=workers))
            assert found == list(stream.image_batches(near, batches, bodies, workers=0))

    def test_a_subset_reads_what_is_kept(self, near: Index, far: str) -> None:
        curate = pytest.importorskip("curate")
        index, _ = shards.index(f"{far}/")
        kept = manifest_of(index, np.arange(3, 240, 5))
        mine, theirs = (
            [(one["__key__"], one["jpg"]) for one in curate.subset(of, kept, seed=1)] for of in (index, near)
        )
        assert mine == theirs
        assert len(mine) == 48


def bodies(samples: list[dict[str, object]]) -> list[object]:
    return [sample["jpg"] for sample in samples]


class TestSpawned:
    def test_settings_go_along_to_a_loaders_workers(
        self, near: Index, far: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from torch.utils.data import DataLoader

        import curate
        from shards.io.storage import clients

        index, _ = shards.index(f"{far}/")
        endpoint = os.environ["AWS_ENDPOINT_URL"]
        monkeypatch.delenv("AWS_ENDPOINT_URL")
        shards.configure_storage({"endpoint": endpoint})
        kept = curate.subset(index, manifest_of(index, np.arange(3, 240, 5)))
        assert clients.configured().keys().isdisjoint(kept.__getstate__()), "a copy on a disk has no secrets"
        loader = DataLoader(kept, batch_size=None, num_workers=1, multiprocessing_context="spawn")
        assert [one["__key__"] for one in loader] == [one["__key__"] for one in kept]
