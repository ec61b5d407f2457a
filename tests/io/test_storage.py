"""Objects of a real server: what is read and written, and one line for whatever goes wrong on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from botocore import UNSIGNED
from hypothesis import given
from hypothesis import strategies as st
from object_server import Asked, ObjectServer, failing

from curate import console
from shards.errors import Misuse, NoSuchObject, NotShards, ShardError, ShardsChanged, without_secrets
from shards.io import remote
from shards.io.storage import clients, ranges, s3_client, uploads
from shards.io.storage import objects as single
from shards.io.storage.ranges import MAX_GAP, MAX_REQUEST, Range, coalesced
from shards.io.storage.s3_client import s3
from shards.io.storage.uploads import MIN_PART, PART, unended_uploads, upload

DATA = os.urandom(1 << 16)
MANY = 1 << 30


@pytest.fixture
def url(objects: ObjectServer) -> str:
    """The URL of an object."""
    place = f"{objects.place()}/folder/x"
    put(place, DATA)
    objects.between.forget()
    return place


def put(url: str, data: bytes) -> None:
    single.put(url, data)


def asked_for(server: ObjectServer, method: str) -> list[Asked]:
    return [one for one in server.between.asked if one.method == method]


class TestObjects:
    def test_a_range_is_asked_for_by_both_its_ends(self, url: str, objects: ObjectServer) -> None:
        assert remote.read_range(url, 5, 300) == DATA[5:305]
        assert [one.range for one in asked_for(objects, "GET")] == ["bytes=5-304"]
        assert objects.between.sent == 300

    def test_what_is_known_of_one(self, url: str) -> None:
        info = single.head(url)
        assert info is not None
        assert (info.url, info.size) == (url, len(DATA))
        assert info.etag
        assert single.head(f"{url}y") is None
        assert [one.url for one in single.list_objects(url.rpartition("/")[0])] == [url]
        assert [one.url for one in single.list_objects(url.rpartition("/folder/")[0])] == [url]

    def test_one_with_another_etag_is_not_read(self, url: str) -> None:
        info = single.head(url)
        assert info is not None
        assert single.read_range(url, 0, 9, info.etag) == DATA[:9]
        put(url, DATA[::-1])
        with pytest.raises(ShardsChanged, match="/folder/x: changed since it was indexed; index the shards again"):
            single.read_range(url, 0, 9, info.etag)

    @pytest.mark.parametrize("name", ["a b", "a%20b", "a#b", "a?b", "a&b=c", "ä", "a'b", "a+b", "a~b", "{a}"])
    def test_names_are_taken_as_they_are(self, url: str, name: str) -> None:
        place = f"{url}-{name}"
        put(place, DATA)
        with upload(f"{place}/large") as sink:
            sink.write(bytes(MIN_PART))
            sink.write(bytes(MIN_PART))
        assert single.read_range(place, 3, 4) == DATA[3:7]
        assert [one.url for one in single.list_objects(place)] == [f"{place}/large"]
        assert place in [one.url for one in single.list_objects(url.rpartition("/")[0])]
        single.delete([place, f"{place}/large"])
        assert single.head(place) is None

    def test_one_that_is_not_there_keeps_no_other_from_being_deleted(self) -> None:
        """Of Google's, each is deleted by a request of its own, and a 404 ended them all."""
        asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_DELETE(self) -> None:
                asked.append(self.path)
                self.send_response(404 if "gone" in self.path else 204)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            place = f"http://127.0.0.1:{server.server_address[1]}"
            nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
            account = {"gcs_base_url": place, "disable_oauth": True, **nobody}
            clients.configure({"google_service_account_key": json.dumps(account), "google_base_url": place})
            single.delete([f"gs://b/{name}" for name in ["gone", *map(str, range(30))]])
            clients.configure({})
            server.shutdown()
        assert {path.rpartition("/")[2] for path in asked} == {"gone", *map(str, range(30))}

    def test_only_one_of_two_puts_an_object(self, url: str) -> None:
        place = f"{url}-claim"
        assert single.put_if_absent(place, b"one")
        assert single.put_if_absent(place, b"one")  # the answer to the first may have been lost
        assert not single.put_if_absent(place, b"two")
        assert single.read_all(place, 9) == b"one"
        single.delete([place, f"{place}-that-never-was"])
        assert single.head(place) is None

    def test_one_changed_since_is_not_replaced(self, url: str) -> None:
        info = single.head(url)
        assert info is not None
        assert info.etag is not None
        assert single.put_if_same(url, b"second", info.etag)
        assert single.put_if_same(url, b"third", info.etag) is None
        assert single.read_all(url, 9) == b"second"

    @pytest.mark.parametrize("bad", ["s3://", "s3:///x", "s3://b//x", "s3://b/../x", "s3://b/./x", "http://b/x"])
    def test_a_url_that_is_none(self, bad: str) -> None:
        with pytest.raises(Misuse, match="URL"):
            clients.split_url(bad)

    def test_settings_are_in_no_message(self, url: str) -> None:
        clients.configure({"secret_access_key": "very-secret", "access_key_id": "who", "no_such_option": "very-secret"})
        with pytest.raises(NotShards, match="look at --storage-option") as error:
            single.read_range(url, 0, 9)
        assert "no_such_option" in str(error.value)
        assert "very-secret" not in str(error.value)

    def test_options_of_one_service_are_not_those_of_others(self) -> None:
        clients.configure({"AWS_REGION": "eu", "azure_storage_account_name": "me", "skip_signature": "true"})
        assert clients.options_for("s3") == {"aws_region": "eu", "skip_signature": "true"}
        assert clients.options_for("az") == {"azure_storage_account_name": "me", "skip_signature": "true"}
        clients.configure({})

    def test_no_url_in_a_message_has_a_password(self) -> None:
        said = clients.reason(ValueError("error at http://me:secret@x:9/b/k?X-Amz-Signature=secret&y=1 (once)"))
        assert said == "error at http://x:9/b/k (once)"
        for todo in (None, "look at s3://me:secret@b/k?token=secret, then go on"):
            place = "https://me:secret@x:9/b/{0..9}.tar?X-Amz-Signature=secret:1&y=secret"
            error = ShardError("gone", shard=place, offset=7, todo=todo)
            assert "secret" not in str(error)
            assert str(error).startswith("https://x:9/b/{0..9}.tar, byte 7: gone")
        assert "secret" not in str(ShardError("gone", shard="0.tar?sig=secret"))
        assert without_secrets("what? a=b at me@host") == "what? a=b at me@host"

    def test_a_note_has_no_password_either(self, capsys: pytest.CaptureFixture[str]) -> None:
        console.set_up()
        console.note("reads http://me:secret@x/0.tar?sig=secret, once")
        assert "reads http://x/0.tar, once" in capsys.readouterr().err

    def test_both_clients_of_s3_have_the_same_settings(
        self, objects: ObjectServer, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each has names of its own for them, and overlooks the other's."""
        endpoint = objects.between.endpoint
        monkeypatch.delenv("AWS_ENDPOINT_URL")
        monkeypatch.setenv("AWS_ENDPOINT", endpoint)
        monkeypatch.setenv("AWS_REGION", "eu-north-9")
        clients.configure({})
        assert (s3().meta.endpoint_url, s3().meta.region_name) == (endpoint, "eu-north-9")
        assert single.head(url)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
        assert s3().meta.endpoint_url == "http://127.0.0.1:1"
        clients.configure({"aws_endpoint": endpoint, "region": "mars", "skip_signature": "true"})
        assert (s3().meta.endpoint_url, s3().meta.region_name) == (endpoint, "mars")
        assert s3().meta.config.signature_version is UNSIGNED
        assert single.head(url)
        assert os.environ["AWS_ENDPOINT_URL_S3"] == "http://127.0.0.1:1"

    def test_large_objects_are_encrypted_as_small_ones_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_SERVER_SIDE_ENCRYPTION", "aws:kms")
        clients.configure({"sse_kms_key_id": "key", "aws_sse_bucket_key_enabled": "true", "request_payer": "true"})
        assert s3_client.of_new_object() == {
            "ServerSideEncryption": "aws:kms",
            "SSEKMSKeyId": "key",
            "BucketKeyEnabled": True,
        }
        assert s3_client.of_request() == {"RequestPayer": "requester"}
        clients.configure({"sse_customer_key_base64": "c2VjcmV0"})
        with pytest.raises(Misuse, match="sse-c") as error:
            s3_client.of_new_object()
        assert "c2VjcmV0" not in str(error.value)
        clients.configure({})

    def test_a_forked_process_is_told_what_to_do(self, url: str) -> None:
        """As torch's loader forks; without this it would hang or end."""
        code = f"""
import os
from shards.io.storage import objects as single
single.head({url!r})
pid = os.fork()
if not pid:
    try:
        single.head({url!r})
    except Exception as error:
        print(error, flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        assert "a forked process cannot read an object store; give torch's loader" in done.stdout


FAULTS = {
    "denied": (failing(MANY, (403, "ExpiredToken"), "x"), NotShards, r"403 Forbidden, ExpiredToken\); check the cred"),
    "gone": (failing(MANY, (404, "NoSuchKey"), "x"), NoSuchObject, "no such object"),
    "broken": (failing(MANY, (500, "InternalError"), "x"), NotShards, "500 Internal Server Error, InternalError"),
    "cut": (failing(MANY, "cut", "x"), NotShards, "body error"),
}


class TestFaults:
    @pytest.mark.parametrize("fault", [(503, "SlowDown"), (500, "InternalError"), "cut", 0.3])
    def test_what_passes_is_asked_for_again(self, url: str, objects: ObjectServer, fault: object) -> None:
        objects.between.fault = failing(2, fault, "x")  # type: ignore[arg-type]
        assert remote.read_range(url, 10, 5000) == DATA[10:5010]

    @pytest.mark.parametrize("name", FAULTS)
    def test_what_does_not_is_one_line(self, url: str, objects: ObjectServer, name: str) -> None:
        objects.between.fault, kind, words = FAULTS[name]
        began = time.monotonic()
        with pytest.raises(kind, match=rf"^s3://tests/\d+/folder/x: .*{words}") as error:
            remote.read_range(url, 10, 5000)
        assert "\n" not in str(error.value)
        assert time.monotonic() - began < 60

    def test_a_listing_that_fails_is_one_line(self, url: str, objects: ObjectServer) -> None:
        objects.between.fault = failing(MANY, (403, "AccessDenied"), "list-type")
        with pytest.raises(NotShards, match=r"folder/: cannot be listed \(403 Forbidden, AccessDenied\); check"):
            remote.list_folder(url.removesuffix("x"))

    def test_no_such_bucket(self, objects: ObjectServer) -> None:
        with pytest.raises(
            NotShards, match=r"s3://no-such/x/: cannot be listed \(404.*NoSuchBucket\); look at its name"
        ):
            remote.list_folder("s3://no-such/x/")

    def test_a_stream_that_breaks_in_the_middle(self, url: str, objects: ObjectServer) -> None:
        put(url, bytes(6 << 20))
        seen = iter(range(MANY))
        objects.between.fault = lambda asked: (
            (404, "NoSuchKey") if asked.range and next(seen) >= 1 else None  # the first block comes
        )
        with remote.open_url(url) as stream, pytest.raises(NoSuchObject, match="no such object"):
            stream.read()


class TestRanges:
    @given(st.lists(st.tuples(st.integers(0, 3 * MAX_REQUEST), st.integers(1, MAX_REQUEST // 2)), max_size=30))
    def test_requests_cover_the_ranges_and_little_more(self, places: list[tuple[int, int]]) -> None:
        asked = [Range("s3://b/x", *place) for place in sorted(places)]
        requests = list(coalesced(asked))
        assert sum(request.n_ranges for request in requests) == len(asked)
        place = 0
        for request in requests:
            held = asked[place : place + request.n_ranges]
            assert all(request.bytes.offset <= one.offset for one in held)
            ends = [one.offset + one.size for one in held]
            assert request.bytes.offset + request.bytes.size == max(ends)
            assert request.bytes.size <= max(MAX_REQUEST, max(one.size for one in held))
            gaps = [later.offset - max(ends[: n + 1]) for n, later in enumerate(held[1:])]
            assert all(gap <= MAX_GAP for gap in gaps)
            place += request.n_ranges

    def test_of_two_objects_each_gets_its_own(self, url: str) -> None:
        put(f"{url}y", DATA[::-1])
        asked = [Range(url, 3, 4), Range(url, 9, 2), Range(f"{url}y", 11, 5), Range(url, 0, 2)]
        found = [bytes(one) for one in ranges.read_ranges(asked)]
        assert found == [DATA[3:7], DATA[9:11], DATA[::-1][11:16], DATA[:2]]

    def test_no_request_is_larger_than_it_may_be(self, url: str, objects: ObjectServer) -> None:
        """A run of kept samples may be a shard: one request would hold it in memory, and take longer than any may."""
        data = os.urandom(1 << 20) * 21
        put(url, data)
        objects.between.forget()
        asked = [Range(url, 5, 2 * MAX_REQUEST + 9), Range(url, 2 * MAX_REQUEST + 20, 0), Range(url, 20 << 20, 7)]
        found = [bytes(one) for one in ranges.read_ranges(asked)]
        assert found == [data[one.offset : one.offset + one.size] for one in asked]
        ends = [map(int, (one.range or "").removeprefix("bytes=").split("-")) for one in asked_for(objects, "GET")]
        assert max(last - first + 1 for first, last in ends) <= MAX_REQUEST

    def test_a_stream_that_is_left_early_asks_for_little_more(self, url: str, objects: ObjectServer) -> None:
        put(url, bytes(100 << 20))
        objects.between.forget()
        with remote.open_url(url) as stream:
            assert stream.read(3) == bytes(3)
        assert len(asked_for(objects, "GET")) <= ranges.CONCURRENT


class TestUploads:
    @pytest.mark.parametrize("size", [0, 5, MIN_PART - 1, MIN_PART, PART, PART + MIN_PART, 2 * PART + 77])
    def test_all_bytes_are_there(self, url: str, size: int) -> None:
        data = os.urandom(1 << 20) * (size // (1 << 20) + 1)
        with upload(url) as sink:
            for at in range(0, size, 777_777):
                sink.write(data[at : min(size, at + 777_777)])
        assert single.read_all(url, MANY) == data[:size]

    def test_a_copy_of_the_server_stands_in_its_place(self, url: str, objects_put: bytes) -> None:
        source = f"{url}-source"
        info = single.head(source)
        assert info is not None
        with upload(url) as sink:
            sink.copy(source, 512, MIN_PART, info.etag)
            sink.write(b"a" * MIN_PART)
            sink.copy(source, 0, MIN_PART + 3, info.etag)
            sink.write(b"end")
        expected = objects_put[512 : 512 + MIN_PART] + b"a" * MIN_PART + objects_put[: MIN_PART + 3] + b"end"
        assert single.read_all(url, MANY) == expected

    @pytest.fixture
    def objects_put(self, url: str) -> bytes:
        data = os.urandom(1 << 20) * 6
        put(f"{url}-source", data)
        return data

    def test_nothing_stays_of_one_that_fails(self, url: str, objects: ObjectServer) -> None:
        class Stop(Exception):
            pass

        place = f"{url}-new"
        with suppress(Stop), upload(place) as sink:
            sink.write(bytes(2 * PART + MIN_PART))
            raise Stop
        assert single.head(place) is None
        objects.between.fault = failing(MANY, (403, "ExpiredToken"), "partNumber=2", "PUT")
        with (
            pytest.raises(NotShards, match=r"x-new: cannot be written \(.*ExpiredToken.*\); check"),
            upload(place) as sink,
        ):
            sink.write(bytes(3 * PART))
        assert uploads_of(place) == []

    def test_a_server_that_takes_no_part_so_small(self, url: str, objects: ObjectServer) -> None:
        place = f"{url}-new"
        objects.between.fault = failing(MANY, (400, "EntityTooSmall"), "uploadId", "POST")
        with pytest.raises(NotShards, match=r"x-new: cannot be written \(EntityTooSmall\)"), upload(place) as sink:
            sink.write(bytes(2 * PART))
        assert single.head(place) is None
        assert uploads_of(place) == []

    def test_one_whose_end_was_done_and_not_answered(self, url: str, objects: ObjectServer) -> None:
        """Asked for again, some stores know nothing of the upload any more."""
        lost = failing(1, "lost", "uploadId", "POST")
        again = failing(MANY, (404, "NoSuchUpload"), "uploadId", "POST")
        objects.between.fault = lambda asked: lost(asked) or again(asked)  # type: ignore[return-value]
        with upload(url) as sink:
            sink.write(bytes(3 * PART))
        assert single.read_all(url, MANY) == bytes(3 * PART)

    def test_those_of_a_neighbour_are_not_found(self, url: str) -> None:
        """Whoever cleans ``curated`` must not end what is being written to ``curated-2``."""
        folder = url.rpartition("/")[0]
        with upload(f"{folder}-2/x") as sink:
            sink.write(bytes(2 * PART))
            assert uploads_of(url) == []
            assert [one.url for one in unended_uploads(f"{folder}-2/")] == [f"{folder}-2/x"]
            assert [one.url for one in unended_uploads(f"{folder}-2/x")] == [f"{folder}-2/x"]
            assert f"{folder}-2/x" in [one.url for one in unended_uploads("s3://tests")]
        assert single.head(f"{folder}-2/x") is not None

    def test_one_that_is_killed_is_found_and_aborted(self, url: str) -> None:
        code = f"""
import os
from shards.io.storage.uploads import PART, upload
with upload({url + "-killed"!r}) as sink:
    sink.write(bytes(3 * PART))
    os._exit(9)
"""
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
        left = list(unended_uploads(url.rpartition("/")[0]))
        assert [one.url for one in left] == [f"{url}-killed"]
        uploads.abort(left[0])
        assert uploads_of(url) == []
        assert single.head(f"{url}-killed") is None


def uploads_of(url: str) -> list[str]:
    return [one.url for one in unended_uploads(url.rpartition("/")[0])]


def test_without_the_extra_a_line_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    clients.configure({})
    with pytest.raises(ShardError, match=r"object stores need obstore; pip install 'curate-bdw\[cloud\]'"):
        single.head("s3://b/x")
