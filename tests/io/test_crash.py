"""Kills and full disks in the middle of a rewrite: the next call finishes it, and the tree is the one without them."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from shard_makers import make_store, manifest_of, numbered, tree

from shards.errors import NoSpace, Unfinished
from shards.indexing import index_file
from shards.indexing.index import Index
from shards.rewriting.rewrite import RewriteOptions, rewrite
from shards.rewriting.verify import verify

OPTIONS = RewriteOptions(shard_size=6000)

#: Forks a rewrite for every n-th file operation that one makes, and kills it with SIGKILL right before that operation.
KILLER = """
import os, signal, sys
from pathlib import Path
import pyarrow.parquet as pq
from shards.indexing import index_file
from shards.rewriting.rewrite import RewriteOptions, rewrite

folder, watched = Path(sys.argv[1]), ("open", "os.rename", "os.remove", "os.mkdir")

def attempt(number):
    out, left = folder / f"out-{number:03d}", number
    def count(event, args):
        nonlocal left
        if event in watched and str(out) in str(args[0]):
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)
    index = index_file.load(folder / "index.parquet", str(folder / "store"))
    rewrite(index, pq.read_table(folder / "kept.parquet"), out, options=RewriteOptions(shard_size=12000))

number, step = 0, int(sys.argv[2])
while True:
    child = os.fork()
    if child == 0:
        attempt(number)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
    number += step
print(number)
"""


@pytest.fixture
def store(tmp_path: Path) -> Index:
    return make_store(tmp_path / "store", {f"{n}.tar": numbered(10 * n, 10) for n in range(2)})


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_before_any_file_operation_and_run_again_the_tree_is_the_same(
    store: Index, tmp_path: Path, step: int
) -> None:
    manifest = manifest_of(store, range(0, 20, 2))
    index_file.save(store, tmp_path / "index.parquet")
    pq.write_table(manifest, tmp_path / "kept.parquet")
    rewrite(store, manifest, tmp_path / "whole", options=RewriteOptions(shard_size=12000))
    expected = tree(tmp_path / "whole")
    killer = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLER, str(tmp_path), str(step)],
        capture_output=True,
        text=True,
        check=True,
    )
    kills = int(killer.stdout)
    assert kills > 16  # two shards and seven other files, each opened and renamed
    for number in range(0, kills, step):
        out = tmp_path / f"out-{number:03d}"
        names = {path.name for path in out.iterdir()} if out.exists() else set()
        for name in names:
            if not name.startswith(".") and name in expected:
                assert (out / name).read_bytes() == expected[name], f"kill {number}: {name} is not whole"
        if "curated.json" not in names:
            with pytest.raises(Unfinished):
                verify(out)
        rewrite(store, manifest, out, options=RewriteOptions(shard_size=12000))
        assert tree(out) == expected, f"kill {number}"


#: A rewrite by two processes of its own.
PARALLEL = """
import sys
from pathlib import Path
import pyarrow.parquet as pq
from shards.indexing import index_file
from shards.rewriting.rewrite import RewriteOptions, rewrite

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    index = index_file.load(folder / "index.parquet", str(folder / "store"))
    options = RewriteOptions(shard_size=6000, workers=2)
    rewrite(index, pq.read_table(folder / "kept.parquet"), folder / "out", options=options)
"""


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 20])
def test_killed_with_all_its_workers_after_some_shards(tmp_path: Path, shards: int) -> None:
    """Killed as soon as that many shards stand under their final names."""
    store = make_store(tmp_path / "store", {f"{n}.tar": numbered(50 * n, 50) for n in range(8)})
    manifest = manifest_of(store, range(0, 400, 2))
    index_file.save(store, tmp_path / "index.parquet")
    pq.write_table(manifest, tmp_path / "kept.parquet")
    rewrite(store, manifest, tmp_path / "whole", options=OPTIONS)
    (tmp_path / "parallel.py").write_text(PARALLEL)
    command = [sys.executable, str(tmp_path / "parallel.py"), str(tmp_path)]
    with subprocess.Popen(command, start_new_session=True) as process:
        while process.poll() is None and len(list((tmp_path / "out").glob("0*.tar"))) < shards:
            os.sched_yield()
        os.killpg(process.pid, signal.SIGKILL)
    rewrite(store, manifest, tmp_path / "out", options=OPTIONS)
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")


@pytest.mark.parametrize("limit", [0, 3000, 5500])
def test_a_file_that_may_not_grow_leaves_nothing_half_under_a_final_name(
    store: Index, tmp_path: Path, limit: int
) -> None:
    """The limits fall before the first file, inside the first shard and inside a later one."""
    manifest = manifest_of(store, range(0, 20, 2))
    rewrite(store, manifest, tmp_path / "whole", options=OPTIONS)
    expected = tree(tmp_path / "whole")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
    try:
        why = r"out/[\w.]+: cannot write \(File too large\); make room and run the same rewrite"
        with pytest.raises(NoSpace, match=why):
            rewrite(store, manifest, tmp_path / "out", options=OPTIONS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    left = tree(tmp_path / "out")
    assert "curated.json" not in left
    assert all(expected[name] == body for name, body in left.items() if name != "unfinished.json")
    rewrite(store, manifest, tmp_path / "out", options=OPTIONS)
    assert tree(tmp_path / "out") == expected


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system of its own, with the limits that the test asks for."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", request.param, "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small disk needs root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("disk", ["size=16k"], indirect=True)
def test_a_disk_too_small_is_told_before_anything_is_written(store: Index, disk: Path) -> None:
    with pytest.raises(NoSpace, match=r"the disk is too small \(expected \d+ bytes, found 16384\)"):
        rewrite(store, manifest_of(store, range(20)), disk / "out", options=OPTIONS)
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize("disk", ["size=1m,nr_inodes=6"], indirect=True)
def test_a_disk_that_fills_up_while_writing_leaves_no_half_file(store: Index, disk: Path, tmp_path: Path) -> None:
    """Room for four more files: the folder, its mark and two shards."""
    manifest = manifest_of(store, range(0, 20, 2))
    rewrite(store, manifest, tmp_path / "whole", options=OPTIONS)
    expected = tree(tmp_path / "whole")
    with pytest.raises(NoSpace, match=r"out/[\w.]+: cannot write \(No space left on device\)"):
        rewrite(store, manifest, disk / "out", options=OPTIONS)
    left = tree(disk / "out")
    assert set(left) < {*expected, "unfinished.json"}
    assert all(expected[name] == body for name, body in left.items() if name != "unfinished.json")
    subprocess.run(["mount", "-o", "remount,nr_inodes=100", str(disk)], check=True)
    rewrite(store, manifest, disk / "out", options=OPTIONS)
    assert tree(disk / "out") == expected
