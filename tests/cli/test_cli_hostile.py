"""The command line as a hostile or unlucky user has it: odd places, locales and pipes; one line, no traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
import toyset

from curate.ledger import ledger
from curate.runs import checkpoint
from shards.io import shard_set

COMMAND = "import sys; sys.argv[0] = 'curate'; from curate.cli import main; main()"
FAST = [
    *("--pretext", "reconstruction", "--meta-loss", "self-supervised", "--size", "8", "--crop", "8", "--hidden", "8"),
    *("--epochs", "1", "--batch", "16", "--target-batch", "8", "--workers", "0", "--device", "cpu"),
]
#: Root may do anything; without its capabilities permissions hold for it, too.
PLAIN = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
needs_plain = pytest.mark.skipif(bool(PLAIN) and shutil.which("setpriv") is None, reason="root, and no setpriv")


def curate(*arguments, prefix=(), stdout=subprocess.PIPE, **environment):
    """The command in a process of its own: exit code, stdout, the lines of stderr that are errors."""
    done = subprocess.run(
        [*prefix, sys.executable, "-c", COMMAND, *map(os.fspath, arguments)],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env=os.environ | environment,
        check=False,
    )
    said = done.stderr.decode("utf-8", "surrogateescape")
    assert "Traceback" not in said, said
    errors = [line.strip() for line in said.splitlines() if line.startswith("Error")]
    return done.returncode, (done.stdout or b"").decode("utf-8", "surrogateescape"), errors


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A store, a target and a run of an epoch."""
    folder = tmp_path_factory.mktemp("odd")
    toyset.make_data(folder, 32)
    toyset.run_on(folder, folder / "run", epochs=1, lam=0.1)
    return folder


def test_a_full_standard_output_is_called_so(world):
    """The system's error names no file."""
    with open("/dev/full", "wb") as full:
        code, _, errors = curate("ledger", world / "run", stdout=full)
    assert (code, errors) == (1, ["Error: standard output: No space left on device"])


def test_a_reader_that_stops_is_no_traceback(world):
    """curate ... | head -1."""
    ours, theirs = os.pipe()
    os.close(ours)
    code, _, errors = curate("ledger", world / "run", "--json", stdout=theirs)
    os.close(theirs)
    assert (code, errors) == (1, [])


@pytest.mark.parametrize("locale", [{"LC_ALL": "C"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}])
def test_the_locale_changes_no_name(world, tmp_path, locale):
    """A store beyond ASCII is read under any; in Latin-1 its keys would be others."""
    place = tmp_path / "caf\u00e9 \u2603"
    place.mkdir()
    (place / "\u00e9.png").write_bytes(toyset.png(toyset.digits()[0][0]))
    code, _, errors = curate("pack", "imagefolder", place, "--out", tmp_path / "\u2603", **locale)
    assert (code, errors) == (0, [])
    assert curate("index", tmp_path / "\u2603", **locale)[0] == 0
    assert toyset.indexed(tmp_path / "\u2603").table["key"].to_pylist() == ["\u00e9"]


def test_a_place_that_is_not_utf8_is_refused_before_the_work(world, tmp_path):
    """Parquet files there could not be read back, which a run found out at its end."""
    odd = os.path.join(os.fsencode(tmp_path), b"caf\xe9")
    asked = ["run", "--store", world / "store", "--target", world / "target", *FAST, "--out"]
    code, _, errors = curate(*asked, os.fsdecode(odd))
    assert (code, len(errors)) == (2, 1)
    assert "its name is not UTF-8" in errors[0]
    shutil.copytree(world / "run" / "curated", os.fsdecode(odd))
    code, _, errors = curate("verify", os.fsdecode(odd))
    assert code == 2
    assert errors[0].endswith("its name is not UTF-8; rename it, or a folder on the way to it")


def test_a_name_of_several_lines_is_one_line(tmp_path):
    """Escaped, as are the escapes that colour a terminal."""
    for name in ("a\nb.png", "\x1b[31m.png"):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_bytes(b"x")
    (tmp_path / "in" / "c.png").write_bytes(toyset.png(toyset.digits()[0][0]))
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, "pack", "imagefolder", tmp_path / "in", "--out", tmp_path / "out"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stderr.splitlines()) == 2
    assert "\x1b" not in done.stderr


@needs_plain
def test_what_may_not_be_read_or_written_is_named(world, tmp_path):
    """Whoever asks: a folder, a shard, a class, an output."""
    store = tmp_path / "store"
    shutil.copytree(world / "store", store)
    (tmp_path / "shut").mkdir()
    (tmp_path / "classes" / "a").mkdir(parents=True)
    for path in (store / "000001.tar", tmp_path / "shut", tmp_path / "classes" / "a"):
        path.chmod(0)
    (tmp_path / "fixed").mkdir(mode=0o555)
    for asked, said in (
        (["index", store], "000001.tar: cannot be opened (Permission denied)"),
        (["index", tmp_path / "shut"], f"{tmp_path}/shut: Permission denied"),
        (["pack", "imagefolder", tmp_path / "shut", "--out", tmp_path / "o"], f"'{tmp_path}/shut' is not readable."),
        (
            ["pack", "imagefolder", tmp_path / "classes", "--target", "--out", tmp_path / "o"],
            f"{tmp_path}/classes/a: Permission denied",
        ),
        (["index", world / "store", "--index", tmp_path / "fixed" / "i.parquet"], "Permission denied"),
    ):
        code, _, errors = curate(*asked, prefix=PLAIN)
        assert code in (1, 2)
        assert len(errors) == 1
        assert errors[0].removeprefix("Error: ").partition("; ")[0].endswith(said), (asked, errors)


@needs_plain
def test_checkpoints_that_may_not_be_listed_are_not_taken_for_none(world, tmp_path):
    """A run would begin anew, and remove its ledger first."""
    run = tmp_path / "run"
    shutil.copytree(world / "run", run)
    (run / "checkpoints").chmod(0)
    before = sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if "checkpoints" not in str(path))
    asked = ["evaluate", run, "--target", world / "target", "--device", "cpu"]
    code, _, errors = curate(*asked, prefix=PLAIN)
    assert (code, errors) == (1, [f"Error: {run}/checkpoints: Permission denied"])
    after = sorted(path.relative_to(run).as_posix() for path in run.rglob("*") if "checkpoints" not in str(path))
    assert before == after


def test_what_cannot_be_listed_is_an_error(tmp_path, monkeypatch):
    """For ledger and checkpoints alike; what is not there is none."""
    assert ledger.epochs(tmp_path) == checkpoint.finished(tmp_path) == []
    (tmp_path / "ledger").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        ledger.epochs(tmp_path)
    (tmp_path / "checkpoints").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        checkpoint.finished(tmp_path)


def test_an_index_goes_to_a_file(world, tmp_path):
    """Said before every header is read."""
    (tmp_path / "i.parquet").mkdir()
    (tmp_path / "file").write_bytes(b"")
    for place in (tmp_path / "i.parquet", tmp_path / "file" / "i.parquet"):
        code, _, errors = curate("index", world / "store", "--index", place)
        assert code == 2
        assert "is a folder, or lies in what is none; say with --index which file" in errors[0]


def test_what_curate_puts_beside_shards_is_no_news(world, tmp_path):
    """The second index of a store reports as the first."""
    shutil.copytree(world / "run" / "curated", tmp_path / "s")
    (tmp_path / "s" / "mine.json").write_bytes(b"")
    assert shard_set.resolve(tmp_path / "s").passed_over.others == {".json": 1}
