"""SIGKILL at random moments, over every command that writes, and the same command again at once.

The second call ends well, leaves the tree of one that was never killed, and by then nothing of the first is at work.
KILLS=200 asks for more kills than the few that a test can afford.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import toyset
from shard_makers import tree

from curate import cli
from shards.io.engines import local

KILLS = int(os.environ.get("KILLS", "10"))
#: Seconds in which what a killed command started is gone.
GONE_S = 1.0


@dataclass(frozen=True)
class Command:
    """A command of curate's.

    Args:
        words: all but its output.
        output: the option that names it.
        file: below the folder that is compared; none where it is that folder.
        left: what is compared.
        alone_s: in place of `local.SERIAL_S`: with 0 pools start at once, where a small store would be done before.
    """

    words: list[str]
    output: str = "--out"
    file: str = "."
    left: Callable[[Path], Any] = tree
    alone_s: float = 0

    def start(self, out: Path) -> int:
        """Begin in a process and a session of its own, by which all that it starts is found; returns its id.

        Forked, because what is to be killed is the work and not the import of torch.
        """
        if (process := os.fork()) != 0:
            return process
        os.setsid()
        said = os.open(f"{out}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.argv = ["curate", *self.words, self.output, str(out / self.file)]
        sys.stdout = sys.stderr = open(1, "w", closefd=False)  # noqa: SIM115 (for as long as the process lives)
        local.SERIAL_S = self.alone_s
        try:
            cli.main()
        except SystemExit as end:
            os._exit(int(end.code or 0))
        except BaseException:
            traceback.print_exc()
        os._exit(70)

    def finish(self, out: Path) -> float:
        """Run to the end, which must be a good one; returns the seconds that it took."""
        begun = time.monotonic()
        _, status = os.waitpid(self.start(out), 0)
        assert status == 0, Path(f"{out}.txt").read_text()
        return time.monotonic() - begun


def as_words(options: dict[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Command]:
    folder = tmp_path_factory.mktemp("kills")
    toyset.make_data(folder, 160)
    for number, picture in enumerate(toyset.digits()[0][:120]):
        place = folder / "photos" / f"class{number % 3}" / f"{number:04d}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(toyset.png(picture))
        place.with_suffix(".txt").write_text(str(number))
    store = ["--store", str(folder / "store")]
    two = {"workers": 2, "cache_bytes": 0}
    plain = {
        name: value for name, value in toyset.FAST.items() if name in ("size", "crop", "hidden", "batch", "device")
    }
    target = ["--target", str(folder / "target")]
    words = as_words(toyset.FAST | two | {"rewrite": "always"})
    run = Command(["run", *store, *target, *words], left=toyset.same_run, alone_s=0.5)
    run.finish(folder / "run")
    manifest = ["--manifest", str(folder / "run" / "manifests" / "epoch=0001.parquet")]
    words = as_words(plain | two | {"pretext": "reconstruction", "epochs": 3})
    photos = ["pack", "imagefolder", str(folder / "photos"), "--shard-size", "5000"]
    return {
        "run": run,
        "pretrain": Command(["pretrain", *store, *words], left=toyset.same_run, alone_s=0.5),
        "rewrite": Command(["rewrite", *store, *manifest, "--shard-size", "5000", "--workers", "2"]),
        "pack": Command([*photos, "--workers", "2"]),
        "pack a target": Command([*photos, "--target"]),
        "index": Command(["index", str(folder / "store"), "--workers", "2"], "--index", "index.parquet"),
    }


def living(leader: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, session = (place / "stat").read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(session) == leader and state not in "ZX":
            found.append(int(place.name))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize("name", ["run", "pretrain", "rewrite", "pack", "pack a target", "index"])
def test_killed_at_any_moment_and_given_again_at_once(commands: dict[str, Command], tmp_path: Path, name: str) -> None:
    command = commands[name]
    seconds = command.finish(tmp_path / "whole")
    whole = command.left(tmp_path / "whole")
    moments = random.Random(name)
    for number in range(max(1, KILLS // len(commands))):
        out = tmp_path / f"out-{number}"
        process = command.start(out)
        time.sleep(moments.uniform(0.0, 1.0) * seconds)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        killed = time.monotonic()
        if not name.startswith("pack") or not out.exists():  # which never writes over what is there, and whole
            command.finish(out)
        while living(process) and time.monotonic() < killed + GONE_S:
            time.sleep(0.01)
        assert not living(process), f"kill {number}"
        assert command.left(out) == whole, f"kill {number}"
