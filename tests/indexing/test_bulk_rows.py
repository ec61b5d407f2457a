"""The fast half of a scan has the rows of the exact half, and gives up wherever that one has something to tell."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import BODIES, FORMATS, TIMES, Content, contents, tar_bytes, tar_of
from tar_makers import END, member

from shards.faults import Fault
from shards.indexing.bulk_rows import bulk_rows
from shards.indexing.content import count_images
from shards.indexing.lint import member_faults, sample_faults
from shards.indexing.sample import group_members
from shards.indexing.schema import rows_from_samples
from shards.tar.bulk_walk import MemberRun
from shards.tar.walk import FILE, FOLDER, Member, members_of, walk_runs

#: Names that meet, in all ways that the key's rule knows: case, folders, dots at either end, none at all, odd bytes.
STEMS = st.sampled_from(
    ["a", "b", "ab", "A", "d/a", "d.v/a", "d", "a.v/d", "d/b", "./a", "..", "../a", "/a", "d/..", "__m__", "__a"]
)
ENDS = st.sampled_from(
    ["jpg", "JPG", "png", "l.jpg", "r.jpg", "cls", "txt", "", "x/y.jpg", "\xe9.jpg", "a\nb.jpg", "..jpg"]
)
NAMES = st.one_of(
    st.builds("{}.{}".format, STEMS, ENDS), st.sampled_from(["a", "d/a", ".a", "d/.a", "n" * 96 + ".jpg"])
)
WANTED = st.sampled_from([None, "jpg", "JPG", "l.jpg", "txt"])


def parts_of(tar: bytes) -> list[MemberRun | Member]:
    return [piece for piece in walk_runs(tar, "x.tar") if not isinstance(piece, Fault)]


def exactly(parts: list[MemberRun | Member], wanted: str | None) -> tuple[pa.RecordBatch, Counter[str], list[Fault]]:
    """Rows, images and faults, member by member."""
    grouped = group_members(parts, {})
    faults = [*member_faults(parts, "x.tar", {}), *sample_faults(grouped, "x.tar", wanted)]
    return rows_from_samples(grouped.samples, wanted), count_images(grouped.samples, wanted, []), faults


def hold_equal(tar: bytes, wanted: str | None) -> bool:
    """Assert that both halves agree where the fast one does not give up; whether it did the work."""
    parts = parts_of(tar)
    fast = bulk_rows(parts, wanted)
    if fast is None:
        return False
    rows, images, faults = exactly(parts, wanted)
    assert faults == []
    fast[0].validate(full=True)
    assert (fast[0], fast[1]) == (rows, images)
    return True


@settings(max_examples=400)
@given(st.lists(st.tuples(NAMES, BODIES), max_size=7), FORMATS, TIMES, WANTED)
def test_names_of_every_kind_have_the_same_rows_in_both_halves(
    members: list[tuple[str, bytes]], tar_format: int, mtime: float, wanted: str | None
) -> None:
    hold_equal(tar_of(members, tar_format, mtime), wanted)


@given(contents(), FORMATS, TIMES, WANTED)
def test_samples_of_every_kind_have_the_same_rows_in_both_halves(
    samples: list[Content], tar_format: int, mtime: float, wanted: str | None
) -> None:
    hold_equal(tar_bytes(samples, tar_format, mtime), wanted)


@given(
    st.lists(st.text("abcXYZ019-+ ", min_size=1, max_size=9), unique=True, min_size=1, max_size=30),
    st.sampled_from(["", "folder/", "./", "a.b/c/"]),
    TIMES,
)
def test_what_nearly_every_shard_is_made_of_is_regular(keys: list[str], folder: str, mtime: float) -> None:
    samples = [Content(folder + key, {"JPG": b"image", "cls": b"7", "seg.npy": b""}) for key in keys]
    assert hold_equal(tar_bytes(samples, mtime=mtime), None)


@pytest.mark.parametrize(
    "names",
    [
        ["a.jpg", "b.jpg", "a.cls"],  # apart
        ["a.jpg", "b.jpg", "a.png"],
        ["a.jpg", "a.jpg"],  # an extension twice
        ["a.jpg", "a.JPG"],
        ["a.jpg", "a.png"],  # several images
        ["a.cls"],  # no image
        ["data.v1/0001.txt", "data.png"],  # the key of one ends where the folder of the other has its dot
        ["a.jpg", "a.__key__"],
        ["a.jpg", "a.__Row__"],
        ["d/a.jpg", "d/._a.jpg"],
        ["a.jpg", "README"],  # no key
        ["a.jpg", ".hidden"],
        [".jpg"],
        ["d/.jpg"],
        ["a.jpg", "__meta__/x.jpg"],
        ["../a.jpg"],  # unsafe
        ["/a.jpg"],
        ["caf\xe9.jpg"],
        ["d\ne/a.jpg"],
    ],
)
def test_the_fast_half_gives_up_on(names: list[str]) -> None:
    assert bulk_rows(parts_of(tar_of([(name, b"x") for name in names])), None) is None


def test_an_empty_image_is_left_to_the_exact_half_and_an_empty_sidecar_is_not() -> None:
    assert not hold_equal(tar_of([("a.jpg", b""), ("a.cls", b"1")]), None)
    assert hold_equal(tar_of([("a.jpg", b"1"), ("a.cls", b"")]), None)


def test_rubbish_behind_the_end_of_a_name_is_left_to_the_exact_half() -> None:
    tar = member(b"a.jpg", b"x") + member(b"a.cls", b"1") + member(b"a.cls\0b", b"2") + END
    assert not hold_equal(tar, None)  # an extension twice, which the rubbish hides


def test_a_gap_inside_a_sample_is_left_to_the_exact_half() -> None:
    tar = member(b"a.jpg", b"x") + member(b"d", kind=b"5") + member(b"a.cls", b"1") + END
    assert not hold_equal(tar, None)


def test_the_extension_that_is_wanted_wins_over_one_that_only_ends_with_it() -> None:
    assert hold_equal(tar_of([("a.l.jpg", b"1"), ("a.jpg", b"2")]), "jpg")


def test_folders_are_passed_over_and_other_members_are_left_to_the_exact_half() -> None:
    parts = parts_of(tar_of([("a.jpg", b"x")]))
    folder = Member("d", FOLDER, 0, 512, 0, 512, "", False)
    assert bulk_rows([folder, *parts], None) == bulk_rows(parts, None)
    assert bulk_rows([*parts, folder._replace(name="caf\xe9")], None) is None
    (run,) = parts
    assert isinstance(run, MemberRun)
    assert [member.kind for member in members_of(run)] == [FILE]
    assert bulk_rows(list(members_of(run)), None) is None
    assert bulk_rows([folder], None) is None


def test_samples_go_on_from_one_run_to_the_next() -> None:
    # Runs are of 16, 32, 64 ... members, and these samples of three.
    tar = tar_of([(f"{number:04d}.{ext}", b"x") for number in range(400) for ext in ("jpg", "cls", "txt")])
    assert len(parts_of(tar)) > 3
    assert hold_equal(tar, None)


def test_names_that_fill_their_field_are_read_whole() -> None:
    assert hold_equal(tar_of([("n" * 96 + ".jpg", b"1"), ("m" * 96 + ".jpg", b"2")]), None)
