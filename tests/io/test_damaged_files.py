"""Every reader of a Parquet or JSON file, given damaged ones: it reads them, or refuses in one line of ours."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import decathlon_results
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toyset
from ledger_files import read_files
from mutations import FUZZ, damaged, odd_values

from curate.config.schema import from_options, read_options
from curate.evaluation import output_dir, search
from curate.experiments import sweep
from curate.experiments.demo import data, demo
from curate.experiments.tables import datasets
from curate.experiments.tables.presets import SCALES
from curate.ledger import ledger, manifest, metrics
from curate.runs import checkpoint, provenance, reshard, target_distances
from curate.types import Beliefs
from shards.errors import Error
from shards.indexing import domains, index, index_file
from shards.packing.decathlon import annotations as decathlon
from shards.rewriting import manifest as manifests
from shards.rewriting import marker as curated
from shards.rewriting import plan
from shards.rewriting.exports import export_for
from shards.rewriting.rewrite import rewrite
from shards.rewriting.verify import verify
from shards.store import open_index


@dataclass(frozen=True)
class Reader:
    """A file, and everything that is made of it."""

    path: Path
    read: Callable[[], object]


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with index and domains, a run on it, and what other verbs leave."""
    folder = tmp_path_factory.mktemp("scene")
    toyset.make_data(folder, 40)
    held = toyset.indexed(folder / "store")
    index_file.save(held, folder / "store" / "index.parquet")
    named = domains.Domains(("a", "b"), np.arange(len(held), dtype=np.int32) % 2)
    domains.save(held, named, folder / "store" / "domains.parquet")
    toyset.run_on(folder, folder / "run", epochs=2, lam=0.3)
    target_distances.save(folder / "distances.parquet", held, np.arange(40), np.ones(40, np.float32), {"x": 1}, 1.0)
    (folder / "digits").mkdir()
    pq.write_table(pa.table({"key": ["0"], "domain": ["digit"]}), folder / "digits" / "domains.parquet")
    rewrite(held, manifests.read_manifest(manifest.path_of(folder / "run", 2)), folder / "curated")
    return folder


def parquet_readers(scene: Path) -> dict[str, Reader]:
    run, store = scene / "run", toyset.indexed(scene / "store")

    def used(found: index.Index) -> None:
        found.fingerprint, found.shard_numbers, plan.median_size(found)

    def judged(beliefs: Beliefs) -> None:
        np.isfinite(beliefs.mean).all()

    partition, weights = ledger.path_of(run, 2), run / "weights.parquet"
    said = {"x": 1}
    return {
        "index": Reader(scene / "store/index.parquet", lambda: used(index_file.load(scene / "store/index.parquet"))),
        "open_index": Reader(scene / "store/index.parquet", lambda: used(open_index(str(scene / "store")))),
        "check_place": Reader(
            scene / "store/index.parquet", lambda: index_file.check_place(scene / "store/index.parquet")
        ),
        "domains": Reader(scene / "store/domains.parquet", lambda: domains.load(store).own("a")),
        "kept": Reader(
            manifest.path_of(run, 2),
            lambda: manifests.manifest_rows(store, manifests.read_manifest(manifest.path_of(run, 2))),
        ),
        "manifest": Reader(manifest.path_of(run, 2), lambda: manifest.read(manifest.path_of(run, 2))),
        "origin_of": Reader(manifest.path_of(run, 2), lambda: manifest.origin_of(manifest.path_of(run, 2))),
        "ledger": Reader(partition, lambda: judged(ledger.beliefs_of(ledger.read_epoch(run, 2)))),
        "ledger, all": Reader(partition, lambda: ledger.read(run)),
        "ledger, some columns": Reader(
            partition, lambda: ledger.read_epoch(run, 2, ["mean", "kept", "visits", "error"])["mean"].to_pylist()
        ),
        "ledger, files": Reader(partition, lambda: read_files([partition, ledger.path_of(run, 1)])),
        "final": Reader(partition, lambda: judged(ledger.beliefs_of(ledger.final(run)))),
        "stamp": Reader(partition, lambda: ledger.stamp_of(run, 2)),
        "weights": Reader(weights, lambda: judged(ledger.beliefs_of(ledger.read_final(run)))),
        "distances": Reader(
            scene / "distances.parquet",
            lambda: target_distances.load(scene / "distances.parquet", np.arange(40), 40, said),
        ),
        "digits": Reader(
            scene / "digits/domains.parquet", lambda: data.domains_of(scene / "digits", pa.chunked_array([["0"]]))
        ),
        "shelf": Reader(scene / "curated/manifest.parquet", lambda: reshard._view(scene / "curated")),
        "curated": Reader(scene / "curated/index.parquet", lambda: used(curated.load_curated(scene / "curated"))),
        "export": Reader(
            scene / "curated/index.parquet", lambda: export_for(scene / "curated", dali=True, datacomp=False)
        ),
    }


def json_readers(scene: Path) -> dict[str, Reader]:
    run, small = scene / "run", scene / "small"
    small.mkdir(exist_ok=True)
    texts: dict[str, Any] = {
        "config.json": {"store": "s", "target": "t", "images": {"size": 8}, "lr_drops": [1, 2]},
        "evaluation.json": {"format": 1, "run": "x"},
        "cells/one.json": {"cell": {"seed": 0}, "result": {"x": 1}},
        "cells.json": {"one": {"seed": 0}},
        "demo/demo.json": {"seed": 0},
        "target/categories.json": [{"id": 5, "name": "x"}],
        "data/drawn.json": {"seed": 0, "source": None, "labelled": None},
        "annotations/a_train.json": {
            "images": [{"id": 1, "file_name": "data/a/train/1.jpg", "width": 3, "height": 3}],
            "annotations": [{"image_id": 1, "category_id": 5}],
            "categories": [{"id": 5, "name": "x"}],
        },
        "seconds/seconds.json": {"format": 1, "seconds": {"x": 1.5}},
        "trace.json": {"format": 1, "val_accuracy": [0.5], "val_loss": [1.0], "drops": [], "failed": None},
    }
    for name, value in texts.items():
        (small / name).parent.mkdir(parents=True, exist_ok=True)
        (small / name).write_text(json.dumps(value))
    marker = checkpoint.folder(run, 2) / "state.json"
    readers = {
        "marker": Reader(scene / "curated/curated.json", lambda: verify(scene / "curated")),
        "run.json": Reader(run / "run.json", lambda: from_options(provenance.read_run(run)["configuration"])),
        "state.json": Reader(marker, lambda: checkpoint.read_marker(marker.parent)),
        "metrics": Reader(run / "metrics.jsonl", lambda: metrics.seconds_spent(run)),
        "sizes.json": Reader(scene / "curated/sizes.json", lambda: verify(scene / "curated")),
        "config": Reader(small / "config.json", lambda: from_options(read_options(small / "config.json"))),
        "run.json as config": Reader(run / "run.json", lambda: from_options(read_options(run / "run.json"))),
        "evaluation": Reader(
            small / "evaluation.json", lambda: output_dir.keep(small / "evaluation.json", {"format": 1, "run": "x"})
        ),
        "cell": Reader(small / "cells/one.json", lambda: sweep.earlier(small / "cells", "one", _Seed())),
        "cells": Reader(small / "cells.json", lambda: sweep.claim(small / "cells", {"one": _Seed()})),
        "demo": Reader(small / "demo/demo.json", lambda: demo.claim(small / "demo", {"seed": 0})),
        "categories": Reader(
            small / "target/categories.json", lambda: decathlon_results.category_ids(small / "target")
        ),
    }
    asked = output_dir.SearchIdentity("r", "t", {}, 0, None)
    output_dir.record(small / "search", asked, 0)
    readers |= {
        "annotations": Reader(small / "annotations/a_train.json", lambda: decathlon.read_split(small, "a", "train")),
        "search": Reader(small / "search/search.json", lambda: output_dir.chosen(small / "search", asked)),
        "seconds": Reader(small / "seconds/seconds.json", lambda: search.total_seconds(small / "seconds")),
        "trace": Reader(small / "trace.json", lambda: search._read(small / "trace.json", search.Trace)),
        "drawn": Reader(
            small / "data/drawn.json",
            lambda: datasets.claim(small, replace(SCALES["mini"], source=None, labelled=None), 0),
        ),
    }
    return readers


@dataclass(frozen=True)
class _Seed:
    seed: int = 0


def refused(reader: Reader) -> bool:
    """Whether it refuses its file; an error that is not ours, or of several lines, goes through."""
    try:
        reader.read()
    except Error as error:
        if "\n" in str(error):
            raise ValueError("an error of several lines") from error
        return True
    return False


def tried(reader: Reader, texts: Iterator[bytes]) -> tuple[int, int]:
    """How many of these contents there are, and how many are refused; the file is as it was afterwards."""
    whole, counts = reader.path.read_bytes(), [0, 0]
    try:
        for text in texts:
            reader.path.write_bytes(text)
            try:
                counts[refused(reader)] += 1
            except Exception as error:
                raise AssertionError(f"{reader.path.name}: {type(error).__name__}: {error}") from error
    finally:
        reader.path.write_bytes(whole)
    return sum(counts), counts[1]


def some(whole: bytes, seed: int, count: int) -> Iterator[bytes]:
    draw = random.Random(seed)
    return (damaged(whole, draw) for _ in range(count))


def footers(path: Path) -> Iterator[bytes]:
    """A Parquet file with other values in the JSON of its footer."""
    table = pq.read_table(path, partitioning=None)
    for key, text in (table.schema.metadata or {}).items():
        for odd in odd_values(text) if key.startswith(b"curate") else ():
            sink = pa.BufferOutputStream()
            pq.write_table(table.replace_schema_metadata({key: odd}), sink)
            yield sink.getvalue().to_pybytes()


PARQUET = (
    *("index", "open_index", "check_place", "domains", "kept", "manifest", "origin_of", "ledger", "ledger, all"),
    *("ledger, some columns", "ledger, files", "final", "stamp", "weights", "distances", "digits", "shelf"),
    *("curated", "export"),
)
JSON = (
    *("marker", "run.json", "state.json", "metrics", "sizes.json", "config", "run.json as config", "evaluation"),
    *("cell", "cells", "demo", "categories", "annotations", "search", "seconds", "trace", "drawn"),
)


@pytest.mark.parametrize("name", PARQUET)
def test_damaged_parquet_files(scene: Path, name: str) -> None:
    reader = parquet_readers(scene)[name]
    assert not refused(reader)
    _, n_refused = tried(reader, some(reader.path.read_bytes(), 1, 60))
    assert n_refused > 20 or name in ("origin_of", "check_place", "ledger, all", "ledger, files")


@pytest.mark.slow
@pytest.mark.parametrize("name", PARQUET)
def test_many_damaged_parquet_files(scene: Path, name: str) -> None:
    reader = parquet_readers(scene)[name]
    tried(reader, some(reader.path.read_bytes(), 2, FUZZ // len(PARQUET) + 1))


@pytest.mark.parametrize("name", [name for name in PARQUET if name not in ("digits", "open_index", "export")])
def test_parquet_footers_of_another_form(scene: Path, name: str) -> None:
    reader = parquet_readers(scene)[name]
    n_tried, _ = tried(reader, footers(reader.path))
    assert n_tried > 20


@pytest.mark.parametrize("name", JSON)
def test_damaged_json_files(scene: Path, name: str) -> None:
    reader = json_readers(scene)[name]
    assert not refused(reader)
    tried(reader, some(reader.path.read_bytes(), 3, 60))
    if name != "metrics":
        tried(reader, odd_values(reader.path.read_bytes()))
    else:
        first, *rest = reader.path.read_bytes().splitlines(keepends=True)
        _, n_refused = tried(reader, (b"".join((odd, b"\n", *rest)) for odd in odd_values(first)))
        assert n_refused > 20
