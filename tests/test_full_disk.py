"""A disk that takes nothing more: every writer says which file it was, in one line, and leaves none behind."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import test_checkpoint
import test_ledger
import test_manifest
import toyset
from test_cd_diagram import comparison_of
from test_plots import draw_all

from curate.evaluation import output_dir
from curate.experiments import sweep
from curate.ledger import ledger, metrics
from curate.runs import checkpoint
from curate.stats import cd_diagram
from curate.types import EpochReport
from shards.errors import NoSpace
from shards.indexing import domains, index_file
from shards.io.json_files import write_json
from shards.packing.imagefolder import pack_folder, pack_target
from shards.rewriting import exports
from shards.rewriting.manifest import read_manifest
from shards.rewriting.rewrite import rewrite


@contextmanager
def no_room(size: int = 0) -> Iterator[None]:
    """No file may grow beyond ``size`` bytes: as on a full disk, but for the word that the system has for it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A store with its index, and pictures in class folders."""
    folder = tmp_path_factory.mktemp("disk")
    toyset.make_store(folder / "store", 32)
    for number in range(12):
        path = folder / "pictures" / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(toyset.png(toyset.digits()[0][number]))
    return folder, toyset.indexed(folder / "store")


def save_checkpoint(out: Path) -> None:
    checkpoint.save(out, 1, *test_checkpoint.moved())


def save_marker(out: Path) -> None:
    _, state, _ = test_checkpoint.moved()
    checkpoint.finish(out, 1, state, 0)


#: What is written, as a call on (store's index, pictures, folder), and the file that it must name.
WRITERS = {
    "index": (lambda held, source, out: index_file.save(held, out / "i.parquet"), "i.parquet"),
    "domains": (
        lambda held, source, out: domains.save(
            held, domains.Domains(("a",), np.zeros(len(held), np.int32)), out / "d.parquet"
        ),
        "d.parquet",
    ),
    "json": (lambda held, source, out: write_json(out / "x.json", {}), "x.json"),
    "ledger": (lambda held, source, out: test_ledger.write_epoch(out, 1, range(9)), "part-0.parquet"),
    "manifest": (lambda held, source, out: test_manifest.write(out / "m.parquet", [1, 2]), "m.parquet"),
    "metrics": (
        lambda held, source, out: metrics.append_metrics(out / "metrics.jsonl", EpochReport(1, 1, 1, 0, {}, {})),
        "metrics.jsonl",
    ),
    "checkpoint": (lambda held, source, out: save_checkpoint(out), ".safetensors"),
    "marker": (lambda held, source, out: save_marker(out), "state.json"),
    "plots": (lambda held, source, out: draw_all(out, ".png"), ".png"),
    "diagram": (
        lambda held, source, out: cd_diagram.critical_difference_diagram(out / "cd.svg", comparison_of(9, 3, 1, 1.0)),
        "cd.svg",
    ),
    "export": (lambda held, source, out: exports.write_dali(held, out), ".idx"),
    "record": (lambda held, source, out: output_dir.keep(out / "comparison.json", {"a": 1}), "comparison.json"),
    "store": (lambda held, source, out: pack_folder(source, out / "packed"), ".journal.jsonl"),
    "target": (lambda held, source, out: pack_target(source, out / "packed"), ".journal.jsonl"),
}


@pytest.mark.parametrize(
    ("what", "size"),
    [(what, 0) for what in WRITERS] + [(what, 100) for what in ("index", "ledger", "checkpoint", "plots")],
)
def test_every_writer_names_its_file(world, tmp_path, what, size):
    """Of a small file, whose bytes reach the disk only when it is closed, the system's error has no name."""
    call, name = WRITERS[what]
    (tmp_path / "checkpoints" / "epoch=0001").mkdir(parents=True)
    for part in ("model", "optimizer", "weights", "signal"):  # the marker is written of them
        if what == "marker":
            (tmp_path / "checkpoints" / "epoch=0001" / f"{part}.safetensors").write_bytes(b"")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    with no_room(size), pytest.raises(OSError, match="File too large") as caught:
        call(world[1], world[0] / "pictures", tmp_path)
    assert str(caught.value.filename).endswith(name)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_rewrite_names_the_shard(world, tmp_path):
    """Not only the folder."""
    held = world[1]
    table = held.table.select(["shard", "key"])
    index_file.pq.write_table(table, tmp_path / "all.parquet")
    wanted = read_manifest(tmp_path / "all.parquet")
    for size, name in ((0, "unfinished.json"), (2048, "000000.tar")):
        with no_room(size), pytest.raises(NoSpace, match=rf"{name}: cannot write \(File too large\)"):
            rewrite(held, wanted, tmp_path / "out")
    assert rewrite(held, wanted, tmp_path / "out").counts["kept"] == 32


@pytest.mark.parametrize("pack", [pack_folder, pack_target])
def test_a_packer_names_the_shard(world, tmp_path, pack):
    """The first that finds no room, and nothing is left of it."""
    with no_room(1024), pytest.raises(OSError, match="File too large") as caught:
        pack(world[0] / "pictures", tmp_path / "packed")
    assert str(caught.value.filename).endswith("000000.tar")
    assert not list(tmp_path.iterdir())


def test_the_last_state_names_its_file(tmp_path):
    """weights.parquet, put together from all epochs."""
    test_ledger.write_epoch(tmp_path, 1, range(9))
    with no_room(), pytest.raises(OSError, match="too large") as caught:
        ledger.write_final(tmp_path)
    assert str(caught.value.filename).endswith("weights.parquet")


def test_a_cell_names_its_file(tmp_path):
    """A result of hours."""
    with no_room(), pytest.raises(OSError, match="too large") as caught:
        sweep.write_json(tmp_path / "cell.json", {})
    assert str(caught.value.filename).endswith("cell.json")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_a_disk_that_is_really_full(world, tmp_path):
    """The command, on a file system of 64 kB: one line, the file's name, exit 1."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this machine lets nobody mount")
    try:
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            (disk / "filler").write_bytes(bytes(1 << 20))
        command = "import sys; from curate.cli import main; sys.argv[0] = 'curate'; main()"
        asked = ["index", str(world[0] / "store"), "--index", str(disk / "i.parquet")]
        done = subprocess.run([sys.executable, "-c", command, *asked], capture_output=True, text=True, check=False)
        said = [line for line in done.stderr.splitlines() if line.startswith("Error")]
        assert (done.returncode, said) == (1, [f"Error: {disk}/i.parquet: No space left on device"])
        assert [path.name for path in disk.iterdir()] == ["filler"]
    finally:
        subprocess.run(["umount", disk], check=True)
