"""A tiny store and target on disk, made of scikit-learn's digits: what the tests of whole runs work on.

Functions only. Images are 16 px grey PNGs; a store's keys are ``000000`` ..., the digit's place in the data set.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from PIL import Image
from sklearn.datasets import load_digits

from curate.config.defaults import applicable
from curate.config.schema import MachineConfig, RunConfig, from_options
from curate.progress import NullProgress, Progress
from curate.runs.run import RunSummary, run
from shards.indexing import index
from shards.io import shard_set
from shards.tar.writer import write_shards

#: Bytes of a shard with 16 samples: a header block and a body block each (a PNG of a digit is under 512 bytes).
SIXTEEN = 16 * 1024 + 1024
#: A run of a second: the VAE on 8 px, 3 epochs of 6 steps for 96 images; its signal is scaled up so that it prunes.
FAST: dict[str, Any] = {
    "pretext": "reconstruction",
    "meta_loss": "self-supervised",
    "size": 8,
    "crop": 8,
    "hidden": 8,
    "epochs": 3,
    "batch": 16,
    "target_batch": 8,
    "lr": 1e-3,
    "eta": 3.0,
    "eta_scale": "history",
    "reference": "batch",
    "lam": 0.45,
    "rho": 0.5,
    "prior": "uniform",
    "workers": 0,
    "device": "cpu",
}
#: What differs between two runs of one configuration: times, rates and memory.
MEASURED = ("seconds", "cpu_seconds", "images_per_second", "peak_memory")


@functools.cache
def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """All digits, uint8 (1797, 16, 16), and their labels (1797,)."""
    data = load_digits()
    small = (data.images * 255 / 16).astype(np.uint8)
    return np.kron(small, np.ones((1, 2, 2), np.uint8)), data.target


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    """A PNG of grey (H, W) or colour (H, W, 3) pixels."""
    packed = io.BytesIO()
    Image.fromarray(pixels).save(packed, "PNG")
    return packed.getvalue()


def make_store(folder: Path, count: int = 96, broken: Mapping[int, bytes] | None = None, first: int = 0) -> Path:
    """``count`` digits in shards of 16; ``broken`` puts other bytes in place of some of them."""
    pictures, broken = digits()[0], broken or {}
    samples = (
        [(f"{i:06d}.png", broken.get(i, png(pictures[i]))), (f"{i:06d}.txt", f"digit {i}".encode())]
        if i % 7 == 0
        else [(f"{i:06d}.png", broken.get(i, png(pictures[i])))]
        for i in range(first, first + count)
    )
    write_shards(folder, samples, shard_size=SIXTEEN)
    return folder


def make_target(folder: Path, count: int = 40, labelled: bool = True) -> Path:
    """Splits of ``count`` digits each, from the end of the data set, with labels or without."""
    pictures, labels = digits()
    for number, split in enumerate(("train", "val", "test"), start=1):
        rows = range(len(labels) - number * count, len(labels) - (number - 1) * count)
        label = {i: [(f"{i:06d}.cls", str(labels[i]).encode())] if labelled else [] for i in rows}
        write_shards(folder / split, [[(f"{i:06d}.png", png(pictures[i])), *label[i]] for i in rows])
    (folder / "classes.txt").write_text("".join(f"{digit}\n" for digit in range(10)))
    return folder


def make_data(folder: Path, count: int) -> Path:
    """A folder with a store of ``count`` digits and a target."""
    make_store(folder / "store", count)
    make_target(folder / "target")
    return folder


def config(store: Path, target: Path | str, **changes: Any) -> RunConfig:
    """The configuration of `FAST` with some options changed; what says nothing to the method is left out of it."""
    fast = applicable(str(changes.get("method", "bdw")), FAST)
    return from_options({"store": str(store), "target": str(target), **fast, **changes})


def indexed(folder: Path) -> index.Index:
    """The index of a folder of shards."""
    return index.build(shard_set.resolve(folder))[0]


def rows_of(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of a Parquet file, row by row."""
    table = pq.read_table(path, columns=list(columns), partitioning=None)
    return list(zip(*(table[name].to_pylist() for name in columns)))


def run_on(data: Path, out: Path, progress: Progress | None = None, **changes: Any) -> RunSummary:
    """A run on the store and the target of ``data``, with the options of `FAST` but for some changes."""
    return run(config(data / "store", data / "target", **changes), out, progress)


def partition(out: Path, epoch: int, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of an epoch's ledger partition, row by row."""
    return rows_of(out / "ledger" / f"epoch={epoch:04d}" / "part-0.parquet", *columns)


def manifest(out: Path, epoch: int) -> list[int]:
    """The rows in an epoch's manifest."""
    return [row for (row,) in rows_of(out / "manifests" / f"epoch={epoch:04d}.parquet", "row")]


class Notes(NullProgress):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Keep one."""
        self.notes.append(text)


def metrics(out: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl."""
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def same_run(run: Path) -> dict[str, Any]:
    """Every file of a run by its relative path: bytes, but of metrics.jsonl and run.json what two runs share."""
    found: dict[str, Any] = {}
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run).as_posix()
        if path.is_dir():
            continue
        if name == "metrics.jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            found[name] = [{k: v for k, v in line.items() if k not in MEASURED} for line in lines]
        elif name == "run.json":
            record = json.loads(path.read_text())
            del record["machine"]
            found[name] = record | {"configuration": _lasting(record["configuration"])}
        else:
            found[name] = path.read_bytes()
    return found


def _lasting(options: dict[str, Any]) -> dict[str, Any]:
    """Options that are part of a run's identity."""
    machine = {field.name for field in dataclasses.fields(MachineConfig)}
    return {name: value for name, value in options.items() if name not in machine}
