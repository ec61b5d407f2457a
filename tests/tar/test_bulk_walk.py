"""Members taken in runs are those that single steps find: close or far, behind PAX headers or not, damaged or not."""

from __future__ import annotations

import tarfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import BODIES, TIMES, keys, tar_of
from tar_makers import END, faults, found, listed, member, names, pax
from walk_fuzz import no_runs, singly, walked

from shards.tar.bulk_walk import MAX_LOOKAHEAD, MIN_LOOKAHEAD, MemberRun, member_runs, next_lookahead
from shards.tar.header import BLOCK
from shards.tar.walk import walk, walk_runs


def assert_the_same_in_single_steps(tar: bytes) -> None:
    """The walk finds the same members, faults and headers where it takes no runs."""
    (parts, *rest), (slow_parts, *slow_rest) = walked(tar, member_runs), walked(tar, no_runs)
    assert not any(isinstance(part, MemberRun) for part in slow_parts)
    assert (singly(parts), rest) == (singly(slow_parts), slow_rest)


def test_runs_and_single_steps_give_the_same_members() -> None:
    files = [(f"{number:04d}.{ext}", bytes(number % 700)) for number in range(1200) for ext in ("jpg", "cls")]
    for mtime in (0, 0.5):
        tar = tar_of(files, tarfile.PAX_FORMAT, mtime)
        whole = list(walk_runs(tar, "x.tar"))
        assert all(isinstance(piece, MemberRun) for piece in whole)
        assert len(whole) >= 3  # 2,400 members or 4,800 headers, at most 1,024 headers a run
        # A prefix of the ustar form is left to the single steps; the other members stay plain.
        mixed = [("deep/" * 25 + "x.jpg", b"1"), *files[:5]]
        assert names(tar_of(mixed, tarfile.USTAR_FORMAT)) == [name for name, _ in mixed]


def test_the_header_bytes_are_the_same_however_the_tar_is_walked() -> None:
    tar = tar_of([("a.jpg", b"1" * 600), ("b.jpg", b"2")], tarfile.PAX_FORMAT, 0.5)
    read: list[bytes] = []
    list(walk(tar, "x.tar", lambda data: read.append(bytes(data))))
    # Two members: a PAX header, its body, the header, each a block; bodies of two blocks and one.
    assert b"".join(read) == tar[: 3 * BLOCK] + tar[5 * BLOCK : 8 * BLOCK]


@given(st.lists(st.sampled_from([0, 1, 600, 40_000]), min_size=1, max_size=40), TIMES)
def test_close_and_far_members_are_found_alike(sizes: list[int], mtime: float) -> None:
    tar = tar_of([(f"{number}.jpg", bytes(size)) for number, size in enumerate(sizes)], mtime=mtime)
    assert [(one.name, one.header, one.body, one.size) for one in found(tar)[0]] == listed(tar)


@settings(max_examples=200)
@given(
    st.lists(st.tuples(keys(), BODIES), min_size=1, max_size=12),
    TIMES,
    st.lists(st.tuples(st.integers(0, 40_000), st.integers(0, 255)), max_size=4),
)
def test_members_come_the_same_in_runs_and_in_single_steps_damaged_or_not(
    files: list[tuple[str, bytes]], mtime: float, damage: list[tuple[int, int]]
) -> None:
    tar = bytearray(tar_of(files, mtime=mtime))
    for place, value in damage:
        tar[place % len(tar)] = value
    assert_the_same_in_single_steps(bytes(tar))


@pytest.mark.parametrize("mtime", [0, 0.5])
def test_a_long_way_ahead_members_are_found_as_in_single_steps(mtime: float) -> None:
    # 3,000 headers or 6,000: more than the 1,360 after which the walk looks far ahead, along many chains at once.
    rng = np.random.default_rng(0)
    inner = tar_of([(f"{number}.jpg", bytes(700)) for number in range(400)])  # longer than chains begin apart
    sizes = rng.integers(0, 5_000, 3_000).tolist()
    files = [(f"{number:05d}.jpg", bytes(size)) for number, size in enumerate(sizes)]
    whole = tar_of(files, mtime=mtime)
    assert [one.header for one in found(whole)[0]] == [place for _, place, *_ in listed(whole)]
    assert max(len(piece.names) for piece in walk_runs(whole, "x.tar") if isinstance(piece, MemberRun)) >= 512
    assert_the_same_in_single_steps(whole)
    assert_the_same_in_single_steps(tar_of([*files[:2_000], ("inner.tar", inner), *files[2_000:]], mtime=mtime))
    assert_the_same_in_single_steps(tar_of([*files[:2_500], ("n" * 120, b"x"), *files[2_500:]], mtime=mtime))
    for member_number in (1_400, 2_500, 2_999):
        damaged = bytearray(whole)
        damaged[listed(whole)[member_number][2] - BLOCK + 3] ^= 1  # in the name: only the checksum tells
        assert faults(bytes(damaged))[0][0] == "corrupt-header"
        assert_the_same_in_single_steps(bytes(damaged))
        assert_the_same_in_single_steps(whole[: listed(whole)[member_number][2] + 1])


def test_a_member_begins_at_the_first_of_several_pax_headers() -> None:
    tar = (pax(b"mtime=1.5") + pax(b"mtime=2.5") + member(b"a.jpg", b"x")) * 3 + END
    assert [one.header for one in found(tar)[0]] == [0, 6 * BLOCK, 12 * BLOCK]  # two blocks each, header and body two
    assert_the_same_in_single_steps(tar)


def test_a_tar_inside_a_tar_is_one_member() -> None:
    inner = tar_of([(f"{number}.jpg", b"x") for number in range(20)])
    tar = tar_of([("0.tar", inner), ("1.jpg", b"y"), ("2.tar", inner)])
    assert names(tar) == ["0.tar", "1.jpg", "2.tar"]


def test_a_run_grows_where_members_are_plain_and_is_short_again_where_few_are() -> None:
    # A quarter of the headers in plain members is enough: behind a PAX header each, half of them are.
    assert next_lookahead(128, 32) == 512
    assert next_lookahead(128, 31) == MIN_LOOKAHEAD
    assert next_lookahead(MAX_LOOKAHEAD, MAX_LOOKAHEAD) == MAX_LOOKAHEAD
