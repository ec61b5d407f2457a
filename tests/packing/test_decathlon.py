"""The decathlon's files: ids and labels, folders and tars, and annotations that are not to be believed."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from decathlon_makers import GAPS, Annotations, change, held, into_tar, jpeg, make_root
from shard_makers import tree

from shards.errors import Misuse, ShardError
from shards.packing.decathlon import annotations as decathlon
from shards.packing.decathlon.pack import pack_decathlon


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_root(tmp_path / "in")


@pytest.mark.parametrize(("prefix", "mode"), [("", "w"), ("./", "w"), ("", "w:gz")])
def test_a_tar_gives_what_the_folder_gives_and_is_not_unpacked(
    root: Path, tmp_path: Path, prefix: str, mode: str
) -> None:
    pack_decathlon(root, tmp_path / "folders")
    for name in ("imagenet12", "dtd", "svhn"):
        into_tar(root, name, prefix, mode)
    before = sorted(tree(root))
    pack_decathlon(root, tmp_path / "tars")
    assert tree(tmp_path / "tars") == tree(tmp_path / "folders")
    assert sorted(tree(root)) == before


def test_the_last_of_two_members_of_a_tar_counts(root: Path, tmp_path: Path) -> None:
    """As when the tar is unpacked."""
    name = "imagenet12/train/0001/000000.jpg"
    into_tar(root, "imagenet12")
    with tarfile.open(root / "data" / "imagenet12.tar", "a") as tar:
        member = tarfile.TarInfo(name)
        member.size = len(jpeg(77))
        tar.addfile(member, io.BytesIO(jpeg(77)))
    pack_decathlon(root, tmp_path / "out", targets=[])
    assert held(tmp_path / "out" / "store")[name.removesuffix(".jpg")]["jpg"] == jpeg(77)


@pytest.mark.parametrize("tar", [False, True])
def test_missing_files_are_counted_before_anything_is_written(root: Path, tmp_path: Path, tar: bool) -> None:
    for number in (3, 4):
        (root / "data" / "dtd" / "train" / f"{number % 3 + 1:04d}" / f"{number:06d}.jpg").unlink()
    if tar:
        into_tar(root, "dtd")
    expected = (
        r"dtd(\.tar)?: 2 of 12 images of dtd_train\.json are missing, the first data/dtd/train/0001/000003\.jpg; "
    )
    with pytest.raises(ShardError, match=expected):
        pack_decathlon(root, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def set_file(name: str) -> Callable[[Annotations], Any]:
    return lambda said: said["images"][0].update(file_name=name)


HOSTILE: list[tuple[Callable[[Annotations], Any], str]] = [
    (set_file("/etc/passwd.jpg"), r"a file_name that is not followed \(expected an image below data/dtd/, found '/etc"),
    (set_file("data/dtd/../../secret.jpg"), "a file_name that is not followed"),
    (set_file("data/dtd/./a.jpg"), "a file_name that is not followed"),
    (set_file("data/dtd//a.jpg"), "a file_name that is not followed"),
    (set_file("data/dtd/..\\a.jpg"), "a file_name that is not followed"),
    (set_file("data/svhn/train/0001/000000.jpg"), "a file_name that is not followed"),
    (set_file("data/dtd/train/a.cls"), "a file_name that is not followed"),
    (set_file("data/dtd/train/a\n.jpg"), "a file_name that is not followed"),
    (set_file("data/dtd/\0.jpg"), "a file_name that is not followed"),
    (set_file("data/dtd/\ud800.jpg"), "images of another form .*surrogates not allowed"),
    (
        set_file("data/dtd/train/0002/000001.jpg"),
        "file_name of images stands there twice: data/dtd/train/0002/000001.jpg",
    ),
    (lambda said: said["images"][0].update(id=200_002), "id of images stands there twice: 200002"),
    (lambda said: said["images"][0].update(id=1.5), "images of another form .*1.5"),
    (lambda said: said["images"][0].update(id=float("nan")), "is no JSON: NaN is no number"),
    (
        lambda said: said["images"][0].update(id=1 << 70),
        r"images of another form \(expected id int64, file_name string",
    ),
    (lambda said: said["images"][0].update(id=True), "images of another form .*got bool"),
    (lambda said: said["images"][1].pop("file_name"), "images: record 1 has no file_name"),
    (lambda said: said["images"].append("x"), r"no images \(expected a list of objects, found something else in it"),
    (lambda said: said.pop("annotations"), r"no annotations \(expected a list of objects, found NoneType"),
    (lambda said: said.update(categories={}), r"no categories \(expected a list of objects, found dict"),
    (lambda said: said["annotations"][0].update(image_id=1), "an image that is not in images: 1"),
    (
        lambda said: said["annotations"][0].update(category_id=30_000_002),
        "a category that is not in categories: 30000002",
    ),
    (lambda said: said["annotations"].append(said["annotations"][0]), "image_id of annotations stands there twice"),
    (lambda said: said["categories"].append(said["categories"][0]), "id of categories stands there twice"),
    (
        lambda said: said["categories"][0].update(name="a\nb"),
        r"the name of category 30000001 \(expected a line of text, found 'a\\nb'\)",
    ),
    (lambda said: said["categories"][0].update(name="wasp"), "train and val have other categories .*'(wasp|ant)'"),
    (lambda said: said["categories"].reverse(), "train and val have other categories"),
    (lambda said: said["annotations"].clear(), "too few annotated images for train and val"),
]


@pytest.mark.parametrize(("altered", "message"), HOSTILE)
def test_annotations_that_cannot_be_meant_are_one_line(
    root: Path, tmp_path: Path, altered: Callable[[Annotations], Any], message: str
) -> None:
    change(root, altered)
    with pytest.raises(ShardError, match=message) as caught:
        pack_decathlon(root, tmp_path / "out")
    assert "dtd_" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("text", ["", "[", "[]", "7", "\xff", "[" * 100_000], ids=range(6))
def test_a_file_that_is_no_annotation_is_one_line(root: Path, tmp_path: Path, text: str) -> None:
    (root / "annotations" / "dtd_val.json").write_text(text, encoding="latin-1")
    with pytest.raises(ShardError, match=r"dtd_val\.json: (is no JSON|no annotations)") as caught:
        pack_decathlon(root, tmp_path / "out")
    assert "\n" not in str(caught.value)


def test_two_images_of_one_key_are_refused(root: Path, tmp_path: Path) -> None:
    change(root, set_file("data/dtd/train/0002/000001.png"))
    (root / "data" / "dtd" / "train" / "0002" / "000001.png").write_bytes(jpeg(1))
    with pytest.raises(ShardError, match=r"dtd_train\.json, dtd/train/0002/000001: two images have one key"):
        pack_decathlon(root, tmp_path / "out")


def test_requests_that_cannot_be_meant_are_misuse(root: Path, tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"no such domain \(expected one of dtd, imagenet12, svhn, found 'ucf101'\)"):
        pack_decathlon(root, tmp_path / "out", targets=["ucf101"])
    with pytest.raises(Misuse, match=r"no such domain .*'\.\./dtd'"):
        pack_decathlon(root, tmp_path / "out", mix=["../dtd"])
    with pytest.raises(Misuse, match="imagenet12 is the source"):
        pack_decathlon(root, tmp_path / "out", targets=["imagenet12"])
    with pytest.raises(Misuse, match="output and input lie in one another"):
        pack_decathlon(root, root / "out")
    with pytest.raises(Misuse, match=r"no folder of the decathlon's layout .*annotations/<domain>_train\.json"):
        pack_decathlon(root / "data", tmp_path / "out")


@pytest.mark.parametrize("name", ["", ".", "..", "a\nb", "a\x7f", "\udcff"])
def test_annotations_whose_name_is_no_domains_are_refused(root: Path, tmp_path: Path, name: str) -> None:
    for split in ("train", "val"):
        (root / "annotations" / f"{name}_{split}.json").write_text("{}")
    with pytest.raises(Misuse, match=r"annotations: no name of a domain \(expected a line of UTF-8") as caught:
        pack_decathlon(root, tmp_path / "out")
    assert f"found {name!r}" in str(caught.value)
    assert str(caught.value).isprintable()


def test_annotations_in_a_pipe_are_not_waited_for(root: Path, tmp_path: Path) -> None:
    path = root / "annotations" / "dtd_train.json"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ShardError, match=r"dtd_train\.json: is no regular file"):
        pack_decathlon(root, tmp_path / "out")


def test_reading_keeps_category_ids_with_gaps(root: Path) -> None:
    train, _ = decathlon.read_domain(root, "dtd")
    assert [category.id for category in train.categories] == list(GAPS)
    assert train.labels.tolist() == [0, 1, 2] * 4
    assert train.ids.tolist() == list(range(200_001, 200_013))
