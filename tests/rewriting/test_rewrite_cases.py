"""Odd shards that people really have: keeping all loses nothing that has a key, and what comes out is sound."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from shard_makers import manifest_of, read_tar

from shards import member_names
from shards.errors import NotShards, ShardError
from shards.indexing import index
from shards.io import shard_set
from shards.rewriting.rewrite import RewriteOptions, rewrite
from shards.rewriting.verify import verify

CASES = Path(__file__).resolve().parents[3] / "shared" / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="the shared cases are not beside the repository")


def readable(path: Path) -> list[tuple[str, bytes]]:
    """Name and bytes of what `tarfile` can read and a sample can be made of: with a key, and staying in its folder."""
    found: dict[tuple[str, str], tuple[str, bytes]] = {}  # of an extension that is there twice the last counts
    try:
        with tarfile.open(path, errors="surrogateescape") as tar:
            for member in tar:
                split = member_names.split_name(member.name)
                if member.issparse() or split is None or not member_names.is_safe(member.name):
                    continue
                file = tar.extractfile(member) if member.isreg() or member.islnk() else None
                if file is not None:
                    found[split] = (member.name, file.read())
    except (tarfile.TarError, KeyError, EOFError, OSError, zlib.error):
        pass  # damage: what came before it counts
    return list(found.values())


def check(paths: list[Path], out: Path) -> None:
    """Index, rewrite with everything kept, verify, and read by `tarfile`; the shards themselves stay as they were."""
    before = [path.read_bytes() for path in paths]
    spec = out.parent / "list.txt"
    spec.write_text("".join(f"{path}\n" for path in paths))
    try:
        store, _ = index.build(shard_set.resolve(spec), skip_bad=True)
    except NotShards:
        assert [member for path in paths for member in readable(path)] == []
        return
    safe = [row for row, key in enumerate(store.table["key"].to_pylist()) if member_names.is_safe(key)]
    manifest, options = manifest_of(store, np.arange(len(store))), RewriteOptions(undecodable="keep")
    if not safe:
        with pytest.raises(ShardError, match="nothing is kept"):
            rewrite(store, manifest, out, options=options)
        return
    summary = rewrite(store, manifest, out, options=options)
    assert summary.counts["kept"] == len(safe)
    assert verify(out, store) == []
    assert [path.read_bytes() for path in paths] == before
    found = [member for path in sorted(out.glob("*.tar")) for member in read_tar(path)]
    assert [member[0] for path in paths for member in readable(path) if member not in found] == []


@pytest.mark.parametrize("path", sorted((CASES / "shards").glob("*")), ids=lambda path: path.name)
def test_real_tars_of_other_people(path: Path, tmp_path: Path) -> None:
    check([path], tmp_path / "out")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cases")
    subprocess.run([sys.executable, str(CASES / "make_cases.py"), str(folder)], check=True, capture_output=True)
    return folder


def test_hand_made_cases(made: Path, tmp_path: Path) -> None:
    cases = sorted({path.parent for path in made.rglob("*.tar")})
    assert len(cases) >= 40
    for number, case in enumerate(cases):
        (tmp_path / str(number)).mkdir()
        check(sorted(case.glob("*.tar")), tmp_path / str(number) / "out")
