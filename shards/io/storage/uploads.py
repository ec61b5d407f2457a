"""Large objects, written part by part: nothing is there before the last part is, and nothing stays of one that fails.

On S3 the parts go through boto3, which can also have the server copy one from another object; on other stores the bytes
are spooled to a temporary file, and obstore sends them when they are all there.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from shards.errors import ShardError
from shards.io.storage.clients import as_shard_error, open_store, split_url
from shards.io.storage.objects import head, put
from shards.io.storage.s3_client import of_new_object, of_request, s3

#: Bytes of a part; S3 takes none smaller than `MIN_PART` but the last, none larger than `MAX_PART`, and so many.
PART, MIN_PART, MAX_PART, MAX_PARTS = 8 << 20, 5 << 20, 5 << 30, 10_000
#: Parts under way at a time.
CONCURRENT = 4


class Upload(Protocol):
    """An object that is being written."""

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes; returns their number."""

    def copy(self, url: str, offset: int, size: int, etag: str | None) -> None:
        """Append bytes of another object, which do not come here. On S3 alone.

        Args:
            size: `MIN_PART` to `MAX_PART`; what was written since the last copy is at least `MIN_PART`, or nothing.
            etag: what the other object's ETag must be.
        """


@contextmanager
def upload(url: str, size: int = 0) -> Iterator[Upload]:
    """An object to write, that appears when the block ends without an exception, and otherwise not.

    Args:
        size: bytes to come, as far as that is known: very large objects need larger parts.

    Raises:
        NotShards: it cannot be written; its parts are dropped.
    """
    if split_url(url)[0] not in ("s3", "s3a"):
        with _spooled(url) as file:
            yield file
        return
    parts = _Parts(url, max(PART, -(-size // (MAX_PARTS - 1))))
    try:
        yield parts
        parts.complete()
    except BaseException:
        parts.abort()
        raise


def send_file(path: Path, url: str, before_the_end: Callable[[], object] = lambda: None) -> None:
    """Write a file as an object, in place of one that is there.

    Args:
        before_the_end: called when the object is about to appear; it does not where this raises.

    Raises:
        NotShards: it cannot be written.
    """
    size = path.stat().st_size
    if size <= PART:
        data = path.read_bytes()
        before_the_end()
        put(url, data)
        return
    with open(path, "rb") as file, upload(url, size) as sink:
        while data := file.read(PART):
            sink.write(data)
        before_the_end()


@contextmanager
def _spooled(url: str) -> Iterator[Upload]:
    import obstore

    store, key = open_store(url)
    with tempfile.TemporaryFile() as file:
        yield cast(Upload, file)
        file.seek(0)
        with as_shard_error("cannot be written", url):
            obstore.put(store, key, file, chunk_size=PART, max_concurrency=CONCURRENT)


class _Parts:
    """An upload to S3. Below one part it is a plain put, so that nothing can be left of it."""

    def __init__(self, url: str, part_size: int) -> None:
        _, self._bucket, self._key = split_url(url)
        self._url, self._part_size, self._pending = url, part_size, bytearray()
        self._id: str | None = None
        self._parts: list[Future[str]] = []
        self._running: deque[Future[str]] = deque()
        self._pool = ThreadPoolExecutor(CONCURRENT)

    def write(self, data: bytes | memoryview) -> int:
        self._pending += data
        while len(self._pending) >= self._part_size + MIN_PART:  # so that what stays is never too small a part
            self._send(self._part_size)
        return len(data)

    def copy(self, url: str, offset: int, size: int, etag: str | None) -> None:
        if self._pending:
            self._send(len(self._pending))
        _, bucket, key = split_url(url)
        asked = {
            "CopySource": {"Bucket": bucket, "Key": key},
            "CopySourceRange": f"bytes={offset}-{offset + size - 1}",
        }
        self._begin("upload_part_copy", url, asked | ({"CopySourceIfMatch": etag} if etag else {}))

    def complete(self) -> None:
        """Send what is left, and have the object appear."""
        if self._id is None and len(self._pending) < MIN_PART:
            put(self._url, bytes(self._pending))
        else:
            if self._pending:
                self._send(len(self._pending))
            self._join([part.result() for part in self._parts])
        self._pool.shutdown()

    def _join(self, etags: list[str]) -> None:
        told = {"Parts": [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, start=1)]}
        try:
            with self._errors(self._url):
                s3().complete_multipart_upload(**self._names(), MultipartUpload=told)
        except ShardError:
            found = head(self._url)
            if found is None or found.etag != _etag_of(etags):  # else only the answer was lost
                raise

    def abort(self) -> None:
        """Drop the parts; where that fails, too, `curate clean` finds them."""
        self._pool.shutdown(cancel_futures=True)
        if self._id is not None:
            with suppress(ShardError):
                abort(Unended(self._url, self._id))

    def _send(self, size: int) -> None:
        with memoryview(self._pending) as pending:
            data = bytes(pending[:size])
        del self._pending[:size]
        self._begin("upload_part", self._url, {"Body": data})

    def _begin(self, method: str, about: str, asked: dict[str, Any]) -> None:
        """Start a request for the next part, after a wait where many are under way."""
        if len(self._running) >= CONCURRENT:
            self._running.popleft().result()
        self._parts.append(self._pool.submit(self._part, method, about, len(self._parts) + 1, self._names(), asked))
        self._running.append(self._parts[-1])

    def _part(self, method: str, about: str, number: int, names: dict[str, Any], asked: dict[str, Any]) -> str:
        with self._errors(about):
            answer = getattr(s3(), method)(**names, PartNumber=number, **asked)
            return str(answer.get("CopyPartResult", answer)["ETag"])

    def _names(self) -> dict[str, Any]:
        names = {"Bucket": self._bucket, "Key": self._key} | of_request()
        if self._id is None:
            with self._errors(self._url):
                self._id = s3().create_multipart_upload(**names, **of_new_object())["UploadId"]
        return names | {"UploadId": self._id}

    def _errors(self, url: str) -> Any:
        return as_shard_error("cannot be written" if url == self._url else "cannot be copied at the server", url)


def _etag_of(parts: list[str]) -> str | None:
    """The ETag of an object of parts by theirs, where these are hashes of their bytes; else None."""
    plain = [part.strip('"') for part in parts]
    if not all(re.fullmatch("[0-9a-f]{32}", part) for part in plain):
        return None
    return f'"{hashlib.md5(bytes.fromhex("".join(plain)), usedforsecurity=False).hexdigest()}-{len(parts)}"'


class Unended(NamedTuple):
    """An upload that was begun and neither completed nor aborted."""

    url: str
    id: str


def unended_uploads(url: str) -> Iterator[Unended]:
    """The uploads of an object of S3, or below a folder, that have no end; of other stores none are known.

    Raises:
        NotShards: they cannot be listed.
    """
    scheme, bucket, key = split_url(url)
    if scheme not in ("s3", "s3a"):
        return
    with as_shard_error("uploads cannot be listed", url):
        asked = {"Bucket": bucket, "Prefix": key.rstrip("/")} | of_request()
        for page in s3().get_paginator("list_multipart_uploads").paginate(**asked):
            for one in page.get("Uploads", []):
                if f"{one['Key']}/".startswith(f"{key.rstrip('/')}/".lstrip("/")):  # not of a name that only begins so
                    yield Unended(f"{scheme}://{bucket}/{one['Key']}", one["UploadId"])


def abort(one: Unended) -> None:
    """Drop the parts of an upload; raises `NotShards` where that fails."""
    _, bucket, key = split_url(one.url)
    with as_shard_error("the upload cannot be aborted", one.url):
        s3().abort_multipart_upload(Bucket=bucket, Key=key, UploadId=one.id, **of_request())
