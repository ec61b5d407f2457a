"""Folders behind URLs, worked on in local copies: what is uploaded, in which order, and what a failure leaves."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from object_server import ObjectServer
from shard_makers import tree

from shards.errors import Busy, Misuse, NoSuchObject, NotShards, ShardError
from shards.io import claim
from shards.io.atomic import atomic_folder, atomic_write_unsynced, sync_folder, write_bytes
from shards.io.mirror import fetch, push
from shards.io.mirror.copy import copy_of, forget, in_urls, root, url_of
from shards.io.mirror.place import child, filled, local, parent, written
from shards.io.storage import objects as object_store
from shards.io.storage.uploads import PART

LATER_S = claim.STALE_S + 1


@pytest.fixture(scope="module")
def bucket(object_server: ObjectServer) -> str:
    """One for all tests here: each has a folder of its own in it."""
    return object_server.place()


@pytest.fixture
def url(bucket: str, objects: ObjectServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A folder of a bucket, and copies of its own."""
    monkeypatch.setenv("CURATE_MIRROR", str(tmp_path / "copies"))
    return f"{bucket}/{tmp_path.name}/run"


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is sent and deleted, in order."""
    names: list[str] = []
    send, delete = push.send_file, push.delete

    def sending(path: Path, url: str, before_the_end: Callable[[], object]) -> None:
        names.append(url.rpartition("/run/")[2])
        send(path, url, before_the_end)

    def deleting(urls: list[str]) -> None:
        names.extend(f"-{url.rpartition('/run/')[2]}" for url in urls)
        delete(urls)

    monkeypatch.setattr(push, "send_file", sending)
    monkeypatch.setattr(push, "delete", deleting)
    return names


def elsewhere(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """From now on this is another machine."""
    monkeypatch.setenv("CURATE_MIRROR", str(place))


def objects_at(url: str) -> dict[str, bytes]:
    return {
        info.url.removeprefix(f"{url}/"): object_store.read_range(info.url, 0, info.size)
        for info in object_store.list_objects(url)
    }


def age(url: str, seconds: float = LATER_S) -> None:
    """Let time pass over a claim."""
    place = f"{url}/{claim.NAME}"
    said = json.loads(object_store.read_all(place, 1 << 20))
    object_store.put(place, json.dumps({**said, "renewed": said["renewed"] - seconds}).encode())


class Killed(BaseException):
    """In place of a SIGKILL: what follows it in the process must not help."""


def fill_and_die(url: str) -> None:
    """Fill a folder and end as by a kill: nothing is uploaded nor released after it."""
    with pytest.MonkeyPatch.context() as dying, filled(url) as folder:
        write_bytes(folder / "a", b"a")
        (folder / "b").write_bytes(b"never synced")
        dying.setattr(push.Push, "finish", lambda *_: None)
        raise Killed


def test_a_folder_goes_up_as_it_grows_and_its_marker_last(url: str, sent: list[str]) -> None:
    """Files of workers are synced by whoever writes the marker; before the block ends all are there."""
    with filled(url) as folder:
        for name in ("1.tar", "0.tar"):
            with atomic_write_unsynced(folder / "curated" / name) as file:
                file.write(name.encode())
            time.sleep(0.01)
        assert not sent
        sync_folder(folder / "curated")
        write_bytes(folder / "curated" / "curated.json", b"{}")
        assert sent == ["curated/1.tar", "curated/0.tar", "curated/curated.json"]
        (folder / "curated" / "0.tar").unlink()
        write_bytes(folder / "run.json", b"{}")
    assert sent[3:] == ["run.json", "-curated/0.tar"]
    assert objects_at(url) == {"curated/1.tar": b"1.tar", "curated/curated.json": b"{}", "run.json": b"{}"}


def test_a_marker_is_deleted_before_what_it_stands_for(url: str, sent: list[str]) -> None:
    """A checkpoint never counts without a file of its."""
    with filled(url) as folder:
        for name in ("model", "weights", "state.json"):
            write_bytes(folder / "checkpoints" / "epoch=0001" / name, name.encode())
        sent.clear()
        shutil.rmtree(folder / "checkpoints")
        sync_folder(folder)
    assert sent[0] == "-checkpoints/epoch=0001/state.json"
    assert len(sent) == 3


def test_a_folder_that_appears_whole(url: str) -> None:
    """`atomic_folder` fills one beside it, of which nothing is sent."""
    with filled(url) as folder, atomic_folder(folder) as new:
        write_bytes(new / "train" / "0.tar", b"0")
        assert not [name for name in objects_at(url) if name != claim.NAME]
    assert objects_at(url) == {"train/0.tar": b"0"}


def test_another_machine_goes_on_from_the_objects(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: list[str]
) -> None:
    with filled(url) as folder:
        write_bytes(folder / "a", b"a")
        write_bytes(folder / "deep" / "b", b"b")
    elsewhere(monkeypatch, tmp_path / "others")
    sent.clear()
    with filled(url) as folder:
        assert tree(folder) == {"a": b"a", "deep/b": b"b"}
        write_bytes(folder / "a", b"A")
    assert sent == ["a"], "what has not changed is not sent again"
    elsewhere(monkeypatch, tmp_path / "copies")
    assert tree(local(url)) == {"a": b"A", "deep/b": b"b"}


def test_what_is_gone_there_is_gone_here(url: str) -> None:
    """Folders that are empty then go, too: an empty generation of shards would be taken for one."""
    with filled(url) as folder:
        write_bytes(folder / "shards" / "generation=1" / "0.tar", b"0")
        write_bytes(folder / "run.json", b"{}")
    object_store.delete([f"{url}/shards/generation=1/0.tar"])
    assert [path.name for path in local(url).iterdir()] == ["run.json"]


def test_only_what_changed_is_fetched(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with filled(url) as folder:
        write_bytes(folder / "a", b"a")
        write_bytes(folder / "b", b"b")
    object_store.put(f"{url}/b", b"B")
    (copy_of(url).path / "a").write_bytes(b"changed here")
    got: list[str] = []
    received = fetch._received
    monkeypatch.setattr(fetch, "_received", lambda path, info: (got.append(path.name), received(path, info))[1])
    assert tree(local(url)) == {"a": b"a", "b": b"B"}
    assert sorted(got) == ["a", "b"]
    local(url)
    assert len(got) == 2


def test_shards_are_left_there(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Holes of the right size stand for them: read as a whole, they are fetched."""
    with filled(url, without=("curated/*.tar",)) as folder:
        write_bytes(folder / "curated" / "0.tar", b"0" * 100_000)
        write_bytes(folder / "shards" / "0.tar", b"1" * 100)
    hole = folder / "curated" / "0.tar"
    assert (hole.stat().st_size, hole.stat().st_blocks) == (100_000, 0)
    assert objects_at(url)["curated/0.tar"] == b"0" * 100_000
    elsewhere(monkeypatch, tmp_path / "others")
    assert tree(local(url, without=("curated/*.tar",)))["shards/0.tar"] == b"1" * 100
    with filled(url, without=("curated/*.tar",)) as folder:
        assert not any((folder / "curated" / "0.tar").read_bytes())
    assert objects_at(url)["curated/0.tar"] == b"0" * 100_000, "a hole is never sent"
    assert local(url).joinpath("curated/0.tar").read_bytes() == b"0" * 100_000
    with filled(url, without=("curated/*.tar",)) as folder:
        shutil.rmtree(folder / "curated")
    assert list(objects_at(url)) == ["shards/0.tar"]


class TestClaims:
    """Who may write."""

    def test_two_machines(self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with filled(url) as folder:
            write_bytes(folder / "a", b"a")
            elsewhere(monkeypatch, tmp_path / "others")
            with pytest.raises(Busy, match=r"/run: another process is writing this, and was heard of \d s ago"):
                filled(url).__enter__()
            assert tree(local(url)) == {"a": b"a"}, "reading is free"
            elsewhere(monkeypatch, tmp_path / "copies")
        assert list(objects_at(url)) == ["a"]

    def test_two_processes_of_a_machine(self, url: str) -> None:
        with filled(url) as folder:
            with pytest.raises(Busy, match="another process is writing this"):
                filled(url).__enter__()
            write_bytes(folder / "a", b"a")
            assert tree(local(url)) == {"a": b"a"}, "the copy that is written is read as it is"

    def test_after_a_kill_the_same_machine_goes_on_from_its_copy(self, url: str) -> None:
        with pytest.raises(Killed):
            fill_and_die(url)
        assert claim.NAME in objects_at(url)
        assert tree(local(url))["b"] == b"never synced", "reading leaves it be"
        with filled(url):
            pass
        assert objects_at(url) == {"a": b"a", "b": b"never synced"}

    def test_after_a_kill_another_machine_waits_until_the_claim_is_stale(
        self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(Killed):
            fill_and_die(url)
        elsewhere(monkeypatch, tmp_path / "others")
        with pytest.raises(Busy, match=r"the same command works in [0-9]+ s"):
            filled(url).__enter__()
        age(url)
        with filled(url) as folder:
            assert tree(folder) == {"a": b"a"}
            write_bytes(folder / "c", b"c")
        elsewhere(monkeypatch, tmp_path / "copies")
        with filled(url) as folder:
            assert tree(folder) == {"a": b"a", "c": b"c"}, "the first machine's copy counts no more"

    def test_killed_while_it_fetches_what_another_has_written(
        self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its copy was ahead once; half of it fetched, it must not count again."""
        with pytest.raises(Killed):
            fill_and_die(url)
        age(url)
        elsewhere(monkeypatch, tmp_path / "others")
        with filled(url) as folder:
            write_bytes(folder / "a", b"A")
            write_bytes(folder / "c", b"c")
        elsewhere(monkeypatch, tmp_path / "copies")

        def die(*_: object) -> None:
            raise Killed

        with monkeypatch.context() as dying:
            dying.setattr(fetch, "_received", die)
            dying.setattr(claim, "release", lambda held: None)
            with pytest.raises(Killed):
                filled(url).__enter__()
        with filled(url) as folder:
            assert tree(folder) == {"a": b"A", "c": b"c"}
        assert objects_at(url) == {"a": b"A", "c": b"c"}

    def test_killed_when_holes_are_made(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """They are never taken for files."""

        def die(*_: object) -> None:
            raise Killed

        def fill() -> None:
            with filled(url, without=("*.tar",)) as folder:
                write_bytes(folder / "0.tar", b"0" * 9000)

        with monkeypatch.context() as dying:
            dying.setattr(claim, "release", die)
            with pytest.raises(Killed):
                fill()
        with filled(url, without=("*.tar",)):
            pass
        assert objects_at(url) == {"0.tar": b"0" * 9000}

    def test_who_was_taken_over_writes_no_more(self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """It slept: its claim is looked at before anything is sent."""

        def sleep_and_go_on() -> None:
            with filled(url) as folder:
                write_bytes(folder / "a", b"a")
                age(url)
                elsewhere(monkeypatch, tmp_path / "others")
                other = filled(url)
                other.__enter__()
                elsewhere(monkeypatch, tmp_path / "copies")
                monkeypatch.setattr(claim, "RENEW_S", -1.0)
                write_bytes(folder / "a", b"stale")

        with pytest.raises(Busy, match="another process has taken over"):
            sleep_and_go_on()
        assert objects_at(url)["a"] == b"a"

    @pytest.mark.parametrize("size", [1, PART + 1])
    def test_who_is_taken_over_while_it_sends_much(
        self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
    ) -> None:
        """Between two files, or two parts of one, hours may pass."""
        send = push.send_file

        def taken_over() -> None:
            age(url)
            elsewhere(monkeypatch, tmp_path / "others")
            filled(url).__enter__()
            elsewhere(monkeypatch, tmp_path / "copies")
            monkeypatch.setattr(claim, "RENEW_S", -1.0)

        def slowly(path: Path, url: str, before_the_end: Callable[[], object]) -> None:
            if path.name == "b":
                taken_over()
            send(path, url, before_the_end)

        def send_three() -> None:
            with filled(url) as folder:
                folder.mkdir()
                for name in "abc":
                    (folder / name).write_bytes(bytes(size))
                    time.sleep(0.01)
                monkeypatch.setattr(push, "send_file", slowly)

        with pytest.raises(Busy, match="another process has taken over"):
            send_three()
        assert {name for name in objects_at(url) if len(name) == 1} == {"a"}

    def test_a_machine_that_slept_looks_at_its_claim(
        self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """`time.monotonic` stands still meanwhile."""
        real = time.clock_gettime

        def sleep_and_go_on() -> None:
            with filled(url) as folder:
                write_bytes(folder / "a", b"a")
                age(url)
                elsewhere(monkeypatch, tmp_path / "others")
                filled(url).__enter__()
                elsewhere(monkeypatch, tmp_path / "copies")
                asleep = {time.CLOCK_BOOTTIME: 1000.0}
                monkeypatch.setattr(time, "clock_gettime", lambda which: real(which) + asleep.get(which, 0.0))
                write_bytes(folder / "a", b"stale")

        with pytest.raises(Busy, match="another process has taken over"):
            sleep_and_go_on()
        assert objects_at(url)["a"] == b"a"

    def test_a_claim_that_is_renewed_while_it_is_read(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its text may have become shorter or longer since it was looked at."""
        claim.take(url, "another")
        head = object_store.head

        def and_then_renewed(place: str) -> object:
            found = head(place)
            object_store.put(place, json.dumps({"owner": "another", "renewed": int(time.time())}).encode())
            return found

        monkeypatch.setattr(claim, "head", and_then_renewed)
        with pytest.raises(Busy, match="another process is writing this, and was heard of"):
            claim.take(url, "me")

    def test_a_renewal_whose_answer_was_lost(self, url: str) -> None:
        held = claim.take(url, "me")
        object_store.put(f"{url}/{claim.NAME}", claim._text("me"))
        held.renew()
        claim.release(held)
        assert not objects_at(url)


class TestFailures:
    """The store or the connection fails, or the work does."""

    def test_a_failed_upload_leaves_the_copy_and_the_same_call_goes_on(
        self, url: str, monkeypatch: pytest.MonkeyPatch, sent: list[str]
    ) -> None:
        def broken(path: Path, url: str, _: object) -> None:
            raise NotShards("cannot be written (the connection broke)", shard=url, todo="run the same command again")

        def fill() -> None:
            with monkeypatch.context() as breaking, filled(url) as folder:
                write_bytes(folder / "a", b"a")
                breaking.setattr(push, "send_file", broken)
                write_bytes(folder / "b", b"b")

        with pytest.raises(NotShards, match=r"/run/b: cannot be written"):
            fill()
        assert (copy_of(url).path / "b").read_bytes() == b"b"
        with filled(url) as folder:
            assert sorted(tree(folder)) == ["a", "b"]
        assert objects_at(url) == {"a": b"a", "b": b"b"}
        assert sent == ["a", "b"]

    def test_what_somebody_has_removed_meanwhile_is_sent_again(self, url: str) -> None:
        """Holes stand for shards in the end: without the objects nothing would be left of them."""
        with filled(url, without=("*.tar",)) as folder:
            write_bytes(folder / "0.tar", b"0" * 9000)
            write_bytes(folder / "1.tar", b"1" * 9000)
            object_store.delete([f"{url}/0.tar"])
            object_store.put(f"{url}/1.tar", b"short")
        assert objects_at(url) == {"0.tar": b"0" * 9000, "1.tar": b"1" * 9000}

    def test_work_that_fails_is_uploaded_as_far_as_it_came(self, url: str) -> None:
        def fill() -> None:
            with filled(url) as folder:
                write_bytes(folder / "a", b"a")
                (folder / "b").write_bytes(b"b")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fill()
        assert objects_at(url) == {"a": b"a", "b": b"b"}

    def test_a_fetch_that_fails_gives_the_claim_back(
        self, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        with filled(url) as folder:
            write_bytes(folder / "a", b"a")
        elsewhere(monkeypatch, tmp_path / "others")

        def broken(path: Path, info: object) -> None:
            raise NotShards("cannot be read")

        with monkeypatch.context() as breaking:
            breaking.setattr(fetch, "_received", broken)
            with pytest.raises(NotShards, match="cannot be read"):
                filled(url).__enter__()
        assert objects_at(url) == {"a": b"a"}, "and nothing was taken for deleted"

    def test_a_folder_that_changes_while_it_is_fetched(
        self, url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        with filled(url) as folder:
            write_bytes(folder / "a", b"a")
            write_bytes(folder / "b", b"b")
        elsewhere(monkeypatch, tmp_path / "others")
        listed = fetch.listed

        def and_then_gone(url: str) -> object:
            there = listed(url)
            object_store.delete([f"{url}/b"])
            return there

        monkeypatch.setattr(fetch, "listed", and_then_gone)
        assert tree(local(url)) == {"a": b"a"}

    def test_names_that_no_file_can_have(self, url: str) -> None:
        object_store.put(url, b"file")
        object_store.put(f"{url}/below", b"folder")
        with pytest.raises(NotShards, match=r"/run: an object and a folder of one name"):
            local(url)
        object_store.delete([url])
        object_store.put(f"{url}/deep/a", b"file")
        object_store.put(f"{url}/deep/a/b/c", b"below it")
        with pytest.raises(NotShards, match=r"/run/deep/a: an object and a folder of one name"):
            local(url)

    def test_nothing_is_there(self, url: str) -> None:
        with pytest.raises(NoSuchObject, match=r"/run: nothing is there"):
            local(url)
        assert not copy_of(url).home.exists()

    def test_no_such_bucket(self, url: str) -> None:
        with pytest.raises(ShardError) as error, filled("s3://no-such-bucket/run"):
            pass
        assert "\n" not in str(error.value)

    @pytest.mark.parametrize("place", ["https://example.org/run", "pipe:cat"])
    def test_other_urls(self, place: str) -> None:
        with pytest.raises(Misuse, match="no object store's"):
            local(place)


class TestFiles:
    """Single files."""

    def test_written_and_read(self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with written(f"{url}/kept.parquet") as path:
            write_bytes(path, b"rows")
            assert not objects_at(url)
        assert objects_at(url) == {"kept.parquet": b"rows"}
        elsewhere(monkeypatch, tmp_path / "others")
        assert local(f"{url}/kept.parquet").read_bytes() == b"rows"
        with written(f"{url}/kept.parquet") as path:
            assert path.read_bytes() == b"rows"
            write_bytes(path, b"other")
        assert objects_at(url) == {"kept.parquet": b"other"}

    def test_nothing_goes_up_of_what_failed(self, url: str) -> None:
        def write() -> None:
            with written(f"{url}/kept.parquet") as path:
                write_bytes(path, b"rows")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            write()
        assert not objects_at(url)


class TestPaths:
    """Which path stands for which URL."""

    def test_local_ones_pass(self, tmp_path: Path) -> None:
        assert local(tmp_path / "a") == tmp_path / "a"
        with filled("some/folder") as folder, written("some/file") as file:
            assert (folder, file) == (Path("some/folder"), Path("some/file"))
        assert not (tmp_path / "a").exists()

    def test_a_path_in_a_copy(self, url: str) -> None:
        with filled(url) as folder:
            write_bytes(folder / "curated" / "0.tar", b"0")
            assert local(folder) == folder, "while it is filled, it is a folder like any other"
        assert url_of(folder) == url
        assert url_of(folder / "curated") == f"{url}/curated"
        assert [url_of(place) for place in (root(), Path("/"), root() / ("0" * 32) / "run")] == [None] * 3
        assert in_urls(f"{folder}/run.json: damaged, as is {folder}") == f"{url}/run.json: damaged, as is {url}"
        assert in_urls("no copy") == "no copy"
        object_store.put(f"{url}/curated/0.tar", b"1")
        assert (local(folder) / "curated/0.tar").read_bytes() == b"1", "else it stands for the URL"
        forget(url)
        assert not folder.exists()

    def test_below_and_above(self) -> None:
        assert [child(place, "curated") for place in ("s3://b/run", "run")] == ["s3://b/run/curated", "run/curated"]
        assert parent("s3://b/run/curated/") == "s3://b/run"
