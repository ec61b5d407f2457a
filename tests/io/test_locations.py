"""Where things are read from: what a person names, never what a file says; what waits without end; what is no text."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toyset
from click.testing import CliRunner
from index_makers import THREE, indexed, kinds, picture, put

import shards
from curate.cli import curate
from curate.config.schema import from_options, read_options, to_options
from curate.experiments.baselines.against import store_of
from curate.ledger import ledger
from curate.types import Beliefs, Stamp
from shards.errors import Error, Misuse, NotShards, RootDiffers, ShardError, StoreFailed, Unfinished
from shards.indexing import index_file
from shards.indexing.scan import scan_shard
from shards.io import patterns, remote, shard_set
from shards.io.byte_ranges import OpenShards
from shards.io.shard_set import resolve
from shards.packing.imagefolder import pack_folder
from shards.rewriting.exports import export_for
from shards.rewriting.manifest import read_manifest
from shards.rewriting.rewrite import rewrite
from shards.store import open_index


def changed(path: Path, **footer: object) -> None:
    """An index with other fields in its footer."""
    table = pq.read_table(path, partitioning=None)
    held = json.loads(table.schema.metadata[b"curate.index"]) | footer
    pq.write_table(table.replace_schema_metadata({b"curate.index": json.dumps(held)}), path)


@contextmanager
def serving(*answers: bytes, stall: bool = False) -> Iterator[str]:
    """A server on this machine that answers so, in turn, whatever it is asked, and its URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        held: list[socket.socket] = []

        def serve() -> None:
            for answer in answers:
                connection, _ = server.accept()
                held.append(connection)
                connection.recv(65536)
                connection.sendall(answer)
                if not stall:
                    connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        for connection in held:
            connection.close()


def response(body: bytes, length: int | None = None) -> bytes:
    return b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % (length or len(body)) + body


class TestIndexes:
    """An index never says where to read."""

    def test_a_command_in_the_index_of_a_curated_folder_is_not_run(self, tmp_path: Path) -> None:
        store = toyset.indexed(toyset.make_store(tmp_path / "store", 20))
        rewrite(store, store.table.select(["shard", "key"]), tmp_path / "out")
        changed(tmp_path / "out" / "index.parquet", root=f"pipe:touch {tmp_path}/ran; cat {tmp_path}/out/")
        with pytest.raises(RootDiffers, match=rf"expected {tmp_path}/out, found pipe:touch"):
            export_for(tmp_path / "out", dali=True, datacomp=True)
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize("spec", ["http://127.0.0.1:9/{0..1}.tar", "STORE"])
    def test_an_index_of_another_root_than_the_store_is_refused(self, tmp_path: Path, spec: str) -> None:
        put(tmp_path, "s/0.tar", THREE)
        index_file.save(indexed(tmp_path / "s")[0], tmp_path / "i.parquet")
        changed(tmp_path / "i.parquet", root=f"pipe:touch {tmp_path}/ran; cat {tmp_path}/s/")
        with pytest.raises(RootDiffers, match=r"i\.parquet: an index of other shards \(expected .*, found pipe:touch"):
            open_index(spec.replace("STORE", str(tmp_path / "s")), tmp_path / "i.parquet")
        assert not (tmp_path / "ran").exists()

    def test_the_index_a_run_keeps_serves_its_store_where_that_is_now(self, tmp_path: Path) -> None:
        put(tmp_path, "s/0.tar", THREE)
        before = open_index(str(tmp_path / "s"), cache_path=tmp_path / "kept.parquet")
        kept = (tmp_path / "kept.parquet").read_bytes()
        (tmp_path / "s").rename(tmp_path / "moved")
        after = open_index(str(tmp_path / "moved"), cache_path=tmp_path / "kept.parquet")
        assert (after.fingerprint, after.root) == (before.fingerprint, str(tmp_path / "moved"))
        assert (tmp_path / "kept.parquet").read_bytes() == kept

    @pytest.mark.parametrize("path", ["../x.tar", "/etc/passwd", "", "a/..", ".", "x\0.tar"])
    def test_a_shard_outside_the_root_is_refused(self, tmp_path: Path, path: str) -> None:
        put(tmp_path, "0.tar", THREE)
        index_file.save(indexed(tmp_path)[0], tmp_path / "index.parquet")
        shard = {"path": path, "size": 1, "checksum": "", "gzip": False, "borrows": False}
        changed(tmp_path / "index.parquet", shards=[shard])
        with pytest.raises(ShardError, match="its content is no index"):
            index_file.load(tmp_path / "index.parquet")


class TestOutOfReach:
    """A server that is out of reach says nothing of a shard; and of its URL messages say no query."""

    def test_it_is_not_passed_over_as_a_bad_shard(self, tmp_path: Path) -> None:
        unreachable = "http://127.0.0.1:9/{0..1}.tar?sig=secret"
        with pytest.raises(StoreFailed, match=r"cannot be opened .*[Rr]efused") as error:
            shards.index(unreachable, tmp_path / "i.parquet", skip_bad=True)
        assert "secret" not in str(error.value)
        with serving(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n") as url:
            assert scan_shard(f"{url}/", "1.tar").faults[0].kind == "not-a-tar"

    def test_what_could_be_left_out_is_said_where_something_is_left(self, tmp_path: Path) -> None:
        put(tmp_path, "0.tar", THREE)
        (tmp_path / "1.tar").write_bytes(b"no tar")
        with pytest.raises(
            NotShards, match=r"fetch them again, or index with --skip-bad-shards to go on without them$"
        ):
            shards.index(tmp_path)
        (tmp_path / "0.tar").unlink()
        with pytest.raises(NotShards, match=r"fetch them again$"):
            shards.index(tmp_path, skip_bad=True)


class TestCommands:
    """``pipe:`` runs only where a person on the command line lets it."""

    def test_it_has_to_be_allowed(self, tmp_path: Path) -> None:
        put(tmp_path, "0.tar", THREE)
        (tmp_path / "list.txt").write_text(f"pipe:touch {tmp_path}/ran; cat {tmp_path}/0.tar\n")
        for spec in (f"pipe:touch {tmp_path}/ran; cat {tmp_path}/0.tar", f"{tmp_path}/list.txt"):
            with pytest.raises(Misuse, match="runs a command; pass --allow-pipe"):
                resolve(spec)
            assert not (tmp_path / "ran").exists()
            assert len(open_index(spec, allow_pipe=True)) == 3
            (tmp_path / "ran").unlink()

    def test_on_the_command_line(self, tmp_path: Path) -> None:
        put(tmp_path, "0.tar", THREE)
        arguments = ["index", f"pipe:cat {tmp_path}/0.tar", "--index", str(tmp_path / "i.parquet")]
        found = CliRunner().invoke(curate, arguments)
        assert isinstance(found.exception, Misuse)
        assert found.exception.exit_code == 2
        assert CliRunner().invoke(curate, [*arguments, "--allow-pipe"]).exit_code == 0

    def test_no_file_allows_it(self, tmp_path: Path) -> None:
        config = from_options({"store": "pipe:x", "method": "uniform", "allow_pipe": True})
        assert config.machine.allow_pipe
        assert "allow_pipe" not in to_options(config)
        (tmp_path / "c.json").write_text('{"store": "pipe:x", "machine": {"allow_pipe": true}}')
        with pytest.raises(Misuse, match="give --allow-pipe on the command line"):
            read_options(tmp_path / "c.json")
        with pytest.raises(Misuse, match="runs a command"):
            store_of(tmp_path, from_options(to_options(config)))

    @pytest.mark.parametrize("line", ["pipe:touch ran", "file:///etc/passwd", "local:///x.tar", "zip://x::file:///y"])
    def test_a_list_from_elsewhere_names_nothing_on_this_machine(self, line: str) -> None:
        with (
            serving(response(f"0.tar\n{line}\n".encode())) as url,
            pytest.raises(Misuse, match=r"list\.txt: a list from elsewhere names this"),
        ):
            resolve(f"{url}/list.txt", allow_pipe=True)

    def test_a_list_from_elsewhere_names_shards_beside_it_and_on_servers(self) -> None:
        text = "\ufeff# shards\na/{0..1}.tar\nhttp://127.0.0.1:9/x.tar\n".encode()
        with serving(response(text)) as url:
            assert [shard_set.locate("http://", path) for path in resolve(f"{url}/list.txt").paths] == [
                *(f"{url}/a/{n}.tar" for n in range(2)),
                "http://127.0.0.1:9/x.tar",
            ]


class TestServers:
    """What a server or its URL does wrong is one line."""

    @pytest.mark.parametrize(
        "url", ["http://127.0.0.1:9/a b.tar", "http://127.0.0.1:9/a\t.tar", "http://127.0.0.1:9/\x7f"]
    )
    def test_a_url_with_a_blank(self, url: str) -> None:
        with pytest.raises(Misuse, match="a URL with a blank or a control character"):
            resolve(url)

    @pytest.mark.parametrize(
        "url", ["http://127.0.0.1:99999999/x.tar", "http://[::1/x.tar", "http:///x.tar", "http://\u00e9\udc80/"]
    )
    def test_a_url_that_is_none(self, url: str) -> None:
        with pytest.raises(ShardError) as error:
            indexed(url)
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize(
        ("answer", "message"),
        [
            (b"garbage\r\n\r\n", "cannot be opened"),
            (b"", "cannot be opened"),
            (b"HTTP/1.1 200 OK\r\n" + b"x" * 70000, "cannot be opened"),
            (response(b"x" * 100, 5000), "the connection ended early"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "the connection broke"),
        ],
    )
    def test_a_garbled_answer(self, answer: bytes, message: str) -> None:
        with serving(answer) as url, pytest.raises(NotShards, match=rf"x\.tar: .*{message}"):
            indexed(f"{url}/x.tar")

    def test_a_list_that_is_no_text(self) -> None:
        with serving(response(b"\xff\xfa.tar\n")) as url, pytest.raises(NotShards, match="a list that is no text"):
            resolve(f"{url}/list.txt")

    @pytest.mark.parametrize("answer", [b"", response(b"x" * 100, 5000)])
    def test_a_server_that_falls_silent(self, answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(remote, "TIMEOUT_S", 0.2)
        with serving(answer, stall=True) as url, pytest.raises(NotShards, match="timed out"):
            indexed(f"{url}/x.tar")

    def test_a_shard_that_a_server_lacks_is_skipped_where_asked(self, tmp_path: Path) -> None:
        whole = (put(tmp_path, "0.tar", THREE) / "0.tar").read_bytes()
        gone = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        with serving(response(whole), gone) as url:
            found, report = indexed(f"{url}/{{0..1}}.tar", skip_bad=True)
        assert ([shard.path for shard in found.shards], kinds(report)) == (["0.tar"], ["not-a-tar"])


class TestRegularFiles:
    """A pipe would be waited for."""

    @pytest.fixture
    def fifo(self, tmp_path: Path) -> Callable[[str], Path]:
        def make(name: str) -> Path:
            (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
            os.mkfifo(tmp_path / name)
            return tmp_path / name

        return make

    def test_as_a_shard(self, fifo: Callable[[str], Path]) -> None:
        path = fifo("s/1.tar")
        put(path.parent, "0.tar", THREE)
        with pytest.raises(NotShards, match=r"1\.tar: cannot be opened \(is no regular file"):
            indexed(path)
        found, report = indexed(path.parent, skip_bad=True)
        assert ([shard.path for shard in found.shards], kinds(report)) == (["0.tar"], ["passed-over"])
        assert report.passed_over.special_files == ("1.tar",)
        with OpenShards() as shards, pytest.raises(OSError, match="is no regular file"):
            shards.read(str(path), 0, 1)

    def test_a_folder_or_a_dead_link_as_a_shard_is_skipped_where_asked(self, tmp_path: Path) -> None:
        put(tmp_path, "0.tar", THREE)
        (tmp_path / "1.tar").symlink_to("gone")
        with pytest.raises(NotShards, match=r"1\.tar: cannot be opened \(No such file or directory\)"):
            indexed(tmp_path)
        assert kinds(indexed(tmp_path, skip_bad=True)[1]) == ["not-a-tar"]

    @pytest.mark.parametrize(
        "read",
        [
            lambda path: indexed(path),
            read_manifest,
            read_options,
            index_file.load,
            lambda path: open_index(str(path.parent), path),
            lambda path: from_options(read_options(path)),
        ],
    )
    def test_as_anything_else(self, fifo: Callable[[str], Path], read: Callable[[Path], object]) -> None:
        path = fifo("list.txt")
        put(path.parent, "0.tar", THREE)
        with pytest.raises((OSError, Error), match="is no regular file"):
            read(path)

    def test_as_a_photo(self, fifo: Callable[[str], Path], tmp_path: Path) -> None:
        folder = fifo("photos/b.png").parent
        (folder / "a.png").write_bytes(picture())
        assert pack_folder(folder, tmp_path / "out").passed_over.special_files == ("b.png",)


class TestPatterns:
    """Counted before they are expanded."""

    @pytest.mark.parametrize(
        "pattern",
        [
            "{a..z}" * 8,
            "{{a..z}{a..z}{a..z}{a..z}{a..z},x}",
            "{" + "{a..z}" * 8 + "}",
            "{0..99999999999999999999}",
            "{0..9}" * 7,
        ],
    )
    def test_too_many(self, pattern: str) -> None:
        with pytest.raises(Misuse, match="names too many shards"):
            resolve(f"http://127.0.0.1:9/{pattern}.tar")

    @pytest.mark.parametrize("pattern", ["{" * 100000 + "}" * 100000, "{a,", "{a}}", "{" + "9" * 5000 + "..1}"])
    def test_malformed(self, pattern: str) -> None:
        with pytest.raises(Misuse, match=r"malformed pattern|too many"):
            resolve(f"http://127.0.0.1:9/{pattern}.tar")

    @pytest.mark.parametrize(
        "pattern",
        [
            "x",
            "{a..c}",
            "{C..a}",
            "{0..9..3}",
            "{9..0..4}",
            "{a,b{1,2,},}",
            "{{a,b}}",
            "{x}{1,2}",
            r"\{a,b}{c,d\,e}",
            "{0..3..0}",
        ],
    )
    def test_the_count_is_that_of_the_names(self, pattern: str) -> None:
        import braceexpand

        try:
            expected = len(list(braceexpand.braceexpand(pattern)))
        except ValueError:
            return
        assert patterns.count(pattern) == expected

    def test_a_list_of_many_patterns(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shard_set, "MAX_SHARDS", 100)
        (tmp_path / "list.txt").write_text("{0..59}.tar\n" * 3)
        with pytest.raises(Misuse, match="names too many shards"):
            resolve(tmp_path / "list.txt")


class TestLists:
    """As editors write them."""

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
    def test_marks_and_comments(self, tmp_path: Path, encoding: str) -> None:
        put(put(tmp_path, "0.tar", THREE), "#1.tar", THREE)
        (tmp_path / "list.txt").write_text("# mine\n0.tar\n#1.tar\n#2.tar\n", encoding)
        found = resolve(tmp_path / "list.txt")
        assert (found.paths, found.missing) == (("0.tar", "#1.tar"), ())

    def test_half_a_letter(self, tmp_path: Path) -> None:
        (tmp_path / "list.txt").write_bytes("0.tar".encode("utf-16")[:-1])
        with pytest.raises(NotShards, match="a list that is no text"):
            resolve(tmp_path / "list.txt")


class TestLedgers:
    """A partition has the columns of its schema, of their kinds."""

    @pytest.fixture
    def run(self, tmp_path: Path) -> Path:
        beliefs = Beliefs(np.arange(2), np.ones(2, np.float32), np.ones(2, np.int32), np.zeros(2, np.uint8))
        held = pa.table({"shard": ["0.tar"] * 2, "key": ["a", "b"]})
        kept = np.ones(2, bool)
        ledger.write(ledger.path_of(tmp_path, 1), beliefs, None, held, kept, Stamp("x", "dw", 1, 0, 0.0, 0.5, None))
        return tmp_path

    def rewritten(self, path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
        table = pq.read_table(path, partitioning=None)
        pq.write_table(change(table).replace_schema_metadata(table.schema.metadata), path)

    def test_whole_numbers_are_no_keys(self, run: Path) -> None:
        self.rewritten(ledger.path_of(run, 1), lambda table: table.set_column(1, "key", pa.array([1, 2])))
        with pytest.raises(Unfinished, match="column key: expected string, found int64"):
            ledger.write_final(run)

    def test_rows_that_nobody_has(self, run: Path) -> None:
        rows = pa.array([0, 2**60])
        self.rewritten(ledger.path_of(run, 1), lambda table: table.set_column(2, "row", rows))
        assert ledger.final(run)["row"].to_pylist() == [0, 2**60]  # in no more memory than two rows take
        self.rewritten(ledger.path_of(run, 1), lambda table: table.set_column(2, "row", rows.take([1, 0])))
        with pytest.raises(Unfinished, match="its rows do not rise"):
            ledger.final(run)

    def test_a_misnamed_column(self, run: Path) -> None:
        ledger.write_final(run)
        shard_set = [*ledger.SCHEMA.names, "pruned_in"]
        self.rewritten(run / "weights.parquet", lambda table: table.rename_columns(shard_set))
        with pytest.raises(Unfinished, match="no column pruned_epoch"):
            ledger.read_final(run)

    def test_an_empty_partition(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rewritten(ledger.path_of(run, 1), lambda table: table.slice(0, 0))
        monkeypatch.setattr("curate.runs.provenance.read_run", lambda run: {})
        found = CliRunner().invoke(curate, ["ledger", str(run), "--final"])
        assert found.exit_code == 0, found.exception
        assert found.stdout.splitlines()[-1].split() == ["1", "0", "0", "0.0%", "-", "0"]


class TestConfigurations:
    """Said before torch is loaded."""

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "--store is missing"),
            ("store = 5", "--store 5: expected str"),
            ('store = "S"', "--target is missing"),
            ('store = "S"\ntarget = "S"\neta = -3', "--eta -3"),
            ('store = "gone"\ntarget = "S"', "no such shard"),
            ('store = "S"\ntarget = "gone"', "gone: no such target folder"),
            ('store = "S"\ntarget = "E"', "E: "),
        ],
    )
    def test_the_whole_is_checked_first(
        self, tmp_path: Path, text: str, message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put(tmp_path, "S/0.tar", THREE)
        (tmp_path / "E").mkdir()
        (tmp_path / "c.toml").write_text(text)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("curate.runs.run.run", None)
        found = CliRunner().invoke(curate, ["run", "--config", "c.toml", "--out", "out"])
        assert message in str(found.exception)
