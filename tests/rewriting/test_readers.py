"""A curated folder as it is, read by the readers themselves: nothing is told them but where it lies.

Those that are not among the development dependencies are tried where they are installed.
"""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from shard_makers import make_store, manifest_of
from toyset import png

from shards.rewriting.card import FILE_NAME
from shards.rewriting.rewrite import rewrite
from shards.rewriting.verify import verify

# Of these readers: files left open, and words to their own callers.
pytestmark = pytest.mark.filterwarnings("ignore")

#: Samples of the store, and those that are kept, in two shards.
COUNT, KEPT = 12, [0, 2, 3, 5, 7, 8, 11]
KEYS = [f"{row:04d}" for row in KEPT]


@pytest.fixture
def curated(tmp_path: Path) -> Path:
    """Pictures with captions, rewritten into shards of a few samples each."""
    members = [
        member
        for row in range(COUNT)
        for member in (
            (f"{row:04d}.png", png(np.full((8, 8), row, np.uint8))),
            (f"{row:04d}.txt", f"caption {row}".encode()),
        )
    ]
    store = make_store(tmp_path / "store", {"00000.tar": members[:14], "00001.tar": members[14:]})
    rewrite(store, manifest_of(store, KEPT), tmp_path / "curated")
    assert len(list((tmp_path / "curated").glob("*.tar"))) == 2
    return tmp_path / "curated"


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that asked a server about a local folder would hang where there is none."""

    def refuse(*_: Any) -> None:
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("streaming", [True, False])
def test_datasets_load_the_folder_by_its_name(curated: Path, tmp_path: Path, streaming: bool) -> None:
    datasets = pytest.importorskip("datasets")
    loaded = datasets.load_dataset(str(curated), streaming=streaming, cache_dir=str(tmp_path / "cache"))
    assert list(loaded) == ["train"]
    lines = list(loaded["train"])
    assert [line["__key__"] for line in lines] == KEYS
    assert [line["txt"] for line in lines] == [f"caption {row}" for row in KEPT]
    assert [line["png"].getpixel((0, 0)) for line in lines] == KEPT


@pytest.mark.usefixtures("offline")
def test_without_the_card_datasets_fail(curated: Path, tmp_path: Path) -> None:
    """What the card is there for; where this passes no more, it may go."""
    datasets = pytest.importorskip("datasets")
    (curated / FILE_NAME).unlink()
    with pytest.raises(datasets.exceptions.DatasetGenerationError):
        datasets.load_dataset(str(curated), cache_dir=str(tmp_path / "cache"))


def test_webdataset_reads_its_shards(curated: Path) -> None:
    import webdataset

    found = webdataset.WebDataset(f"{curated}/{{000000..000001}}.tar", shardshuffle=False)
    assert [sample["__key__"] for sample in found] == KEYS


def test_wids_reads_its_index(curated: Path, tmp_path: Path) -> None:
    """wids came with webdataset up to 0.2."""
    wids = pytest.importorskip("wids", reason="wids is not installed: webdataset has it no more from 1.0 on")
    found = wids.ShardListDataset(str(curated / "shards.json"), cache_dir=str(tmp_path / "cache"), keep=True)
    assert len(found) == len(KEPT)
    assert [found[place]["__key__"] for place in range(len(found))] == KEYS
    assert found[len(KEPT) - 1][".txt"] == f"caption {KEPT[-1]}"


def test_open_clip_counts_and_reads_it(curated: Path) -> None:
    """Its own reader of sizes, and its own pipeline of images and captions (that of training needs webdataset 0.2)."""
    data = pytest.importorskip("open_clip_train.data", reason="open_clip is not installed")
    shards = f"{curated}/{{000000..000001}}.tar"
    assert data.get_dataset_size(shards) == (len(KEPT), 2)
    args = SimpleNamespace(val_data=shards, val_num_samples=None, batch_size=2, workers=0)
    loader = data.get_wds_dataset(args, to_tensor, False, tokenizer=lambda text: [text]).dataloader
    pairs = [(int(image[0]), text) for images, texts in loader for image, text in zip(images, texts, strict=True)]
    assert pairs == [(row, f"caption {row}") for row in KEPT]
    (curated / "sizes.json").unlink()  # then it looks for __len__
    assert data.get_dataset_size(shards) == (len(KEPT), 2)


def to_tensor(picture: Any) -> torch.Tensor:
    """The first pixel of a picture."""
    return torch.tensor([picture.getpixel((0, 0))[0]])


def test_a_card_may_be_edited_and_an_older_folder_has_none(curated: Path) -> None:
    """What a person adds to a card does not make the folder a faulty one."""
    card = curated / FILE_NAME
    assert '- split: train\n    path: "*.tar"' in card.read_text()
    card.write_text(card.read_text() + "\nOurs.\n")
    assert verify(curated) == []
    card.unlink()
    assert verify(curated) == []
