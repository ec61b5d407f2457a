"""Every stage by the Ray engine: the bytes that this machine's processes make."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import toyset
from ray_cluster import NODE, two_machines

import curate
import shards
from shards.io.parallel import map_shards, on_progress

pytest.importorskip("ray", reason="needs the extra ray")
pytestmark = pytest.mark.slow


@pytest.fixture
def cluster() -> Iterator[Any]:
    with two_machines() as made:
        yield made


def stages(store: Path, out: Path) -> None:
    """Everything that goes shard by shard, into ``out``; the index and the hashes beside the store."""
    index, _ = shards.index(store, check=True, workers=2)
    curate.features(store, nets=1, out=out / "features", workers=0)
    curate.dedup(store, out=out / "look", workers=2)
    curate.dedup(store, out=out / "meaning", level="semantic", encoder="pixels", cosine=0.02, workers=2)
    shards.rewrite(index, out / "look" / "manifest.parquet", out / "curated", workers=2)
    assert shards.verify(out / "curated", index, workers=2) == []


def made(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@contextmanager
def unlucky(cluster: Any) -> Iterator[None]:
    """The Ray engine, which loses a machine after the second task of every map, and gets another.

    It is connected beforehand: a command whose own machine is lost is lost, too.
    """
    lost: list[Any] = []

    def lose(done: int, total: int) -> None:
        if done == 2 and lost:
            cluster.remove_node(lost.pop(), allow_graceful=False)
            lost.append(cluster.add_node(**NODE))

    with on_progress(lose), shards.engine("ray", ray_address=cluster.address):
        assert list(map_shards(abs, [-1])) == [1]
        lost.append(cluster.add_node(**NODE))
        yield


def test_every_stage_makes_the_same_bytes_with_a_machine_lost_in_mid_job(tmp_path, cluster):
    """Index, features, duplicates by look and by features, rewriting, verifying."""
    results = {}
    for name, engine in (("local", nullcontext()), ("ray", unlucky(cluster))):
        store = toyset.make_store(tmp_path / name / "store", 160, broken={5: b"no image"})
        (store / "copies.tar").write_bytes((store / "000003.tar").read_bytes())
        (tmp_path / name / "out").mkdir()
        with engine:
            stages(store, tmp_path / name / "out")
        results[name] = made(tmp_path / name)
    found = pq.read_table(tmp_path / "ray" / "out" / "look" / "duplicates.parquet").to_pylist()
    copies = [row for row in found if row["shard"] == "copies.tar"]
    assert len(copies) > 10
    assert not any(row["kept"] for row in copies)
    assert results["ray"].keys() == results["local"].keys()
    differ = [file for file, data in results["ray"].items() if data != results["local"][file]]
    assert differ == ["out/look/asked.json", "out/meaning/asked.json"]  # they name the store by its path
