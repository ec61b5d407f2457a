"""Parts of a store's features and hashes: in any order the same files as by one call."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import toyset
from click.testing import CliRunner

import curate
import shards
from curate.cli import curate as command
from shards.errors import Misuse


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """96 digits in 7 shards, one image that does not decode, and its index."""
    made = toyset.make_store(tmp_path / "store", 96, broken={20: b"no image"})
    shards.index(made)
    return made


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.parquet"))}


class TestFeatures:
    """`curate features --part`."""

    def test_parts_in_any_order_make_the_same_files(self, store, tmp_path):
        """Of an encoder that is calibrated on the whole store, too."""
        options = {"nets": 1, "workers": 0, "device": "cpu"}
        whole = curate.features(store, out=tmp_path / "one", **options)
        found = [
            curate.features(store, out=tmp_path / "many", part=f"{number}/4", **options) for number in (3, 1, 4, 2)
        ]
        assert files(tmp_path / "many") == files(tmp_path / "one")
        assert sum(each.images for each in found) == whole.images == 95
        assert sum(each.left_out for each in found) == whole.left_out == 1
        assert sum(each.computed for each in found) == 96
        assert all(0 < each.computed < 96 for each in found)

    def test_a_part_that_is_there_is_not_made_again_and_the_rest_is_by_a_plain_call(self, store, tmp_path):
        options = {"encoder": "pixels", "out": tmp_path / "features", "workers": 0}
        computed = curate.features(store, part="2/3", **options).computed
        assert 0 < computed < 96
        assert curate.features(store, part="2/3", **options).computed == 0
        assert curate.features(store, **options).computed == 96 - computed

    def test_image_files_have_no_parts(self, tmp_path):
        (tmp_path / "photos").mkdir()
        (tmp_path / "photos" / "0.png").write_bytes(toyset.png(toyset.digits()[0][0]))
        with pytest.raises(Misuse, match="--part 1/2: only of shards"):
            curate.features(tmp_path / "photos", encoder="pixels", out=tmp_path / "out", part="1/2")


class TestHashes:
    """`curate dedup --part`."""

    def test_parts_in_any_order_are_what_dedup_finds(self, store, tmp_path):
        other = tmp_path / "other"
        shutil.copytree(store, other)
        curate.dedup(store, out=tmp_path / "one", workers=1)
        found = [curate.hash_part(other, f"{number}/4", workers=1) for number in (2, 4, 1, 3)]
        assert sum(each.images for each in found) == 96
        assert [each.shards for each in found] == [2, 2, 1, 2]
        assert files(other / ".curate") == files(store / ".curate")
        curate.dedup(other, out=tmp_path / "two", workers=1)
        assert files(tmp_path / "two") == files(tmp_path / "one")

    def test_a_store_that_may_not_be_written_to(self, store, tmp_path, monkeypatch):
        """The hashes lie where dedup will look for them, and its folder is still free to be taken."""
        monkeypatch.setattr("curate.duplicates.hash_files.may_be_made", lambda folder: store not in folder.parents)
        with pytest.raises(Misuse, match="may not be written; say where the hashes go with --out"):
            curate.hash_part(store, "1/2")
        for number in (2, 1):
            curate.hash_part(store, f"{number}/2", out=tmp_path / "copies", workers=1)
        made = files(tmp_path / "copies")
        assert len(made) == 7
        found = curate.dedup(store, out=tmp_path / "copies", workers=1)
        assert found.images == 96
        assert files(tmp_path / "copies").items() >= made.items()

    def test_the_semantic_level_has_no_hashes(self, store, tmp_path):
        words = ["dedup", str(store), "--level", "semantic", "--part", "1/2", "--out", str(tmp_path / "out")]
        with pytest.raises(Misuse, match="give `curate features --part`"):
            CliRunner().invoke(command, words, catch_exceptions=False)
        assert not (tmp_path / "out").exists()
