"""A server of files on this machine that answers byte ranges, counts what it sent, and fails where it is told to."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Served:
    """What a server is asked and does.

    Args:
        failures: status codes that the next answers have, first to last, before any file is sent.
        whole: whether it sends whole files only, as one does that knows no ranges.
        sent: bytes of every answer.
    """

    url: str = ""
    failures: list[int] = field(default_factory=list)
    whole: bool = False
    sent: list[int] = field(default_factory=list)


@contextmanager
def serving_ranges(folder: Path) -> Iterator[Served]:
    """Serve a folder at ``url``."""
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if served.failures:
                self.send_error(served.failures.pop(0))
                return
            data = (folder / self.path.lstrip("/")).read_bytes()
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            whole = asked is None or served.whole
            part = data if whole else data[int(asked[1]) : int(asked[2]) + 1]
            served.sent.append(len(part))
            self.send_response(200 if whole else 206)
            self.send_header("Content-Length", str(len(part)))
            self.end_headers()
            self.wfile.write(part)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        served.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield served
        server.shutdown()
        thread.join()
