"""Domains beside the shards: what is written is what is read, by (shard, key), and what is missing is named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_makers import make_store, numbered

from shards.errors import Misuse, ShardError
from shards.indexing import domains

NAMES = ("digits", "letters", "clothes")


@pytest.fixture
def index(tmp_path: Path):
    """Two shards of three and two samples; the key 000001 is in both."""
    return make_store(tmp_path / "store", {"a.tar": numbered(0, 3), "b.tar": numbered(1, 2)})


CODES = np.array([0, 1, 0, 2, 2], np.int32)


def place(index):
    return Path(index.root) / domains.FILE_NAME


def table(index, codes=CODES):
    names = [NAMES[code] for code in codes]
    return index.table.select(["shard", "key"]).append_column("domain", pa.array(names))


def write(index, lines, version=1):
    """As a person would, with any tool that keeps the footer."""
    footer = {b"curate.domains": json.dumps({"version": version}).encode()}
    pq.write_table(lines.replace_schema_metadata(footer), place(index))


def test_what_is_saved_is_loaded(index):
    """Names, and a code for every row; the file opens in any reader as three columns of strings."""
    domains.save(index, domains.Domains(NAMES, CODES), place(index))
    found = domains.load(index)
    assert [found.names[code] for code in found.codes] == [NAMES[code] for code in CODES]
    assert pq.read_table(place(index)).to_pylist()[1] == {"shard": "a.tar", "key": "000001", "domain": "letters"}
    first = place(index).read_bytes()
    domains.save(index, domains.Domains(NAMES, CODES), place(index))
    assert place(index).read_bytes() == first


@given(st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1))
def test_any_line_of_text_is_a_name(name):
    """In every script."""
    if name not in (".", ".."):
        domains.check_name(name, "here")


@pytest.mark.parametrize("name", ["", "..", "a\tb", "a\u2028b", "\udc80"])
def test_a_name_that_is_no_line_of_text_is_not_saved(index, name):
    """Where and what are said in one line, nothing is written."""
    with pytest.raises(Misuse, match=r"domains\.parquet: no name of a domain \(expected a line of UTF-8") as caught:
        domains.save(index, domains.Domains((name,), np.zeros(5, np.int32)), place(index))
    assert ascii(name) in str(caught.value)
    assert not place(index).exists()


def test_a_part_that_is_none_is_not_printed():
    """Neither what is expected nor what is found."""
    assert str(ShardError("p", found=0)) == "p (found 0)"
    assert str(ShardError("p", expected="x", todo="t")) == "p (expected x); t"
    assert str(ShardError("p", expected="x", found="y")) == "p (expected x, found y)"


def test_a_domain_is_asked_for_by_name(index):
    """The rows of it; an unknown one is answered with those there are."""
    domains.save(index, domains.Domains(NAMES, CODES), place(index))
    assert domains.load(index).own("clothes").tolist() == [False, False, False, True, True]
    with pytest.raises(Misuse, match=r"expected clothes, digits, letters, found shoes\); name one of these"):
        domains.load(index).own("shoes")


@settings(deadline=None, max_examples=25)
@given(order=st.permutations(range(5)))
def test_lines_may_stand_in_any_order(tmp_path_factory, order):
    """They are found by shard and key together: the key 000001 is in both shards."""
    folder = tmp_path_factory.mktemp("store")
    index = make_store(folder, {"a.tar": numbered(0, 3), "b.tar": numbered(1, 2)})
    write(index, table(index).take(pa.array(order)))
    found = domains.load(index)
    assert [found.names[code] for code in found.codes] == [NAMES[code] for code in CODES]


def test_samples_that_the_store_has_not_are_passed_over(index):
    """A file of a whole store serves a part of it."""
    write(index, table(index))
    part = replace(index, table=index.table.slice(3))
    assert domains.load(part).own("clothes").tolist() == [True, True]


def test_a_sample_without_a_domain_is_named(index):
    """How many there are, and the first."""
    write(index, table(index).slice(0, 3))
    with pytest.raises(ShardError, match=r"b\.tar, 000001: domains\.parquet has no domain for 2 samples of the store"):
        domains.load(index)


def test_a_sample_with_two_domains_is_refused(index):
    """Which of them counts cannot be known."""
    write(index, pa.concat_tables([table(index), table(index, CODES[::-1]).slice(2, 1)]))
    with pytest.raises(ShardError, match="a sample has two domains"):
        domains.load(index)


def test_a_missing_file_says_where_one_comes_from(index):
    """Domains are no default."""
    with pytest.raises(
        ShardError, match=r"domains\.parquet: no domains are on record .*; `curate pack idx` and `pack decathlon` write"
    ):
        domains.load(index)


def test_a_store_behind_a_url_has_no_domains(index):
    """They are read beside local shards only."""
    with pytest.raises(ShardError, match="domains are read beside local shards only"):
        domains.load(replace(index, root="https://example.org/store"))


def test_what_is_no_file_of_domains_is_refused(index):
    """Cut, another table, another version."""
    domains.save(index, domains.Domains(NAMES, CODES), place(index))
    whole = place(index).read_bytes()
    place(index).write_bytes(whole[:-30])
    with pytest.raises(ShardError, match="not a whole file of domains"):
        domains.load(index)
    pq.write_table(table(index), place(index))
    with pytest.raises(ShardError, match=r"not a whole file of domains.*curate.domains"):
        domains.load(index)
    write(index, table(index).drop_columns(["domain"]))
    with pytest.raises(ShardError, match=r"no whole file of domains.*no column domain"):
        domains.load(index)
    write(index, table(index), version=2)
    with pytest.raises(ShardError, match=r"unknown format of domains \(expected 1, found 2\)"):
        domains.load(index)


def test_columns_are_plain_strings_as_a_ledgers(index, tmp_path):
    """So that the two join in Polars, which takes a dictionary for something else than a string."""
    domains.save(index, domains.Domains(NAMES, CODES), tmp_path / "domains.parquet")
    found = pq.read_table(tmp_path / "domains.parquet")
    assert [str(kind) for kind in found.schema.types] == ["string"] * 3
    assert found["domain"].to_pylist() == [NAMES[code] for code in CODES]
