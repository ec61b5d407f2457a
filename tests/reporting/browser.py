"""Chromium without a window, asked through the pipes of its debugging protocol: no package is needed for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: The browser of this machine; None where there is none.
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """A page in a browser of some width.

    Args:
        to, back: pipes; messages are JSON, each ended by a zero byte.
    """

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._rest, self._number = to, back, b"", 0
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for part in ("Page", "Network", "Log", "Runtime"):
            self.call(f"{part}.enable", session=True)

    def call(self, method: str, *, session: bool = False, **parameters: Any) -> dict[str, Any]:
        """What the browser answers; events on the way are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if session else {}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            got = os.read(self._back, 1 << 16)
            assert got, "the browser has ended"
            self._rest += got
        line, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        return message

    def open(self, page: Path, width: int, scheme: str) -> None:
        """Show a file in a window of so many pixels, light or dark, until it is loaded."""
        self.events.clear()
        shape = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", session=True, **shape)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", session=True, features=features)
        self.call("Page.navigate", session=True, url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def ask(self, expression: str) -> Any:
        """The value of an expression on the page."""
        return self.call("Runtime.evaluate", session=True, expression=expression, returnByValue=True)["result"]["value"]

    def requests(self) -> list[str]:
        """What was asked for since the page was opened, but for what lies in the page itself."""
        urls = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [url for url in urls if not url.startswith("data:")]

    def complaints(self) -> list[dict[str, Any]]:
        """Errors, warnings, and whatever a script says."""
        loud = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Page.javascriptDialogOpening")
        return [event for event in self.events if event.get("method") in loud]


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own, which ends with the block."""
    theirs, to = os.pipe()
    back, answers = os.pipe()

    def as_three_and_four() -> None:
        first, second = os.dup(theirs), os.dup(answers)  # one of them may be 3 or 4 itself
        os.dup2(first, 3)
        os.dup2(second, 4)

    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}")
    process = subprocess.Popen(
        [str(CHROMIUM), *flags], preexec_fn=as_three_and_four, close_fds=False, stderr=subprocess.DEVNULL
    )
    os.close(theirs)
    os.close(answers)
    try:
        yield Browser(to, back)
    finally:
        process.kill()
        process.wait()
        os.close(to)
        os.close(back)
