"""Packing the decathlon: bytes that come back, splits, original ids, what is mixed in, results to hand in."""

from __future__ import annotations

import json
import resource
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from decathlon_makers import GAPS, change, held, jpeg, make_domain, make_root
from decathlon_results import results, write_results
from hypothesis import given
from hypothesis import strategies as st
from shard_makers import indexed, tree

from curate import errors as curate_errors
from curate.cli import curate as command
from curate.experiments.tables import protocols
from shards.errors import Misuse, ShardError
from shards.indexing import domains
from shards.packing.decathlon.pack import pack_decathlon
from shards.packing.decathlon.samples import keys_of

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "decathlon-1.0"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_root(tmp_path / "in")


def test_a_target_has_the_bytes_labels_and_ids_of_its_domain(root: Path, tmp_path: Path) -> None:
    report = pack_decathlon(root, tmp_path / "out")
    assert report.store == {"imagenet12": 12}
    assert report.targets == {name: {"train": 6, "val": 6, "test": 6} for name in ("dtd", "svhn")}
    assert (report.faults, report.notes) == ((), ())
    target = tmp_path / "out" / "targets" / "dtd"
    assert (target / "classes.txt").read_text() == "ant\nbee\nfly\n"
    found = {name: held(target / name) for name in ("train", "val", "test")}
    for name, split in found.items():
        assert Counter(sample["cls"] for sample in split.values()) == {b"0": 2, b"1": 2, b"2": 2}, name
        for key, sample in split.items():
            number = int(key.rpartition("/")[2])
            first = 300_001 if name == "test" else 200_001
            assert sample["jpg"] == (root / "data" / f"{key}.jpg").read_bytes()
            assert int(sample["cls"]) == number % 3
            assert json.loads(sample["json"]) == {"image_id": first + number, "category_id": GAPS[number % 3]}
    assert len({*found["train"], *found["val"]}) == 12
    assert all(key.startswith("dtd/val/") for key in found["test"])


def test_the_store_is_the_sources_train_images_in_order(root: Path, tmp_path: Path) -> None:
    pack_decathlon(root, tmp_path / "out")
    store = held(tmp_path / "out" / "store")
    assert list(store) == [f"imagenet12/train/{n % 3 + 1:04d}/{n:06d}" for n in range(12)]
    assert all(sample["jpg"] == (root / "data" / f"{key}.jpg").read_bytes() for key, sample in store.items())
    assert all("cls" not in sample for sample in store.values())


def test_the_size_asked_limits_both_halves_together(root: Path, tmp_path: Path) -> None:
    report = pack_decathlon(root, tmp_path / "out", labelled={"dtd": 6, "svhn": 100}.get)
    assert report.targets["dtd"] == {"train": 3, "val": 3, "test": 6}
    assert report.targets["svhn"] == {"train": 6, "val": 6, "test": 6}  # as many as there are


def test_mixed_in_are_the_train_images_that_no_target_uses(root: Path, tmp_path: Path) -> None:
    report = pack_decathlon(root, tmp_path / "out", targets=["dtd"], mix=["svhn", "dtd"], labelled={"dtd": 6}.get)
    assert report.store == {"imagenet12": 12, "svhn": 12, "dtd": 6}
    target = [held(tmp_path / "out" / "targets" / "dtd" / name) for name in ("train", "val")]
    store = held(tmp_path / "out" / "store")
    assert len({*store, *target[0], *target[1]}) == 12 + 12 + 12  # every train image of the three, once
    recorded = domains.load(indexed(tmp_path / "out" / "store"))
    assert [recorded.names[code] for code in recorded.codes] == [key.partition("/")[0] for key in store]


def test_the_same_seed_gives_the_same_bytes(root: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        pack_decathlon(root, tmp_path / name, seed=seed)
    assert tree(tmp_path / "a") == tree(tmp_path / "b") != tree(tmp_path / "c")


def test_what_cannot_be_used_is_left_out_and_said(root: Path, tmp_path: Path) -> None:
    """An image without annotation, one that does not decode; an image of another size is packed all the same."""
    change(root, lambda said: said["annotations"].pop(0))  # of image 11: the annotations stand in reverse order
    (root / "data" / "imagenet12" / "train" / "0001" / "000000.jpg").write_bytes(jpeg(1)[:60])
    (root / "data" / "imagenet12" / "train" / "0002" / "000001.jpg").write_bytes(jpeg(2, (9, 9)))
    report = pack_decathlon(root, tmp_path / "out")
    assert report.store == {"imagenet12": 11}
    assert sum(report.targets["dtd"][name] for name in ("train", "val")) == 11
    assert {(fault.kind, fault.shard) for fault in report.faults} == {
        ("bad-label", "data/dtd/train/0003/000011.jpg"),
        ("truncated-image", "data/imagenet12/train/0001/000000.jpg"),
    }
    assert report.notes == (
        "1 images are not of the size annotated, the first data/imagenet12/train/0002/000001.jpg: 9 x 9,"
        " annotated 9 x 8",
    )


def test_an_image_of_val_without_annotation_is_not_in_test(root: Path, tmp_path: Path) -> None:
    change(root, lambda said: said["annotations"].pop(), "dtd_val")
    report = pack_decathlon(root, tmp_path / "out", targets=["dtd"])
    assert report.targets["dtd"]["test"] == len(held(tmp_path / "out" / "targets" / "dtd" / "test")) == 5
    assert [fault.shard for fault in report.faults] == ["data/dtd/val/0001/000000.jpg"]


def test_a_disk_that_refuses_leaves_no_folder_and_the_next_try_succeeds(root: Path, tmp_path: Path) -> None:
    """Files above 8 kB are refused, which the store is (12 images of two blocks each)."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            pack_decathlon(root, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in"]
    assert pack_decathlon(root, tmp_path / "out").store == {"imagenet12": 12}


def test_a_domain_without_images_is_passed_over_unless_it_is_named(root: Path, tmp_path: Path) -> None:
    (root / "data" / "svhn").rename(root / "elsewhere")
    report = pack_decathlon(root, tmp_path / "out")
    assert (list(report.targets), report.notes) == (["dtd"], ("svhn: annotations but no images, left out",))
    with pytest.raises(ShardError, match=r"data: no images of this domain \(expected svhn/ or svhn\.tar, found nei"):
        pack_decathlon(root, tmp_path / "other", targets=["svhn"])


@pytest.mark.parametrize("split", ["train", "val"])
def test_a_target_without_a_readable_image_in_train_or_val_is_refused(root: Path, tmp_path: Path, split: str) -> None:
    """Twelve annotated images, six a half; the images of the one half, known from a first packing, do not decode."""
    pack_decathlon(root, tmp_path / "first", targets=["dtd"])
    for key in held(tmp_path / "first" / "targets" / "dtd" / split):
        (root / "data" / f"{key}.jpg").write_bytes(b"no picture")
    with pytest.raises(ShardError, match=rf"dtd_train\.json: {split} is empty \(.*, found none of 6\); .*--domains"):
        pack_decathlon(root, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "in"]


@given(st.lists(st.text("ab._/", min_size=1, max_size=6), min_size=1))
def test_keys_keep_folders_and_have_no_dot_in_the_name(stems: list[str]) -> None:
    keys = keys_of(pa.array([f"data/d/{stem}.jpg" for stem in stems])).to_pylist()
    for stem, key in zip(stems, keys, strict=True):
        folder, _, name = f"d/{stem}".rpartition("/")
        assert key == f"{folder}/{name.replace('.', '_')}"


def test_predictions_are_handed_in_under_the_original_ids(root: Path, tmp_path: Path) -> None:
    """The true classes predicted give the annotations of the val split, of two domains one after the other."""
    pack_decathlon(root, tmp_path / "out")
    found = []
    for name in ("dtd", "svhn"):
        target = tmp_path / "out" / "targets" / name
        truth = np.array([int(sample["cls"]) for sample in held(target / "test").values()])
        found.append(results(target, "test", truth))
    write_results(tmp_path / "results.json", found[0] + found[1])
    written = json.loads((tmp_path / "results.json").read_text())
    assert len(written) == 12
    said = json.loads((root / "annotations" / "dtd_val.json").read_text())["annotations"]
    by_image = {entry["image_id"]: entry["category_id"] for entry in written[:6]}
    assert by_image == {entry["image_id"]: entry["category_id"] for entry in said}


def test_predictions_that_do_not_fit_are_refused(root: Path, tmp_path: Path) -> None:
    pack_decathlon(root, tmp_path / "out", targets=["dtd"])
    target = tmp_path / "out" / "targets" / "dtd"
    with pytest.raises(Misuse, match=r"one prediction a sample \(expected 6, found 5\)"):
        results(target, "test", np.zeros(5, np.int64))
    for wrong in (-1, 3):
        with pytest.raises(Misuse, match=rf"no class of this number \(expected 0 to 2, found {wrong}\)"):
            results(target, "test", np.array([0, 0, 0, wrong, 0, 0]))
    (target / "categories.json").unlink()
    with pytest.raises(ShardError, match=r"categories\.json: no category ids; pack the target"):
        results(target, "test", np.zeros(6, np.int64))
    with pytest.raises(ShardError, match=r"imagenet12/train/0001/000000: no image id"):
        results(tmp_path / "out", "store", np.zeros(12, np.int64))


def test_the_verb_prints_what_was_packed_and_says_what_was_not(root: Path, tmp_path: Path) -> None:
    (root / "data" / "svhn").rename(root / "elsewhere")
    asked = ["pack", "decathlon", str(root), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(command, asked, catch_exceptions=False)
    assert result.stdout == "store: 12 imagenet12\ntargets/dtd: 6 train, 6 val, 6 test\n"
    assert result.stderr == "note: svhn: annotations but no images, left out\n"


def test_a_domain_that_its_target_uses_up_is_not_mixed_in_silence(root: Path, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"dtd: --mix has nothing of it .*: its target takes all 12\); leave"):
        pack_decathlon(root, tmp_path / "out", mix=("dtd",))
    assert not (tmp_path / "out").exists()
    assert pack_decathlon(root, tmp_path / "out", mix=("dtd",), targets=("svhn",)).store == {
        "imagenet12": 12,
        "dtd": 12,
    }


def test_what_no_annotation_names_is_told(root: Path, tmp_path: Path) -> None:
    """Links that annotations lead through are read, and no loss."""
    data = root / "data"
    (data / "dtd" / "train" / "0001").rename(tmp_path / "moved")
    (data / "dtd" / "train" / "0001").symlink_to(tmp_path / "moved")
    (data / "dtd" / "more").symlink_to(tmp_path / "moved")
    (data / "svhn" / "train" / "spare.jpg").write_bytes(jpeg(1))
    (root / "annotations" / "ucf101_train.json").write_text("{}")
    assert pack_decathlon(root, tmp_path / "out").notes == (
        "ucf101: annotations of one of train and val, left out",
        "data/dtd: no annotation of train or val names 1 linked folder (more)",
        "data/svhn: no annotation of train or val names 1 .jpg",
    )


def test_a_domain_whose_files_readers_pass_over_is_refused(root: Path, tmp_path: Path) -> None:
    make_domain(root, "__x__", 4, 1)
    with pytest.raises(ShardError, match=r"the name of a domain \(expected no __name__.*found __x__"):
        pack_decathlon(root, tmp_path / "out")


@pytest.mark.parametrize("text", ["", " , "])
def test_a_list_of_no_domain_is_misuse(root: Path, tmp_path: Path, text: str) -> None:
    asked = ["pack", "decathlon", str(root), "--out", str(tmp_path / "out"), "--domains", text]
    result = CliRunner().invoke(command, asked)
    assert isinstance(result.exception, curate_errors.Misuse)
    assert str(result.exception) == f"--domains {text!r}: names no domain; name some, or leave it out for all"
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_shared_domains_come_back_byte_for_byte(tmp_path: Path) -> None:
    """Every image of the shared tars: the store and three splits hold what Python's own `tarfile` reads."""
    if not SHARED.exists():
        pytest.skip("the shared decathlon images are not here")
    report = pack_decathlon(SHARED, tmp_path / "out", mix=["gtsrb"], labelled=protocols.labelled)
    # README of the shared data; 2,150 of GTSRB's 2,580 are the target's
    assert report.store == {"imagenet12": 6_200, "gtsrb": 430}
    assert {name: (counts["train"] + counts["val"], counts["test"]) for name, counts in report.targets.items()} == {
        "cifar100": (1_799, 500),
        "dtd": (850, 300),
        "gtsrb": (2_150, 645),
        "omniglot": (1_560, 520),
        "vgg-flowers": (1_020, 714),
    }
    originals = {}
    for path in (SHARED / "data").glob("*.tar"):
        with tarfile.open(path) as tar:
            originals |= {member.name: tar.extractfile(member).read() for member in tar if member.isreg()}  # type: ignore[union-attr]
    for split in (*(tmp_path / "out" / "targets").glob("*/*/"), tmp_path / "out" / "store"):
        for key, sample in held(split).items():
            assert originals.pop(f"{key}.jpg") == sample["jpg"]  # popped: no image stands twice
    assert {name.split("/")[0] for name in originals} == {"imagenet12"}  # its val split: the source's is not used
