"""MNIST-layout files: what is read, what is refused, and how sets become a store with domains and a target."""

from __future__ import annotations

import gzip
import io
import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image
from shard_makers import indexed, read_set, tree

from curate.cli import curate as command
from shards.errors import Misuse, ShardError
from shards.indexing import domains, index_file
from shards.packing.idx import IdxReport, Limits, pack_idx, read, read_split, split_training_images

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "idx"


def idx_bytes(values):
    """An IDX file of bytes, from its definition: 0 0 8 rank, the sides big-endian, the values."""
    return bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def make_set(folder, n_train, n_test, classes=3, packed=True):
    """A set whose images are all different: image i holds the number i, its set and its split in its first pixels."""
    folder.mkdir(parents=True)
    for split, count in (("train", n_train), ("t10k", n_test)):
        images = np.zeros((count, 4, 3), np.uint8)
        images[:, 0, 0], images[:, 0, 1] = np.arange(count) // 256, np.arange(count) % 256
        images[:, 0, 2], images[:, 1, 0] = len(folder.name), split == "t10k"
        for part, values in (("images-idx3", images), ("labels-idx1", (np.arange(count) % classes).astype(np.uint8))):
            body = idx_bytes(values)
            name = f"{split}-{part}-ubyte" + (".gz" if packed else "")
            (folder / name).write_bytes(gzip.compress(body, mtime=0) if packed else body)
    return folder


@settings(deadline=None)
@given(
    values=arrays.arrays(np.uint8, arrays.array_shapes(min_dims=3, max_dims=3, max_side=6)),
    packed=st.booleans(),
)
def test_any_array_is_read_as_it_was_written(tmp_path_factory, values, packed):
    """Plain or gzip, told by the magic and not by the name."""
    path = tmp_path_factory.mktemp("idx") / "file"
    path.write_bytes(gzip.compress(idx_bytes(values)) if packed else idx_bytes(values))
    assert np.array_equal(read(path, 3), values)


WHOLE = idx_bytes(np.arange(24, dtype=np.uint8).reshape(2, 4, 3))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", r"not an IDX file of bytes with 3 dimensions \(expected 00000803, found none\)"),
        (b"PK\x03\x04" + bytes(50), "found 504b0304"),
        (WHOLE[:2] + b"\x0d" + WHOLE[3:], "found 00000d03"),
        (idx_bytes(np.zeros(5, np.uint8)), "found 00000801"),
        (WHOLE[:9], r"ends in its header \(expected 16 bytes, found 9\)"),
        (WHOLE[:-1], r"its length is not the one in its header \(expected 24 bytes after it, found 23\)"),
        (WHOLE + b"\0", r"\(expected 24 bytes after it, found more\)"),
        (WHOLE[:4] + struct.pack(">3I", 0, 4, 3), "impossible size .*found 0 x 4 x 3"),
        (WHOLE[:4] + struct.pack(">3I", 2**32 - 1, 2**32 - 1, 3), "impossible size .*found 4294967295 x 4294967295"),
        (gzip.compress(WHOLE, mtime=0)[:-9], "cut or damaged gzip"),
        (gzip.compress(WHOLE, mtime=0)[:-8] + bytes(8), "cut or damaged gzip"),
        (gzip.compress(WHOLE, mtime=0)[:10] + b"\xff" * 20, "cut or damaged gzip"),
    ],
)
def test_a_file_that_is_not_what_it_says_is_refused_in_one_line(tmp_path, body, message):
    """With its name, what was expected, and what to do."""
    (tmp_path / "x").write_bytes(body)
    with pytest.raises(ShardError, match=message) as caught:
        read(tmp_path / "x", 3)
    assert str(caught.value).startswith(f"{tmp_path / 'x'}: ")
    assert str(caught.value).endswith("; fetch the file again")
    assert "\n" not in str(caught.value)


def test_both_spellings_of_the_names_are_known(tmp_path):
    """With a hyphen or a dot before idx; a missing file is named as MNIST names it."""
    folder = make_set(tmp_path / "a", 6, 2, packed=False)
    assert read_split(folder, "train").images.shape == (6, 4, 3)
    (folder / "train-images-idx3-ubyte").rename(folder / "train-images.idx3-ubyte")
    assert read_split(folder, "train").labels.tolist() == [0, 1, 2, 0, 1, 2]
    (folder / "train-images.idx3-ubyte").unlink()
    with pytest.raises(
        ShardError, match=r"no train images .*expected train-images-idx3-ubyte or .*\.gz, found neither"
    ):
        read_split(folder, "train")


def test_labels_and_images_must_be_as_many(tmp_path):
    """One label an image."""
    folder = make_set(tmp_path / "a", 6, 2)
    (folder / "t10k-labels-idx1-ubyte.gz").write_bytes(idx_bytes(np.zeros(3, np.uint8)))
    with pytest.raises(ShardError, match=r"t10k: not one label an image \(expected 2 labels, found 3\)"):
        read_split(folder, "t10k")


@pytest.mark.parametrize(
    ("count", "train", "val", "store"),
    [
        (70_000, 9_000, 1_000, 60_000),
        (60_000, 9_000, 1_000, 50_000),
        (59_999, 9_000, 999, 50_000),  # a sixth is 9,999, a tenth of it 999
        (13_440, 2_016, 224, 11_200),
        (60, 9, 1, 50),
    ],
)
def test_the_own_set_is_divided_as_the_paper_does(count, train, val, store):
    """10,000 of its training images, or a sixth; a tenth of these, at most 1,000, is val. Each image is in one part."""
    parts = split_training_images(count, Limits(), seed=0)
    assert (len(parts.train), len(parts.val), len(parts.store)) == (train, val, store)
    assert sorted(np.concatenate([parts.train, parts.val, parts.store])) == list(range(count))
    assert not np.array_equal(parts.store, np.sort(parts.store))


def test_a_set_that_is_too_small_for_a_target_is_refused():
    """59 images: a sixth is 9, and no tenth of it."""
    with pytest.raises(ShardError, match=r"too few images for a target \(expected 60 or more to train on, found 59\)"):
        split_training_images(59, Limits(), seed=0)


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """120 images to train on of "own" (target 20, store 100), 30 of "b.2", 10 of "cc"."""
    root = tmp_path_factory.mktemp("sets")
    return [make_set(root / "own", 120, 8), make_set(root / "b.2", 30, 4), make_set(root / "cc", 10, 4)]


def decoded(members):
    """(key, pixels) of the images among the members of a shard set."""
    return {
        name.removesuffix(".png"): np.asarray(Image.open(io.BytesIO(body)))
        for name, body in members
        if name.endswith(".png")
    }


def test_sets_become_a_store_and_a_target(sets, tmp_path):
    """Every training image is in one place, pixels unchanged, named by its set and its place; labels in the target."""
    report = pack_idx(sets, "own", tmp_path / "out")
    assert report == IdxReport({"own": 100, "b.2": 30, "cc": 10}, {"train": 18, "val": 2, "test": 8}, 3, "own")
    store = decoded(read_set(tmp_path / "out" / "store"))
    target = {split: read_set(tmp_path / "out" / "target" / split) for split in ("train", "val", "test")}
    held = {split: decoded(members) for split, members in target.items()}
    own = [key for keys in (store, held["train"], held["val"]) for key in keys if key.startswith("own")]
    assert sorted(own) == [f"own-train-{place:05d}" for place in range(120)]
    assert sorted(held["test"]) == [f"own-t10k-{place:05d}" for place in range(8)]
    assert len(store) == 140
    for key, pixels in [*store.items(), *(pair for part in held.values() for pair in part.items())]:
        stem, split, place = key.rsplit("-", 2)
        assert pixels[:2, :].ravel()[:4].tolist() == [0, int(place), len(stem), split == "t10k"]
        assert pixels.shape == (4, 3)
    for members in target.values():
        assert all(int(body) == int(name[-9:-4]) % 3 for name, body in members if name.endswith(".cls"))
        assert len(members) % 2 == 0
    assert (tmp_path / "out" / "target" / "classes.txt").read_text() == "0\n1\n2\n"


def test_the_store_has_its_index_and_its_domains_and_no_order(sets, tmp_path):
    """A domain is its folder's name, dots and all; any stretch of the store holds every domain."""
    pack_idx(sets, "own", tmp_path / "out")
    held = index_file.load(tmp_path / "out" / "store" / ".curate" / "index.parquet")
    assert held.fingerprint == indexed(tmp_path / "out" / "store").fingerprint
    found = domains.load(held)
    stems = {"own": "own", "b.2": "b_2", "cc": "cc"}
    keys = held.table["key"].to_pylist()
    assert all(key.startswith(f"{stems[found.names[code]]}-train-") for key, code in zip(keys, found.codes))
    assert set(found.codes[:70]) == set(found.codes[70:]) == {0, 1, 2}


def test_the_same_seed_gives_the_same_bytes(sets, tmp_path):
    """And another seed another choice."""
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        pack_idx(sets, "own", tmp_path / name, seed=seed, shard_size=40_000)
    first, again, other = (tree(tmp_path / name) for name in "abc")
    assert first == again
    assert first != other
    assert sum(name.startswith("store/0") for name in first) > 1


def test_less_can_be_taken(sets, tmp_path):
    """Limits an each; what is taken is a part of what all of it would be, and not the first images."""
    report = pack_idx(sets, "own", tmp_path / "some", take=Limits(store=12, train=5, val=1, test=3))
    assert report == IdxReport({"own": 12, "b.2": 12, "cc": 10}, {"train": 5, "val": 1, "test": 3}, 3, "own")
    pack_idx(sets, "own", tmp_path / "all")
    some, whole = (decoded(read_set(tmp_path / name / "store")).keys() for name in ("some", "all"))
    assert some < whole
    assert max(key for key in some if key.startswith("own")) > "own-train-00012"


@pytest.mark.parametrize(
    ("own", "take", "message"),
    [
        ("mnist", Limits(), r"is not among the sets \(expected own, b\.2, cc, found mnist\)"),
        ("own", Limits(store=0), r"a limit of store \(expected at least 1, found 0\)"),
    ],
)
def test_what_cannot_be_meant_is_refused(sets, tmp_path, own, take, message):
    """With what there is; nothing is written."""
    with pytest.raises(Misuse, match=message):
        pack_idx(sets, own, tmp_path / "out", take=take)
    assert not (tmp_path / "out").exists()


def test_two_sets_of_one_name_are_refused(sets, tmp_path):
    """Their images could not be told apart: own and own, or b.2 and b_2, which make the same keys."""
    for name in ("own", "b_2"):
        twin = make_set(tmp_path / name, 10, 2)
        with pytest.raises(Misuse, match=r"^two sets of one name \(found b\.2, .*own.*\); rename"):
            pack_idx([*sets, twin], "own", tmp_path / "out")


@pytest.mark.parametrize("name", ["a\nb", os.fsdecode(b"caf\xe9")])
def test_a_folder_whose_name_is_no_domains_is_refused(sets, tmp_path, name):
    """Its name would be the images' domain: a line of UTF-8."""
    (tmp_path / name).mkdir()
    with pytest.raises(Misuse, match=r"no name of a domain \(expected a line of UTF-8 .*; rename it"):
        pack_idx([*sets, tmp_path / name], "own", tmp_path / "out")


def test_a_bad_set_leaves_nothing_behind(sets, tmp_path):
    """The output appears whole or not at all, and never over something."""
    broken = make_set(tmp_path / "broken", 10, 2)
    (broken / "train-images-idx3-ubyte.gz").write_bytes(b"")
    with pytest.raises(ShardError, match=r"broken/train-images-idx3-ubyte\.gz: not an IDX file"):
        pack_idx([*sets, broken], "own", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "x").touch()
    with pytest.raises(Misuse, match="there is something already"):
        pack_idx(sets, "own", tmp_path / "there")


def test_the_command_prints_what_was_packed(sets, tmp_path):
    """One JSON object with --json, one line without."""
    names = [str(folder) for folder in sets]
    said = CliRunner().invoke(command, ["pack", "idx", *names, "--own", "own", "--out", str(tmp_path / "a"), "--json"])
    assert json.loads(said.stdout)["target"] == {"train": 18, "val": 2, "test": 8}
    few = ["--own", "own", "--out", str(tmp_path / "b"), "--store-images", "5"]
    said = CliRunner().invoke(command, ["pack", "idx", *names, *few])
    assert said.stdout == ("packed a store of 5 own, 5 b.2, 5 cc; target own: 18 train, 2 val, 8 test in 3 classes\n")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared MNIST-layout sets are not here")
def test_real_sets_are_packed(tmp_path):
    """AHCD (13,440 training images, 28 classes) and notMNIST, a part of them."""
    sets = [SHARED / "ahcd", SHARED / "notmnist"]
    report = pack_idx(sets, "ahcd", tmp_path / "out", take=Limits(100, 56, 28, 30))
    assert report == IdxReport({"ahcd": 100, "notmnist": 100}, {"train": 56, "val": 28, "test": 30}, 28, "ahcd")
    source = read_split(sets[1], "train").images
    for key, pixels in decoded(read_set(tmp_path / "out" / "store")).items():
        if key.startswith("notmnist"):
            assert np.array_equal(pixels, source[int(key[-5:])])
