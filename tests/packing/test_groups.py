"""Targets packed with whole groups: by the path, by a table, of the decathlon; and what is said of what did not go."""

from __future__ import annotations

import gzip
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from decathlon_makers import held, jpeg, make_root
from shard_makers import tree

from curate.cli import curate as command
from curate.experiments.tables import protocols
from shards.errors import Misuse, ShardError
from shards.packing.decathlon import grouped
from shards.packing.decathlon.pack import pack_decathlon
from shards.packing.groups import groups_of, read_groups
from shards.packing.imagefolder import pack_target

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "decathlon-1.0"
SPLITS = ("train", "val", "test")


@pytest.fixture
def signs(tmp_path: Path) -> Path:
    """Two classes of eight tracks of three shots, and one of two tracks."""
    for label, tracks in (("stop", 8), ("yield", 8), ("rare", 2)):
        for track in range(tracks):
            for shot in range(3):
                path = tmp_path / "signs" / label / f"{track:05d}_{shot:02d}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(jpeg(track * 3 + shot))
    return tmp_path / "signs"


def keys(target: Path) -> dict[str, list[str]]:
    return {name: list(held(target / name)) for name in SPLITS}


def test_no_track_stands_in_two_splits(signs: Path, tmp_path: Path) -> None:
    report = pack_target(signs, tmp_path / "out", split=(0.4, 0.2, 0.4), group_by="^(.+)_")
    where = defaultdict(set)
    for name, found in keys(tmp_path / "out").items():
        for key in found:
            where[key.rpartition("_")[0]].add(name)
    assert len(where) == 18
    assert all(len(found) == 1 for found in where.values())
    assert report.notes[0] == (
        "val has no image of 1 class, whose groups are too few: rare (2 groups); tell smaller groups, or add images"
    )
    assert sum(report.samples.values()) == 54
    assert report.samples["train"] in (21, 24)  # 0.4 of 54, in whole tracks


def test_groups_are_on_record(signs: Path, tmp_path: Path) -> None:
    pack_target(signs, tmp_path / "out", group_by=r"stop/\d+")
    table = pq.read_table(tmp_path / "out" / "groups.parquet")
    assert table.schema.metadata == {b"curate.groups": b'{"version": 1}'}
    rows = table.to_pylist()
    assert {(row["split"], row["key"]) for row in rows} == {
        (name, key) for name, found in keys(tmp_path / "out").items() for key in found
    }
    assert {row["group"] for row in rows} == {None, *(f"stop/{track:05d}" for track in range(8))}


def test_the_same_seed_gives_the_same_bytes(signs: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        pack_target(signs, tmp_path / name, group_by="^(.+)_", seed=seed)
    assert tree(tmp_path / "a") == tree(tmp_path / "b") != tree(tmp_path / "c")


def test_without_groups_nothing_changes(signs: Path, tmp_path: Path) -> None:
    pack_target(signs, tmp_path / "out")
    assert not (tmp_path / "out" / "groups.parquet").exists()


def test_what_has_no_group_stands_alone_and_is_counted() -> None:
    found, notes = groups_of(["a/x_1.jpg", "a/x_2.jpg", "b/y.jpg"], "x")
    assert found == {"a/x_1.jpg": "x", "a/x_2.jpg": "x", "b/y.jpg": None}
    assert notes == ("1 of 3 images are of no group and stand alone, the first b/y.jpg",)
    assert groups_of(["a/x_1.jpg", "b/x_1.jpg"], "([ab])/(x)")[0] == {"a/x_1.jpg": "a", "b/x_1.jpg": "b"}


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
def test_a_table_tells_groups(tmp_path: Path, suffix: str) -> None:
    """Numbers stay as they are written; columns besides are passed over."""
    path = tmp_path / f"groups.{suffix}"
    text = "more,file,group\n1,a/1.jpg,007\n2,a/2.jpg,7\n3,a/3.jpg,\n"
    if suffix == "parquet":
        columns = {"file": ["a/1.jpg", "a/2.jpg", "a/3.jpg"], "group": ["007", "7", None], "more": [1, 2, 3]}
        pq.write_table(pa.table(columns), path)
    else:
        path.write_bytes(gzip.compress(text.encode()) if suffix == "csv.gz" else text.encode())
    assert groups_of(["a/1.jpg", "a/2.jpg", "a/3.jpg", "a/4.jpg"], str(path))[0] == {
        "a/1.jpg": "007",
        "a/2.jpg": "7",
        "a/3.jpg": None,
        "a/4.jpg": None,
    }


@pytest.mark.parametrize(
    ("by", "text"),
    [
        ("(", r"neither a file nor a regular expression \(found missing \)"),
        ("a{99999999999}", "neither a file nor a regular expression"),
        ("nowhere.csv", r"nowhere\.csv: no such file of groups; name one that is there"),
        ("no such letters", r"finds the group of no image \(expected one in a\.jpg\)"),
        ("x*", "finds the group of no image"),
        ("(z)?a", "finds the group of no image"),
    ],
)
def test_a_pattern_that_tells_nothing_is_misuse(by: str, text: str) -> None:
    with pytest.raises(Misuse, match=text):
        groups_of(["a.jpg"], by)


def test_a_pattern_is_any_length_and_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    """Longer than a file's name may be; and one that a later Python may read in another way."""
    for by in ("|".join(["no such letters"] * 30) + "|a", "[[a]"):
        assert groups_of(["a.jpg", "b/a.png"], by)[0] == {"a.jpg": "a", "b/a.png": "a"}
    assert not recwarn.list


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "no file of groups"),
        (b"file,track\na,1\n", r"no file of groups .*group.*write columns file and group"),
        (b"file,group\na,1\na,2\n", "a: a file stands in two groups"),
        (b"file,group\na,1,2\n", "no file of groups"),
        (b"file,group\n\xff,1\n", "no file of groups"),
    ],
)
def test_a_table_that_is_none_is_one_line(tmp_path: Path, content: bytes, text: str) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ShardError, match=text) as caught:
        read_groups(tmp_path / "t.csv")
    assert "\n" not in str(caught.value)
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(ShardError):
        read_groups(tmp_path / "t.parquet")


def test_a_split_that_would_be_empty_is_refused(signs: Path, tmp_path: Path) -> None:
    with pytest.raises(ShardError, match="too few groups: val would be empty; tell smaller groups"):
        pack_target(signs, tmp_path / "out", group_by="[.]jpg")
    assert not (tmp_path / "out").exists()


def test_the_verb_says_what_did_not_go(signs: Path, tmp_path: Path) -> None:
    call = ["pack", "imagefolder", str(signs), "--out", str(tmp_path / "out"), "--group-by", "^(.+)_"]
    refused = CliRunner().invoke(command, call)
    assert str(refused.exception) == "--group-by: only with --target; add it, or leave --group-by out"
    done = CliRunner().invoke(command, [*call, "--target"], catch_exceptions=False)
    assert done.stderr.splitlines() == [
        "note: val has no image of 1 class, whose groups are too few: rare (2 groups); tell smaller groups, or add "
        "images",
        "note: test has fewer than 10 images of 3 of 3 classes (of rare 3): add images, or trust a score over several "
        "seeds alone",
    ]


class TestDecathlon:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return make_root(tmp_path / "in")

    def groups(self, root: Path, tmp_path: Path) -> Path:
        """Of dtd, one group an image number, train and val together; none of svhn."""
        files = sorted(str(path.relative_to(root)) for path in (root / "data" / "dtd").rglob("*.jpg"))
        lines = [f"{file},{int(Path(file).stem)}" for file in files]
        (tmp_path / "groups.csv").write_text("file,group\n" + "\n".join(lines))
        return tmp_path / "groups.csv"

    def test_new_splits_hold_whole_groups_and_the_store_none_of_them(self, root: Path, tmp_path: Path) -> None:
        told = self.groups(root, tmp_path)
        report = pack_decathlon(root, tmp_path / "out", mix=["dtd"], labelled={"dtd": 6}.get, groups=told)
        target = tmp_path / "out" / "targets" / "dtd"
        sides = {name: set(found) for name, found in keys(target).items()}
        sides["store"] = {key for key in held(tmp_path / "out" / "store") if key.startswith("dtd/")}
        assert sum(map(len, sides.values())) == len(set.union(*sides.values())) == 18  # none twice, none lost
        groups = [{int(key.rpartition("/")[2]) for key in side} for side in sides.values()]
        assert sum(map(len, groups)) == 12
        assert report.targets["svhn"] == {"train": 6, "val": 6, "test": 6}
        assert "svhn: no two images of one group are known, the splits stay" in report.notes
        assert report.notes[0] == "dtd: new splits of 12 whole groups"
        assert not (target.parent / "svhn" / "groups.parquet").exists()
        rows = pq.read_table(target / "groups.parquet").to_pylist()
        assert {row["key"]: row["group"] for row in rows} == {
            key: str(int(key.rpartition("/")[2])) for name in SPLITS for key in sides[name]
        }

    def test_bytes_labels_and_ids_are_those_of_the_prescribed_splits(self, root: Path, tmp_path: Path) -> None:
        pack_decathlon(root, tmp_path / "a", targets=["dtd"])
        pack_decathlon(root, tmp_path / "b", targets=["dtd"], groups=self.groups(root, tmp_path))
        found = [
            {
                key: {part: value for part, value in sample.items() if not part.startswith("__")}
                for name in SPLITS
                for key, sample in held(tmp_path / side / "targets" / "dtd" / name).items()
            }
            for side in "ab"
        ]
        assert found[0] == found[1]

    def test_a_source_path_tells_tracks_and_writers(self, tmp_path: Path) -> None:
        lines = [
            "data/gtsrb/train/0001/1.jpg,gtsrb/8/00004_00019.ppm",
            "data/omniglot/val/0001/2.jpg,a.zip:x/character11/0861_06.png",
            "data/dtd/train/0001/3.jpg,images/banded_0001.jpg",
        ]
        (tmp_path / "origin.csv").write_text("file,source_path\n" + "\n".join(lines))
        assert grouped.read(tmp_path / "origin.csv") == {
            "data/gtsrb/train/0001/1.jpg": "gtsrb/8/00004",
            "data/omniglot/val/0001/2.jpg": "06",
        }

    def test_too_few_groups_are_refused(self, root: Path, tmp_path: Path) -> None:
        lines = self.groups(root, tmp_path).read_text().splitlines()
        one = [lines[0], *(line.rpartition(",")[0] + ",0" for line in lines[1:])]
        (tmp_path / "one.csv").write_text("\n".join(one))
        with pytest.raises(ShardError, match=r"dtd_train\.json: too few groups: val would be empty"):
            pack_decathlon(root, tmp_path / "out", groups=tmp_path / "one.csv")
        assert not (tmp_path / "out").exists()

    @pytest.mark.slow
    def test_tracks_and_writers_of_the_shared_domains_are_whole(self, tmp_path: Path) -> None:
        """Sizes near the prescribed; every class in train and test; sides share no track, no writer."""
        if not SHARED.exists():
            pytest.skip("the shared decathlon images are not here")
        domains = ["gtsrb", "omniglot"]
        report = pack_decathlon(
            SHARED, tmp_path, targets=domains, labelled=protocols.labelled, groups=SHARED / "origin.csv.gz"
        )
        assert report.notes[:2] == (
            "gtsrb: new splits of 888 whole groups",
            "omniglot: new splits of 20 whole groups",
        )
        for domain, sizes in (("gtsrb", (1_075, 1_075, 645)), ("omniglot", (780, 780, 520))):
            assert list(report.targets[domain].values()) == pytest.approx(sizes, rel=0.07)
            rows = pq.read_table(tmp_path / "targets" / domain / "groups.parquet").to_pylist()
            where = defaultdict(set)
            for row in rows:
                where[row["group"]].add(row["split"])
            assert all(len(found) == 1 for found in where.values())
            for name in ("train", "test"):
                of = held(tmp_path / "targets" / domain / name).values()
                assert len({sample["cls"] for sample in of}) == {"gtsrb": 43, "omniglot": 104}[domain]
