"""The dataset card of a curated folder: Hugging Face's `datasets` reads in it which of the files are the data.

Without one, `load_dataset` takes every file for data, the JSON and Parquet beside the shards among them, and fails.
The card is the only file of the folder that may be edited: it is in no checksum.
"""

from __future__ import annotations

from pathlib import Path

from shards.indexing.index import Index
from shards.io.atomic import atomic_write_unsynced

FILE_NAME = "README.md"

_CARD = """\
---
configs:
- config_name: default
  data_files:
  - split: train
    path: "*.tar"
---

# Curated shards

{samples:,} samples in {shards:,} WebDataset shards, the samples kept of a larger store, byte for byte.

| file | for |
|---|---|
| `*.tar` | the samples, for any reader of WebDataset shards |
| this one | `datasets.load_dataset` on this folder: the lines at its top say that the shards are the data |
| `sizes.json`, `__len__` | open_clip: the number of samples |
| `shards.json` | wids: samples by number |
| `index.parquet` | where each sample lies, and what it was called in the store |
| `manifest.parquet` | the samples by their names in the store, and the rule that kept them |
| `curated.json` | the marker: checksums of all of it, for `curate verify` |
"""


def card(index: Index) -> str:
    """The text of the card of the shards of ``index``."""
    return _CARD.format(samples=len(index), shards=len(index.shards))


def write_card(index: Index, folder: Path) -> None:
    """Write ``README.md`` into ``folder``, which the caller syncs."""
    with atomic_write_unsynced(folder / FILE_NAME) as file:
        file.write(card(index).encode())
