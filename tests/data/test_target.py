"""The target: its splits, labels and what is left out of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
import toyset
from shard_makers import write_tar

from curate.api import configured
from curate.data.decode import Decoder
from curate.data.target import is_labelled, label_of, load_split, names_of, open_target
from curate.errors import CurateError, Misuse
from curate.evaluation.evaluate import Protocol, evaluate
from curate.experiments.baselines.against import ComparisonSettings, against
from curate.runs.pretrain import pretrain
from curate.runs.run import run

GREY = Decoder(16, "grey")


def png(i):
    return toyset.png(toyset.digits()[0][i])


def one_shard(folder, members):
    write_tar(folder / "train" / "000000.tar", members)
    return open_target(folder)


def test_a_split_is_decoded_whole_with_its_labels(tmp_path):
    """In the order of its shards: the last 40 digits are train."""
    target = open_target(toyset.make_target(tmp_path))
    assert list(target.splits) == ["train", "val", "test"]
    assert is_labelled(target)
    train = load_split(target, "train", GREY)
    pictures, labels = toyset.digits()
    assert torch.equal(train.pixels, torch.from_numpy(pictures[-40:])[:, None])
    assert train.labels.tolist() == labels[-40:].tolist()
    assert train.labels.dtype == torch.int64
    assert train.left_out == {}


def test_a_target_without_labels_has_none(tmp_path):
    """Its images are all there."""
    target = open_target(toyset.make_target(tmp_path, 10, labelled=False))
    assert not is_labelled(target)
    train = load_split(target, "train", GREY)
    assert train.labels is None
    assert len(train.pixels) == 10


def test_only_train_is_needed(tmp_path):
    """Other splits are asked for where they are used; the message says which there are."""
    target = one_shard(tmp_path, [("a.png", png(0)), ("a.cls", b"3")])
    assert list(target.splits) == ["train"]
    with pytest.raises(CurateError, match=r"the target has no val/ split \(it has: train\)"):
        load_split(target, "val", GREY)


def test_what_cannot_be_used_is_left_out_and_counted(tmp_path):
    """An image that does not decode, one that is missing, and a label that is no number while others are."""
    members = [
        ("a.png", png(0)),
        ("a.cls", b"3"),
        ("b.png", b"no picture"),
        ("b.cls", b"1"),
        ("c.cls", b"1"),
        ("d.png", png(1)),
        ("d.cls", b"cat"),
        ("e.png", png(2)),
        ("f.png", png(3)),
        ("f.cls", b" 7\n"),
    ]
    train = load_split(one_shard(tmp_path, members), "train", GREY)
    assert train.labels.tolist() == [3, 7]
    assert torch.equal(train.pixels, torch.from_numpy(toyset.digits()[0][[0, 3]])[:, None])
    assert train.left_out == {"not-an-image": 1, "empty-member": 1, "bad-label": 2}


def test_a_split_in_which_nothing_decodes_is_an_error(tmp_path):
    """It says what was found instead."""
    target = one_shard(tmp_path, [("a.png", b"no picture"), ("b.png", b"")])
    with pytest.raises(CurateError, match=r"train/ holds no image that decodes \(.*'not-an-image': 1.*\)"):
        load_split(target, "train", GREY)


def test_no_folder_and_no_train_are_errors(tmp_path):
    """Each says what to do."""
    with pytest.raises(CurateError, match="no such target folder; `curate pack imagefolder --target` makes one"):
        open_target(tmp_path / "none")
    (tmp_path / "val").mkdir()
    with pytest.raises(CurateError, match=r"has no train/ \(found: val\); a target needs one"):
        open_target(tmp_path)


def test_the_fingerprint_is_of_content_and_not_of_place(tmp_path):
    """The same target elsewhere has the same; another split or another image another."""
    one = open_target(toyset.make_target(tmp_path / "one", 10)).fingerprint
    two = open_target(toyset.make_target(tmp_path / "two", 10)).fingerprint
    assert one == two
    assert open_target(toyset.make_target(tmp_path / "three", 11)).fingerprint != one


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (b"0", 0),
        (b" 12\n", 12),
        (b"-1", -1),
        (b"", None),
        (None, None),
        (b"1.0", None),
        (b"\xff", None),
        (b"1 2", None),
    ],
)
def test_a_label_is_one_integer(text, label):
    """Spaces around it do not matter."""
    assert label_of(text) == label


def test_labels_that_are_words_are_called_so(tmp_path):
    """Not "no labels": what was found, where, and what to do; who needs no labels goes on without."""
    target = one_shard(tmp_path, [("a.png", png(0)), ("a.cls", b"cat"), ("b.png", png(1)), ("b.cls", b"d\xf6g\n")])
    train = load_split(target, "train", GREY)
    assert train.labels is None
    assert len(train.pixels) == 2
    expected = "train/: none of its 2 labels (.cls members) is a number, the first is 'cat', of a; write the class's"
    assert train.words.startswith(expected)


def test_a_run_on_words_is_told_what_to_do(tmp_path):
    """Before training; by the meta-loss that needs no labels it trains."""
    toyset.make_store(tmp_path / "store", 32)
    members = [(f"{i}.{kind}", body) for i in range(8) for kind, body in (("png", png(i)), ("cls", b"cat"))]
    one_shard(tmp_path / "target", members)
    with pytest.raises(
        CurateError, match=r"target/train/: none of its 8 labels .*'cat', of 0; .* --meta-loss self-sup"
    ):
        toyset.run_on(tmp_path, tmp_path / "run", meta_loss="prototypical")
    toyset.run_on(tmp_path, tmp_path / "run", epochs=1)


def test_an_evaluation_on_words_is_told_what_to_do(tmp_path):
    """As "no labels" it sent people to look for members that are there."""
    toyset.make_store(tmp_path / "store", 32)
    toyset.make_target(tmp_path / "target", 20)
    pretrain(str(tmp_path / "store"), tmp_path / "net", {**toyset.applicable("uniform", toyset.FAST), "epochs": 1})
    members = [(f"{i}.{kind}", body) for i in range(8) for kind, body in (("png", png(i)), ("cls", b"cat"))]
    for split in ("train", "val", "test"):
        write_tar(tmp_path / "words" / split / "000000.tar", members)
    with pytest.raises(CurateError, match=r"words/train/: none of its 8 labels"):
        evaluate(tmp_path / "net", str(tmp_path / "words"), Protocol(device="cpu"))


def test_what_a_split_passed_over_is_noted(tmp_path):
    """A linked folder of more shards, beside those that are read."""
    toyset.make_target(tmp_path / "target", 10)
    (tmp_path / "target" / "train" / "more").symlink_to(tmp_path / "target" / "val")
    assert open_target(tmp_path / "target").notes == ("of the target's train/ was passed over: 1 linked folder (more)",)


class TestWithoutPacking:
    """A target that is only looked at: image files as they lie, or any shards."""

    @pytest.fixture
    def photos(self, tmp_path):
        """Two digits in a folder below, a broken picture, and what is no image."""
        folder = tmp_path / "photos"
        (folder / "more").mkdir(parents=True)
        for name, body in {"b.png": png(1), "more/a.png": png(2), "c.jpg": b"no", "notes.txt": b"text"}.items():
            (folder / name).write_bytes(body)
        return folder

    def test_a_folder_of_image_files_is_a_train_split_without_labels(self, photos):
        """Sorted by path; what does not decode is left out and counted."""
        target = open_target(photos)
        train = load_split(target, "train", GREY)
        assert not is_labelled(target)
        assert train.labels is None
        assert torch.equal(train.pixels, torch.from_numpy(toyset.digits()[0][[1, 2]])[:, None])
        assert train.left_out == {"not-an-image": 1}
        assert names_of(target.splits["train"]).to_pydict() == {
            "shard": ["", "", ""],
            "key": ["b.png", "c.jpg", "more/a.png"],
        }
        with pytest.raises(CurateError, match=r"no val/ split \(it has: train\)"):
            load_split(target, "val", GREY)

    def test_its_fingerprint_is_of_names_and_contents(self, photos, tmp_path):
        """Not of the place; a pixel more is another."""
        shutil.copytree(photos, tmp_path / "copy")
        assert open_target(photos).fingerprint == open_target(tmp_path / "copy").fingerprint
        (tmp_path / "copy" / "b.png").write_bytes(png(3))
        assert open_target(photos).fingerprint != open_target(tmp_path / "copy").fingerprint

    def test_a_list_of_image_files(self, photos, tmp_path):
        """Relative to its folder; a line that names none is named."""
        (tmp_path / "list.txt").write_text("photos/b.png\n\nphotos/more/a.png\n")
        assert len(load_split(open_target(tmp_path / "list.txt"), "train", GREY).pixels) == 2
        (tmp_path / "list.txt").write_text("photos/b.png\nphotos/gone.png\n")
        with pytest.raises(CurateError, match=r"1 of 2 lines name no image file, such as 'photos/gone.png'"):
            open_target(tmp_path / "list.txt")

    def test_any_shards_are_a_train_split(self, tmp_path):
        """One tar, a folder of tars without splits, and a list of tars."""
        tars = sorted(toyset.make_store(tmp_path / "store", 32).glob("*.tar"))
        (tmp_path / "list.txt").write_text(f"{tars[0]}\n{tars[1]}\n")
        counts = [
            len(open_target(place).splits["train"]) for place in (tars[0], tmp_path / "store", tmp_path / "list.txt")
        ]
        assert counts == [14, 32, 28]

    def test_train_val_and_test_may_be_image_files_too(self, photos, tmp_path):
        """A folder a split."""
        for split in ("train", "val"):
            shutil.copytree(photos, tmp_path / "target" / split)
        assert list(open_target(tmp_path / "target").splits) == ["train", "val"]

    def test_a_folder_without_anything_says_so(self, tmp_path):
        """Neither shards nor image files."""
        with pytest.raises(CurateError, match=r"has no train/ \(found: no split, shard or image file\)"):
            open_target(tmp_path)

    def test_what_needs_labels_says_so(self, photos, tmp_path):
        """The prototypical meta-loss, and evaluation, each in one line."""
        store = toyset.make_store(tmp_path / "store", 32)
        with pytest.raises(Misuse, match="--meta-loss prototypical needs labels"):
            run(toyset.config(store, photos, meta_loss="prototypical", reference="none"), tmp_path / "run")
        run(toyset.config(store, photos, method="uniform", epochs=1), tmp_path / "run")
        with pytest.raises(CurateError, match=r"photos/train: no labels \(.cls members\); evaluation needs a labelled"):
            evaluate(tmp_path / "run", str(photos), Protocol(device="cpu"))
        with pytest.raises(CurateError, match=r"photos/train: no labels"):
            against(tmp_path / "run", str(photos), ComparisonSettings(("raw",)))

    @pytest.mark.parametrize(("labelled", "meta_loss"), [(True, "prototypical"), (False, "self-supervised")])
    def test_paper_mode_goes_by_the_labels(self, tmp_path, labelled, meta_loss):
        """As before; named, it stays."""
        target = toyset.make_target(tmp_path / "target", 10, labelled=labelled)
        assert configured("store", target, None, True, {}, Path("run")).meta.meta_loss == meta_loss
        named = configured("store", target, None, True, {"meta_loss": "self-supervised"}, Path("run"))
        assert named.meta.meta_loss == "self-supervised"
