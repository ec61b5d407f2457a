"""Names: which shards a set has, in which order; how member names split; which are safe; how they are stored."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import EXTENSIONS, is_plain_key, keys
from webdataset.tariterators import base_plus_ext, group_by_keys

from shards.errors import Misuse, NotShards
from shards.io.shard_set import MAX_HOLES, locate, resolve
from shards.member_names import RESERVED, is_hidden, is_reserved, is_safe, is_utf8, split_name, storable


def touch(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes(1024))
    return folder


class TestResolve:
    def test_a_folder_is_walked_recursively_and_sorted_by_relative_path(self, tmp_path: Path) -> None:
        touch(tmp_path, "b.tar", "a/z.tgz", "a/y.tar.gz", "c.json", ".hidden.tar", "a/index.parquet")
        found = resolve(tmp_path)
        assert found.paths == ("a/y.tar.gz", "a/z.tgz", "b.tar")
        assert found.root == str(tmp_path)

    def test_suffixes_of_a_folder_count_in_any_case_and_what_is_not_read_is_named(self, tmp_path: Path) -> None:
        touch(tmp_path, "0.tar", "1.TAR", "2.Tar.GZ", "3.tar.zst", "a/4.tar.bz2", "5.TAR.XZ", "6.zst", ".7.tar.zst")
        found = resolve(tmp_path)
        assert (found.paths, found.passed_over.unread) == (
            ("0.tar", "1.TAR", "2.Tar.GZ"),
            ("3.tar.zst", "5.TAR.XZ", "a/4.tar.bz2"),
        )

    def test_a_folder_of_nothing_but_unread_shards_is_refused_by_their_name(self, tmp_path: Path) -> None:
        with pytest.raises(NotShards, match=r"passed over 2 unread shards \(0\.tar\.zst, 1\.tar\.zst\)"):
            resolve(touch(tmp_path, "0.tar.zst", "1.tar.zst"))

    def test_the_root_is_the_deepest_folder_that_all_shards_share(self, tmp_path: Path) -> None:
        touch(tmp_path, "deep/er/0.tar", "deep/er/x/1.tar")
        found = resolve(tmp_path)
        assert found.root == str(tmp_path / "deep" / "er")
        assert found.paths == ("0.tar", "x/1.tar")

    def test_a_single_tar_is_a_set_below_its_folder(self, tmp_path: Path) -> None:
        found = resolve(touch(tmp_path, "one.tar") / "one.tar")
        assert (found.root, found.paths, found.missing) == (str(tmp_path), ("one.tar",), ())

    def test_a_pattern_keeps_its_order_and_names_what_is_missing(self, tmp_path: Path) -> None:
        touch(tmp_path, "00.tar", "01.tar", "03.tar")
        found = resolve(f"{tmp_path}/{{03..00}}.tar")
        assert found.paths == ("03.tar", "01.tar", "00.tar")
        assert found.missing == ("02.tar",)

    def test_a_path_that_exists_literally_wins_over_a_pattern(self, tmp_path: Path) -> None:
        touch(tmp_path, "{0..1}.tar", "0.tar", "1.tar")
        assert resolve(tmp_path / "{0..1}.tar").paths == ("{0..1}.tar",)

    def test_a_list_keeps_its_order_relative_to_its_folder_with_patterns_and_holes(self, tmp_path: Path) -> None:
        touch(tmp_path, "s/0.tar", "s/1.tar", "s/{7,8}.tar")
        (tmp_path / "list.txt").write_text("s/1.tar\n\ns/{7,8}.tar\ns/{0,5}.tar\n")
        found = resolve(tmp_path / "list.txt")
        assert found.paths == ("1.tar", "{7,8}.tar", "0.tar")
        assert found.missing == ("5.tar",)

    def test_a_file_url_is_a_path(self, tmp_path: Path) -> None:
        touch(tmp_path, "a b.tar")
        assert resolve(f"file://{tmp_path}/a%20b.tar").paths == ("a b.tar",)

    def test_a_url_pattern_is_expanded_below_its_prefix(self) -> None:
        found = resolve("https://host/set/{a,b}/{00..01}.tar?token=x/y")
        assert found.root == "https://host/set/"
        assert found.paths == tuple(f"{s}/{n}.tar?token=x/y" for s in "ab" for n in ("00", "01"))
        assert locate(found.root, found.paths[0]) == "https://host/set/a/00.tar?token=x/y"

    def test_prefixes_are_shared_by_whole_folders_only(self) -> None:
        found = resolve("s3://bucket/{train1/0,train2/0}.tar")
        assert (found.root, found.paths) == ("s3://bucket/", ("train1/0.tar", "train2/0.tar"))

    def test_a_pipe_is_a_url(self) -> None:
        found = resolve("pipe:cat /data/{0..1}.tar", allow_pipe=True)
        assert found.root == "pipe:cat /data/"
        assert found.paths == ("0.tar", "1.tar")

    def test_nothing_there_is_an_error_that_says_what_may_be_named(self, tmp_path: Path) -> None:
        with pytest.raises(NotShards, match=r"no such shard; name a folder, a tar, a pattern"):
            resolve(tmp_path / "gone.tar")
        with pytest.raises(
            NotShards, match=r"no shard in this folder \(expected .tar or .tgz or .tar.gz, found none\)"
        ):
            resolve(tmp_path)

    def test_a_folder_of_pictures_says_how_to_make_shards_of_them(self, tmp_path: Path) -> None:
        touch(tmp_path, "a.jpg", "b/c.PNG", "notes.txt")
        said = f"found none; 2 image files); make shards of them first: curate pack imagefolder {tmp_path} --out"
        with pytest.raises(NotShards, match=re.escape(said)):
            resolve(tmp_path)

    def test_prose_is_no_list_of_shards(self, tmp_path: Path) -> None:
        """A line that names a file that is there, as a README's own may, does not make the others shards."""
        touch(tmp_path, "0.tar", "quickstart")
        (tmp_path / "README.md").write_text("# Title\n\nquickstart\nYou have a huge store.\n")
        with pytest.raises(NotShards, match=r"README.md: neither a tar nor a list of shards .*found 'You have a huge"):
            resolve(tmp_path / "README.md")
        for lines in ("0.tar\n1.TAR.GZ\n", "# only these\n{0..2}.tar\n", "quickstart\n0.tar\n"):
            (tmp_path / "list").write_text(lines)
            assert "0.tar" in resolve(tmp_path / "list").paths

    def test_a_malformed_an_endless_and_a_doubled_name_are_misuse(self, tmp_path: Path) -> None:
        with pytest.raises(Misuse, match="malformed pattern"):
            resolve(f"{tmp_path}/{{0..3.tar")
        with pytest.raises(Misuse, match=r"names too many shards \(expected at most 1000000"):
            resolve(f"{tmp_path}/{{0..99999999}}.tar")
        with pytest.raises(Misuse, match=r"0.tar: named twice; name every shard once"):
            resolve(f"{touch(tmp_path, '0.tar')}/{{0,0}}.tar")

    def test_a_file_name_that_is_not_utf8_is_misuse(self, tmp_path: Path) -> None:
        touch(tmp_path, b"caf\xe9.tar".decode("utf-8", "surrogateescape"))
        with pytest.raises(Misuse, match=r"caf.xe9.tar: its file name is not UTF-8; rename the shard"):
            resolve(tmp_path)


class TestHoles:
    def test_a_hole_in_a_folders_numbering_is_missing(self, tmp_path: Path) -> None:
        touch(tmp_path, "t/00000.tar", "t/00003.tar", "v/a-1.tar", "v/a-2.tar")
        assert resolve(tmp_path).missing == ("t/00001.tar", "t/00002.tar")

    @pytest.mark.parametrize(("last", "n_missing"), [(2 * MAX_HOLES + 1, 2 * MAX_HOLES), (2 * MAX_HOLES + 2, 0)])
    def test_numbers_with_too_many_holes_count_nothing(self, last: int, n_missing: int, tmp_path: Path) -> None:
        # Two shards: up to 2 * MAX_HOLES numbers between them may be missing.
        touch(tmp_path, "0000.tar", f"{last:04d}.tar")
        assert len(resolve(tmp_path).missing) == n_missing

    def test_side_files_and_other_widths_are_no_holes(self, tmp_path: Path) -> None:
        touch(tmp_path, "w1.tar", "w[12].tar", "w10.tar", "shard-{000..001}.tar")
        assert resolve(tmp_path).missing == ()


class TestSplit:
    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("train.v1/0001.Left.JPG", ("train.v1/0001", "left.jpg")),
            ("./000.jpg", ("./000", "jpg")),
            ("README", None),
            ("data/.hidden", None),
            ("data/._0.jpg", None),
            (".hidden", None),
            (".git/a.jpg", (".git/a", "jpg")),
            ("0.__KEY__", None),
            ("a/0.__row__", None),
            ("0.__key__.jpg", ("0", "__key__.jpg")),
            ("__meta__/0.jpg", None),
            ("a.b/c", None),
            ("0.", ("0", "")),
        ],
    )
    def test_the_key_ends_at_the_first_dot_of_the_base_name(self, name: str, expected: tuple[str, str] | None) -> None:
        assert split_name(name) == expected

    @settings(max_examples=1000)
    @given(st.text(st.sampled_from("ab./_\n é"), max_size=12))
    def test_every_name_splits_as_webdataset_splits_it_but_for_what_is_hidden(self, name: str) -> None:
        key, extension = base_plus_ext(name)
        if is_hidden(name):
            assert split_name(name) is None
        else:
            assert split_name(name) == (None if key is None else (key, extension.lower()))

    @pytest.mark.parametrize("extension", sorted(RESERVED - {"__row__"}))
    def test_a_reserved_extension_is_one_that_webdataset_does_not_give_back(self, extension: str) -> None:
        members = [{"fname": f"0.{end}", "data": b"x", "__url__": "", "__local_path__": ""} for end in ("a", extension)]
        if extension == "__bad__":
            assert list(group_by_keys(iter(members))) == []
            return
        with pytest.raises(ValueError, match="duplicate file name"):
            list(group_by_keys(iter(members)))

    @given(keys().filter(is_plain_key), EXTENSIONS)
    def test_key_and_extension_come_back(self, key: str, extension: str) -> None:
        assert split_name(f"{key}.{extension}") == (key, extension.lower())

    def test_hidden_names_are_told_from_names_without_an_extension(self) -> None:
        assert [is_hidden(name) for name in (".x", "a/.x", "__meta__/x", "README", "a/b")] == [True] * 3 + [False] * 2

    def test_reserved_names_are_told_in_any_case(self) -> None:
        names = ("a.__URL__", "d.v/a.__bad__", "a.__x__", "a.l.__key__", "__key__")
        assert [is_reserved(name) for name in names] == [True] * 2 + [False] * 3


class TestSafety:
    @pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../b", "a/..", "..", "a\0b"])
    def test_names_that_leave_their_folder_are_unsafe(self, name: str) -> None:
        assert not is_safe(name)

    @pytest.mark.parametrize("name", ["a", "./a", "a..b", "..a/b", "a/b..", "-rf", "$(touch x)", "*"])
    def test_odd_names_that_stay_are_safe(self, name: str) -> None:
        assert is_safe(name)


class TestStorable:
    def test_a_name_that_is_utf8_stays_as_it_is(self) -> None:
        assert storable("back\\slash é") == "back\\slash é"

    def test_bytes_that_are_not_utf8_and_backslashes_beside_them_are_escaped(self) -> None:
        assert storable(b"a\\b\xe7\xc3\xa9".decode("utf-8", "surrogateescape")) == "a\\\\b\\xe7é"

    @given(st.binary(max_size=20))
    def test_every_name_can_be_stored_and_keeps_its_bytes(self, raw: bytes) -> None:
        name = raw.decode("utf-8", "surrogateescape")
        stored = storable(name)
        stored.encode("utf-8")
        if is_utf8(name):
            assert stored.encode("utf-8") == raw
        else:
            assert b"".join(unescaped(stored)) == raw


def unescaped(stored: str) -> Iterator[bytes]:
    r"""The bytes that ``\xNN`` and ``\\`` stand for."""
    place = 0
    while place < len(stored):
        if stored[place] != "\\":
            yield stored[place].encode("utf-8")
            place += 1
        elif stored[place + 1] == "\\":
            yield b"\\"
            place += 2
        else:
            yield bytes.fromhex(stored[place + 2 : place + 4])
            place += 4
