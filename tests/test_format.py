"""The page on the formats of shards says what the code does: its tables and its example against real output."""

from __future__ import annotations

import json
import re
from pathlib import Path

from shards.faults import KINDS
from shards.indexing.index import SCHEMA, build
from shards.indexing.index_file import load, save
from shards.io.shard_set import resolve
from shards.member_names import IMAGE_SUFFIXES
from shards.rewriting import card, marker
from shards.tar.writer import write_shards

TEXT = (Path(__file__).resolve().parents[1] / "docs" / "formats" / "shards.md").read_text("utf-8")


def section(title: str) -> str:
    """The text below a heading, up to the next."""
    return re.split(r"^## ", TEXT.split(f"## {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def first_cells(text: str) -> list[str]:
    """The words in back quotes in the first column of a table."""
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_the_columns_listed_are_those_of_an_index() -> None:
    assert first_cells(section("index.parquet")) == SCHEMA.names


def test_the_kinds_of_fault_listed_are_those_that_are_told_in_their_order() -> None:
    assert first_cells(section("index.report.json")) == list(KINDS)


def test_the_suffixes_listed_are_those_of_images() -> None:
    listed = re.search(r"last suffix is one of `([^`]+)`", TEXT)
    assert listed is not None
    assert set(listed[1].split()) == IMAGE_SUFFIXES


def test_the_example_row_and_shard_are_what_an_index_of_these_samples_holds(tmp_path: Path) -> None:
    # The samples that the text names: 700 bytes take two blocks behind their header, a label takes one.
    samples = [[(f"train/000{number}.jpg", bytes(700)), (f"train/000{number}.cls", b"3")] for number in range(2)]
    write_shards(tmp_path, samples)
    save(build(resolve(tmp_path))[0], tmp_path / "index.parquet")
    index = load(tmp_path / "index.parquet")
    row, shard = (json.loads(line) for line in re.findall(r"^\{.*\}$", section("index.parquet"), re.MULTILINE))
    assert index.table.to_pylist()[1] == row
    assert index.shards[0].record() == shard


def test_the_files_listed_are_those_of_a_curated_set() -> None:
    listed = first_cells(section("Curated shard set"))
    ours = {marker.MARKER, marker.IN_PROGRESS, marker.MANIFEST, card.FILE_NAME}
    assert ours | {"index.parquet", "sizes.json", "__len__", "shards.json"} < set(listed)
