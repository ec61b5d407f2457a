"""One process at a time writes a folder or a file, and a killed one leaves no lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from shards.errors import Busy, Misuse
from shards.io.atomic import atomic_folder, atomic_write, write_bytes
from shards.io.locks import locked


def holder(folder: Path, with_child: bool = False) -> subprocess.Popen[str]:
    """Another process that has the lock until it is killed; a child of it, forked meanwhile, lives on."""
    code = f"""
import os, time
from pathlib import Path
from shards.io.locks import locked
with locked(Path({str(folder)!r})):
    ready, tell = os.pipe()
    child = os.fork() if {with_child} else 1
    if child:
        # The child is a worker like any other once its own code runs.
        {with_child} and os.read(ready, 1)
        print(child, flush=True)
    else:
        os.write(tell, b"x")
    time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    return process


def test_a_second_process_is_refused_until_the_first_is_killed(tmp_path):
    """It says which folder; nothing is left to clear up."""
    first = holder(tmp_path / "out")
    assert first.stdout is not None
    first.stdout.readline()
    with pytest.raises(Busy, match=r"out: another process is writing this; wait for it"), locked(tmp_path / "out"):
        pytest.fail("locked twice")
    first.kill()
    first.communicate()
    with locked(tmp_path / "out"):
        assert list((tmp_path / "out").iterdir()) == []


def test_a_worker_that_outlives_a_killed_process_does_not_keep_its_lock(tmp_path):
    """Loader processes take seconds to notice, and the same command may come at once."""
    first = holder(tmp_path / "out", with_child=True)
    assert first.stdout is not None
    child = int(first.stdout.readline())
    first.kill()
    first.wait()
    try:
        with locked(tmp_path / "out"):
            os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        first.communicate()


def test_a_folder_made_for_nothing_goes_again(tmp_path):
    """A run that is refused leaves no empty folder, one that was there stays."""
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "new"):
        _ = 1 / 0
    assert not (tmp_path / "new").exists()
    (tmp_path / "old").mkdir()
    with locked(tmp_path / "old"):
        pass
    assert (tmp_path / "old").is_dir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Misuse, match="not a folder"), locked(tmp_path / "file"):
        pytest.fail("locked a file")


def test_two_writers_of_one_file_or_folder_never_mix(tmp_path):
    """The second is refused, and the first's bytes are those that appear."""
    with atomic_write(tmp_path / "file") as file:
        file.write(b"first")
        with pytest.raises(Busy):
            write_bytes(tmp_path / "file", b"second")
    assert (tmp_path / "file").read_bytes() == b"first"
    with atomic_folder(tmp_path / "folder") as folder:
        (folder / "a").write_bytes(b"first")
        with pytest.raises(Busy), atomic_folder(tmp_path / "folder"):
            pytest.fail("filled twice")
    assert (tmp_path / "folder" / "a").read_bytes() == b"first"


def test_what_a_kill_left_is_overwritten_whole(tmp_path):
    """A longer leftover shows nowhere."""
    (tmp_path / ".file.partial").write_bytes(b"x" * 100)
    write_bytes(tmp_path / "file", b"new")
    (tmp_path / ".folder.partial" / "deep").mkdir(parents=True)
    (tmp_path / ".folder.partial" / "deep" / "x").write_bytes(b"x")
    with atomic_folder(tmp_path / "folder") as folder:
        (folder / "a").write_bytes(b"a")
    assert (tmp_path / "file").read_bytes() == b"new"
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["file", "folder"]
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["a"]
