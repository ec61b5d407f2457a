"""Verbs on an object store: what they print, and settings that reach the clients and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from object_server import ObjectServer
from shard_makers import make_store, manifest_of, numbered

from curate.cli import curate
from shards.io import claim
from shards.io.storage import clients
from shards.io.storage.objects import list_objects, put
from shards.io.storage.uploads import upload


def call(*words: str | Path) -> Result:
    return CliRunner().invoke(curate, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture
def store(tmp_path: Path, objects: ObjectServer) -> str:
    """The URL of a store; beside each shard lies what img2dataset leaves, and in ``tmp_path`` a manifest."""
    near = make_store(tmp_path / "s", {f"{n}.tar": numbered(20 * n, 20, 4000) for n in range(2)})
    url = objects.place()
    for number in range(2):
        put(f"{url}/s/{number}.tar", (tmp_path / "s" / f"{number}.tar").read_bytes())
        keys = [f"{key:06d}" for key in range(20 * number, 20 * number + 20)]
        pq.write_table(pa.table({"key": keys, "caption": [f"of {key}" for key in keys]}), tmp_path / "beside.parquet")
        put(f"{url}/s/{number}.parquet", (tmp_path / "beside.parquet").read_bytes())
    pq.write_table(manifest_of(near, np.arange(0, 40, 3)), tmp_path / "m.parquet")
    return url


def test_from_index_to_metadata(store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CURATE_MIRROR", str(tmp_path / "copies"))
    said = call("index", f"{store}/s/")
    assert f"index: {store}/s/.curate/index.parquet" in said.stdout
    rewrite = ("rewrite", "--store", f"{store}/s/", "--manifest", tmp_path / "m.parquet", "--out", f"{store}/out")
    told = json.loads(call(*rewrite, "--dry-run", "--price-get", "1000", "--price-put", "0", "--json").stdout)
    assert told["cost"] == told["reads"]
    assert not list(list_objects(f"{store}/out"))
    assert "14 samples" not in call(*rewrite, "--dry-run").stdout
    assert f"shards {store}/out" in call(*rewrite).stdout
    assert call("verify", f"{store}/out", "--against", f"{store}/s/").exit_code == 0
    from shards import api

    written = api.export(f"{store}/out", metadata_of=api.open_index(f"{store}/s/"))
    assert [path.name for path in written] == ["000000.parquet"]
    captions = pq.read_table(written[0])["caption"].to_pylist()
    assert captions == [f"of {key:06d}" for key in range(0, 40, 3)]


def test_clean_lists_and_removes(store: str) -> None:
    with upload(f"{store}/out/000000.tar") as sink:
        sink.write(bytes(9 << 20))
        sink.write(bytes(9 << 20))
        left = [line for line in call("clean", store, "--dry-run").stdout.splitlines() if line.startswith("upload")]
        assert left == [f"upload {store}/out/000000.tar"]
    put(f"{store}/begun/unfinished.json", b"{}")
    put(f"{store}/begun/000000.tar", b"x")
    put(f"{store}/begun/notes.txt", b"mine")
    assert "0 uploads and 2 objects removed" in call("clean", store).stdout
    assert [info.url.rpartition("/begun/")[2] for info in list_objects(f"{store}/begun")] == ["notes.txt"]


def test_clean_leaves_what_is_being_written(store: str) -> None:
    for name in ("run", "runs"):
        put(f"{store}/{name}/curated/unfinished.json", b"{}")
        put(f"{store}/{name}/curated/000000.tar", b"x")
    held = claim.take(f"{store}/run", "somebody")
    with upload(f"{store}/run/checkpoint") as sink:
        sink.write(bytes(9 << 20))
        sink.write(bytes(9 << 20))
        assert "0 uploads and 2 objects removed" in call("clean", store).stdout
    claim.release(held)
    assert "0 uploads and 2 objects removed" in call("clean", f"{store}/run").stdout


def test_settings_come_from_the_command_line(store: str) -> None:
    call("--storage-option", "region=mars", "--storage-option", "skip_signature=true", "clean", store, "--dry-run")
    assert clients.configured() == {"region": "mars", "skip_signature": "true"}
    said = CliRunner().invoke(curate, ["--storage-option", "very-secret", "clean", store])
    assert said.exit_code == 2
    assert "expected KEY=VALUE" in said.output
    assert "very-secret" not in said.output
