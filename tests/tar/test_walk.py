"""The walk over a tar finds what `tarfile` finds on healthy tars, and goes on and tells where that one gives up."""

from __future__ import annotations

import io
import tarfile
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import BODIES, FORMATS, TIMES, keys, tar_of
from tar_makers import END, faults, found, header, listed, member, names, padded, pax, summed

from shards.faults import Fault
from shards.tar import header as headers
from shards.tar.header import BLOCK, BadHeader
from shards.tar.sniff import not_a_tar_fault
from shards.tar.walk import MAX_EXTENSION_BYTES, MAX_GLOBAL_NAME, next_header


class TestAgainstTarfile:
    @given(st.lists(st.tuples(keys(), BODIES), max_size=8), FORMATS, TIMES)
    def test_a_healthy_tar_has_the_members_that_tarfile_lists(
        self, files: list[tuple[str, bytes]], tar_format: int, mtime: float
    ) -> None:
        tar = tar_of(files, tar_format, mtime)
        members, wrong = found(tar)
        assert wrong == []
        assert [(one.name, one.header, one.body, one.size) for one in members] == listed(tar)
        assert [tar[one.body : one.body + one.size] for one in members] == [body for _, body in files]

    def test_every_kind_of_member_has_the_kind_and_place_that_tarfile_gives_it(self) -> None:
        packed = io.BytesIO()
        kinds = {
            tarfile.DIRTYPE: "folder",
            tarfile.SYMTYPE: "symlink",
            tarfile.LNKTYPE: "hardlink",
            tarfile.FIFOTYPE: "fifo",
            tarfile.CHRTYPE: "device",
            tarfile.BLKTYPE: "device",
            b"V": "other",
            tarfile.CONTTYPE: "file",
            tarfile.AREGTYPE: "file",
        }
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
            for number, kind in enumerate(kinds):
                info = tarfile.TarInfo(f"{number}-{'long' * 40}")
                info.type, info.linkname = kind, "target" * 30 if kind in (b"1", b"2") else ""
                archive.addfile(info)
        tar = packed.getvalue()
        members, _ = found(tar)
        assert [one.kind for one in members] == list(kinds.values())
        assert [(one.name, one.header, one.body, one.size) for one in members] == listed(tar)
        assert [one.link for one in members if one.link] == ["target" * 30] * 2


class TestForms:
    def test_numbers_are_octal_between_spaces_or_base_256(self) -> None:
        assert headers.number(b"        14 \0") == 12
        assert headers.number(b"0000014\0") == 12
        assert headers.number(bytes(12)) == 0
        assert headers.number(b"\x80" + (9 << 30).to_bytes(11, "big")) == 9 << 30
        assert headers.number(b"\xff" * 12) == -1

    @pytest.mark.parametrize("field", [b"-0000000001\0", b"0x000000001\0", b"00000000_10\0", b"9\0", b"1 2\0"])
    def test_anything_else_is_no_number(self, field: bytes) -> None:
        with pytest.raises(BadHeader, match="not a number"):
            headers.number(field)

    def test_the_checksum_may_be_of_signed_bytes(self) -> None:
        block = header(b"caf\xe9.jpg")
        assert headers.checksum_holds(summed(block, signed=True))
        assert headers.checksum_holds(summed(block))
        wrong = bytearray(block)
        wrong[0] ^= 1
        assert not headers.checksum_holds(bytes(wrong))

    def test_a_base_256_size_is_read(self) -> None:
        tar = header(b"a.txt", size_field=b"\x80" + bytes(10) + b"\x03") + padded(b"abc") + END
        assert [(one.name, one.size) for one in found(tar)[0]] == [("a.txt", 3)]

    @pytest.mark.parametrize("kind", [b"x", b"X"])
    def test_a_pax_path_and_size_win_over_the_header(self, kind: bytes) -> None:
        tar = pax(b"path=long/name.jpg", b"size=3", kind=kind) + header(b"short", 0) + padded(b"abc") + END
        (only,), wrong = found(tar)
        assert (only.name, only.header, only.body, only.size, wrong) == ("long/name.jpg", 0, 1536, 3, [])

    def test_a_global_path_names_members_until_it_is_taken_back(self) -> None:
        tar = pax(b"path=all.jpg", kind=b"g") + member(b"0.jpg") + pax(b"path=own.jpg") + member(b"1.jpg")
        tar += pax(b"path=", kind=b"g") + member(b"2.jpg") + END
        members, _ = found(tar)
        assert [(one.name, one.borrowed) for one in members] == [
            ("all.jpg", True),
            ("own.jpg", False),
            ("2.jpg", False),
        ]
        assert members[0].header == 2 * BLOCK  # the global header belongs to no member

    def test_a_global_comment_borrows_nothing(self) -> None:
        (only,), _ = found(pax(b"comment=0123", kind=b"g") + member(b"0.jpg") + END)
        assert not only.borrowed

    @pytest.mark.parametrize(
        "records",
        [
            [b"GNU.sparse.size=1048576", b"GNU.sparse.numblocks=0"],
            [b"GNU.sparse.map=0,1", b"GNU.sparse.size=9", b"GNU.sparse.name=real.bin"],
            [b"GNU.sparse.major=1", b"GNU.sparse.minor=0", b"GNU.sparse.name=real.bin"],
        ],
    )
    def test_every_pax_sparse_form_is_sparse(self, records: list[bytes]) -> None:
        (only,), _ = found(pax(*records) + member(b"packed", b"x") + END)
        assert only.kind == "sparse"
        assert only.name == ("real.bin" if len(records) == 3 else "packed")

    def test_an_old_gnu_sparse_map_that_goes_on_is_no_body(self) -> None:
        first = bytearray(header(b"0.bin", 4, b"S"))
        first[482] = 1
        going_on = bytearray(BLOCK)
        going_on[504] = 1
        tar = summed(bytes(first)) + bytes(going_on) + bytes(BLOCK) + padded(b"body") + member(b"1.jpg") + END
        sparse, plain = found(tar)[0]
        assert (sparse.kind, sparse.body, sparse.size, plain.header) == ("sparse", 3 * BLOCK, 4, 4 * BLOCK)

    def test_the_times_of_a_gnu_header_are_no_prefix_and_a_ustar_prefix_is_one(self) -> None:
        block = bytearray(header(b"a.jpg"))
        block[345:357] = b"14524770412\0"
        assert names(summed(bytes(block)) + END) == ["14524770412/a.jpg"]
        block[257:265] = b"ustar  \0"
        assert names(summed(bytes(block)) + END) == ["a.jpg"]

    @pytest.mark.parametrize("kind", [b"1", b"2", b"5", b"6"])
    def test_links_folders_and_devices_have_no_body_whatever_their_size_says(self, kind: bytes) -> None:
        tar = member(b"a.jpg", b"x") + header(b"b.jpg", 600, kind, b"a.jpg") + member(b"c.jpg") + END
        assert names(tar) == ["a.jpg", "b.jpg", "c.jpg"] == [name for name, *_ in listed(tar)]
        assert [one.size for one in found(tar)[0]] == [1, 0, 0]

    def test_a_name_field_ends_at_its_first_nul(self) -> None:
        assert names(member(b"a.jpg\0rubbish") + END) == ["a.jpg"]


class TestDamage:
    def test_after_a_bad_checksum_the_walk_goes_on_at_the_next_valid_header(self) -> None:
        parts = [bytearray(member(f"{number}.jpg".encode(), b"x" * 700)) for number in range(3)]
        parts[1][150] ^= 1
        tar = b"".join(bytes(part) for part in parts) + END
        assert names(tar) == ["0.jpg", "2.jpg"]
        assert faults(tar) == [("corrupt-header", 3 * BLOCK)]
        assert "bad header checksum at byte 1536" in found(tar)[1][0].detail

    def test_a_negative_size_is_damage(self) -> None:
        tar = member(b"0.jpg") + header(b"1.jpg", size_field=b"\xff" * 11 + b"\0") + member(b"2.jpg") + END
        assert names(tar) == ["0.jpg", "2.jpg"]
        assert "negative size -256" in found(tar)[1][0].detail

    def test_a_size_that_is_no_number_is_damage(self) -> None:
        tar = member(b"0.jpg") + header(b"1.jpg", size_field=b"00000000003X") + padded(b"abc") + member(b"2.jpg") + END
        assert names(tar) == ["0.jpg", "2.jpg"]
        assert "not a number" in found(tar)[1][0].detail

    def test_a_huge_size_is_a_cut_member_and_nothing_is_allocated(self) -> None:
        tar = member(b"0.jpg") + header(b"1.jpg", size_field=b"\x80" + (1 << 80).to_bytes(11, "big")) + b"rest"
        assert names(tar) == ["0.jpg"]
        (cut,) = found(tar)[1]
        assert (cut.kind, cut.key, cut.offset) == ("truncated", "1", BLOCK)
        assert f"1.jpg (4 of {1 << 80} bytes)" in cut.detail

    def test_an_extension_larger_than_any_name_is_damage(self) -> None:
        tar = header(b"x", MAX_EXTENSION_BYTES + 1, b"x") + member(b"1.jpg") + END
        assert names(tar) == ["1.jpg"]
        assert "extension header of 16777217 bytes" in found(tar)[1][0].detail

    @pytest.mark.parametrize(
        "body", [b"9 path=a.jpg\n", b"nonsense", b"999 path=a\n", b"2 x=y\n", b"20 mtime=1700000000X"]
    )
    def test_a_pax_record_whose_length_does_not_hold_is_damage(self, body: bytes) -> None:
        tar = member(b"0.jpg") + member(b"x", body, b"x") + member(b"1.jpg") + END
        assert faults(tar) == [("corrupt-header", BLOCK)]
        assert "PAX record" in found(tar)[1][0].detail

    def test_an_extension_without_a_member_is_told(self) -> None:
        tar = member(b"0.jpg") + pax(b"path=lost.jpg") + END
        assert faults(tar) == [("corrupt-header", BLOCK)]
        assert "an extension header without a member at byte 512" in found(tar)[1][0].detail

    def test_the_walk_goes_on_behind_an_extension_that_says_nothing_and_not_inside_it(self) -> None:
        tar = member(b"x", b"nonsense".ljust(BLOCK) + member(b"inner.jpg"), b"x") + member(b"1.jpg") + END
        assert names(tar) == ["1.jpg"]
        assert faults(tar) == [("corrupt-header", 0)]

    def test_a_global_name_that_no_file_system_takes_is_damage(self) -> None:
        longest, longer = (pax(b"path=" + b"p" * n, kind=b"g") for n in (MAX_GLOBAL_NAME, MAX_GLOBAL_NAME + 1))
        assert names(longest + member(b"1.jpg") + END) == ["p" * MAX_GLOBAL_NAME]
        assert names(longer + member(b"1.jpg") + END) == ["1.jpg"]
        assert faults(longer + member(b"1.jpg") + END) == [("corrupt-header", 0)]

    def test_what_follows_the_end_marker_is_walked_and_told_once(self) -> None:
        tar = member(b"0.jpg") + END + member(b"1.jpg") + member(b"2.jpg") + END
        assert names(tar) == ["0.jpg", "1.jpg", "2.jpg"]
        assert faults(tar) == [("data-after-end", 3 * BLOCK)]
        assert "2 more members" in found(tar)[1][0].detail

    def test_rubbish_after_the_end_marker_is_told_and_yields_nothing(self) -> None:
        tar = member(b"0.jpg") + END + b"rubbish " * 128
        assert names(tar) == ["0.jpg"]
        assert faults(tar) == [("data-after-end", 3 * BLOCK)]

    @pytest.mark.parametrize(("n_zero_blocks", "kinds"), [(0, ["no-end-marker"]), (1, ["no-end-marker"]), (2, [])])
    def test_the_end_marker_is_two_zero_blocks(self, n_zero_blocks: int, kinds: list[str]) -> None:
        tar = member(b"0.jpg") + bytes(n_zero_blocks * BLOCK)
        assert [kind for kind, _ in faults(tar)] == kinds

    def test_a_cut_at_any_byte_keeps_the_whole_members_and_is_told(self) -> None:
        whole = tar_of([("a.jpg", b"1" * 600), ("b.jpg", b"2" * 30), ("c.jpg", b"3")], tarfile.PAX_FORMAT, 0.5)
        members, _ = found(whole)
        for n_bytes in range(1, members[-1].end + 2 * BLOCK, 13):
            kept, wrong = found(whole[:n_bytes])
            complete = [one for one in members if one.body + one.size <= n_bytes]
            # Padding that is cut is no loss, but told; the member ends with the file then.
            assert kept == [one._replace(end=min(one.end, n_bytes)) for one in complete]
            assert [fault.kind in ("truncated", "no-end-marker") for fault in wrong] == [True]

    @settings(max_examples=300)
    @given(st.data())
    def test_no_damage_breaks_the_walk_or_leaves_the_buffer(self, data: st.DataObject) -> None:
        tar = bytearray(tar_of([("a.jpg", b"1" * 600), ("b" * 120 + ".jpg", b"2"), ("c.jpg", b"3")], mtime=0.5))
        for _ in range(data.draw(st.integers(1, 6))):
            tar[data.draw(st.integers(0, 7000))] = data.draw(st.integers(0, 255))
        members, _ = found(bytes(tar[: data.draw(st.integers(0, len(tar)))]))
        place = 0
        for one in members:
            assert place <= one.header < one.body <= one.body + one.size <= one.end <= len(tar)
            place = one.end


class TestRefusal:
    @pytest.mark.parametrize(
        ("data", "kind", "words"),
        [
            (b"", "truncated", "0 bytes, not a tar archive"),
            (b"PK\x03\x04" + bytes(600), "not-a-tar", "a zip file"),
            (b"version https://git-lfs.github.com/spec/v1\n", "not-a-tar", "Git LFS pointer"),
            (b"<!DOCTYPE html>", "not-a-tar", "markup"),
            (b"x" * 4096, "not-a-tar", "no header in it"),
        ],
    )
    def test_what_is_no_tar_is_told_by_its_beginning(self, data: bytes, kind: str, words: str) -> None:
        fault = not_a_tar_fault(data, "x.tar")
        assert fault is not None
        assert (fault.kind, fault.shard) == (kind, "x.tar")
        assert words in fault.detail

    @pytest.mark.parametrize("data", [bytes(10240), member(b"a.jpg"), b"damaged".ljust(BLOCK, b"?") + member(b"a.jpg")])
    def test_an_empty_tar_and_one_with_a_damaged_beginning_are_tars(self, data: bytes) -> None:
        assert not_a_tar_fault(data, "x.tar") is None


def test_the_next_header_is_found_at_block_boundaries_only() -> None:
    block = member(b"a.jpg")
    assert next_header(bytes(BLOCK) + block, 0) == BLOCK
    assert next_header(bytes(100) + block + bytes(412), 0) == 2 * BLOCK


def test_a_fault_of_an_unknown_kind_cannot_be_made() -> None:
    fault = Fault("truncated", "x.tar", None, None, "cut")
    with pytest.raises(ValueError, match="odd: not a kind of fault"):
        replace(fault, kind="odd")
