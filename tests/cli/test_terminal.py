"""What a terminal and a log see: bars or lines, how much of them, completion, the environment, slips of the finger."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import termios

import pytest
import toyset
from click.testing import CliRunner
from test_cli import curate, python

from curate import console, progress
from curate.cli import VERBS
from curate.cli import curate as command
from curate.types import EpochReport


@pytest.fixture(autouse=True)
def as_before():
    """What is told is a setting of the process."""
    yield
    console.set_up()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The options that name a store and a target, and those of a fast run."""
    folder = tmp_path_factory.mktemp("terminal")
    toyset.make_store(folder / "store", 48)
    toyset.make_target(folder / "target", 30)
    fast = {"store": folder / "store", "target": folder / "target", **toyset.FAST, "epochs": 1}
    return [part for k, v in fast.items() for part in (f"--{k.replace('_', '-')}", str(v))]


class TestLinesInALog:
    def test_no_bar_is_redrawn_and_the_end_is_a_line(self, place, tmp_path):
        """Where stderr is no terminal there is no carriage return: a line with what is done and at which rate."""
        _, err = curate("run", *place, "--out", tmp_path / "run")
        assert "\r" not in err
        assert re.search(r"^weigh epoch 1/1 kept 100%: 100%, 48/48 img \[.* to go, .*img/s, loss ", err, re.MULTILINE)

    def test_a_finished_run_has_no_bar(self, place, tmp_path):
        """Called again, it has nothing to do that a bar could show."""
        curate("run", *place, "--out", tmp_path / "run")
        out, err = curate("run", *place, "--out", tmp_path / "run")
        assert out.startswith("kept ")
        assert "img" not in err

    def test_a_line_every_half_minute_at_most(self, capsys, monkeypatch):
        """Of many steps, those that fall half a minute after the last line."""
        clock = Clock()
        monkeypatch.setattr(progress, "time", clock)
        with progress._Bar(total=1000, unit="img", desc="features", leave=False) as bar:
            for _ in range(10):
                clock.now += 8
                bar.update(10)
                bar.display()
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 2
        assert lines[0].startswith("features: 4%, 40/1000 img [")
        assert lines[1].startswith("features: 8%, 80/1000 img [")

    def test_a_terminal_has_its_bar(self, place, tmp_path):
        """The bar is drawn over itself there, and no line is told besides."""
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(ours, (24, 100))
        call = [sys.executable, "-m", "curate", "run", *place, "--out", str(tmp_path / "run")]
        with subprocess.Popen(call, stderr=theirs, stdout=subprocess.DEVNULL) as running:
            os.close(theirs)
            seen = b"".join(read_all(ours))
            assert running.wait() == 0
        assert re.search(rb"\rweigh epoch 1/1[^\n]*48/48", seen), seen
        assert b" to go" not in seen


class TestHowMuchIsTold:
    def test_quiet_leaves_the_result_alone(self, place, tmp_path):
        """Neither progress nor notes; the result is on stdout all the same."""
        out, err = curate("-q", "run", *place, "--out", tmp_path / "run")
        assert out.startswith("kept ")
        assert err == ""

    def test_quiet_shows_errors(self, tmp_path):
        """They are what went wrong."""
        _, err = curate("-q", "index", tmp_path / "nowhere", code=1)
        assert err.startswith("Error: ")

    def test_verbose_tells_every_epoch(self, place, tmp_path):
        """Its numbers, and the seconds of its stages."""
        _, err = curate("-v", "run", *place, "--out", tmp_path / "run")
        assert re.search(r"^epoch 1: 48 images, \d+ kept, \d+ pruned; .*pretext_loss .*; seconds: .*step ", err, re.M)

    def test_a_log_file_has_the_lines_with_times_even_of_a_quiet_run(self, place, tmp_path):
        """And grows with the next command."""
        log = tmp_path / "curate.log"
        _, err = curate("-q", "--log-file", log, "run", *place, "--out", tmp_path / "run")
        assert err == ""
        lines = log.read_text().splitlines()
        assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \S", line) for line in lines)
        assert any("48/48 img" in line for line in lines)
        curate("--log-file", log, "index", tmp_path / "nowhere", code=1)
        assert log.read_text().splitlines()[len(lines) :][0].split(" ", 2)[2].startswith("Error: ")

    def test_no_line_tells_a_secret(self, capsys):
        """Whatever its level."""
        console.set_up(verbose=True)
        try:
            for tell in (console.error, console.warning, console.note, console.progress, console.detail):
                tell("reading https://me:secret@host/0.tar?X-Amz-Signature=secret")
                assert capsys.readouterr().err.count("https://host/0.tar") == 1
        finally:
            console.set_up()

    def test_a_log_that_cannot_be_written_is_an_error(self, tmp_path):
        """One line, before any work."""
        _, err = curate("--log-file", tmp_path / "no" / "log", "index", ".", code=1)
        assert err.startswith("Error: --log-file ")
        assert err.count("\n") == 1

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
    def test_a_log_on_a_full_disk_is_an_error(self, place, tmp_path):
        """It is no traceback of the standard library's."""
        _, err = curate("-v", "--log-file", "/dev/full", "run", *place, "--out", tmp_path / "run", code=1)
        assert "Traceback" not in err
        assert err.splitlines()[-1] == "Error: input or output: No space left on device"

    def test_a_report_with_other_numbers_is_told(self, capsys):
        """What an engine measured may be more than numbers."""
        console.set_up(verbose=True)
        progress.Bar("x").report(EpochReport(2, 10, 8, 2, {"loss": 0.5, "of": None}, {"train": 1.0}))
        assert capsys.readouterr().err == "epoch 2: 10 images, 8 kept, 2 pruned; loss 0.5; seconds: train 1.0\n"


class TestConfig:
    def test_what_is_printed_is_taken_and_is_the_same_run(self, place, tmp_path):
        """As TOML and as JSON: the id is that of the options themselves."""
        for name, more in (("c.toml", []), ("c.json", ["--json"])):
            (tmp_path / name).write_text(curate("config", *place, *more)[0])
        ids = []
        for number, options in enumerate((place, ["--config", tmp_path / "c.toml"], ["--config", tmp_path / "c.json"])):
            out, _ = curate("run", *options, "--out", tmp_path / f"{number}", "--json")
            ids.append(json.loads(out)["run_id"])
        assert len(set(ids)) == 1

    @pytest.mark.parametrize(
        "more", [["--method", "uniform"], ["--method", "classifier"], ["--method", "dw"], ["--paper"]]
    )
    def test_every_method_is_printed_and_taken(self, more, tmp_path):
        """What it prints, it prints again when it is given it."""
        first, _ = curate("config", "--store", "s", "--target", "t", *more)
        (tmp_path / "c.toml").write_text(first)
        assert curate("config", "--config", tmp_path / "c.toml")[0] == first

    def test_defaults_are_those_of_a_run(self):
        """The small network, and the prior."""
        out, _ = curate("config", "--store", "it's\ta \\ \x7f store", "--target", "t", "--json")
        found = json.loads(out)
        assert (found["network"]["network"], found["belief"]["prior"], found["train"]["epochs"]) == (
            "small",
            "classifier",
            10,
        )
        assert found["store"] == "it's\ta \\ \x7f store"
        assert "allow_pipe" not in found["machine"]

    def test_names_of_any_kind_survive_toml(self, tmp_path):
        """Quotes, tabs, a bare DEL and letters of any script."""
        name = 'it\'s "a"\t\\ \x7f 🐈 store'
        (tmp_path / "c.toml").write_text(curate("config", "--store", name, "--target", "t")[0], encoding="utf-8")
        assert json.loads(curate("config", "--config", tmp_path / "c.toml", "--json")[0])["store"] == name

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("epoks = 3", "c.toml: epoks: not an option of a run (did you mean epochs?)\n"),
            ("xyzzy = 3", "c.toml: xyzzy: not an option of a run; known: allow_pipe, "),
            ("epochs = 'two'", "c.toml: --epochs 'two': expected int"),
            ("[trian]\nepochs = 3", "trian: not an option of a run"),
            ("meta-loss = 'prototypical'\nmeta_loss = 'self-supervised'", "meta_loss is 'prototypical' and 'self-supe"),
            ("epochs = 3\n[train]\nepochs = 4", "epochs is 3 and 4; leave one of the two out"),
        ],
    )
    def test_slips_in_a_file_are_named(self, text, message, tmp_path):
        """The key that may be meant, and the two values of one."""
        (tmp_path / "c.toml").write_text(text)
        _, err = curate("config", "--store", "s", "--target", "t", "--config", tmp_path / "c.toml", code=2)
        assert message in err
        assert err.count("\n") == 1

    def test_dashes_are_as_good_as_underscores(self, tmp_path):
        """As on the command line, in a table or not."""
        (tmp_path / "c.toml").write_text("meta-loss = 'prototypical'\n[train]\nweight-decay = 0.5\n")
        found = json.loads(
            curate("config", "--store", "s", "--target", "t", "--config", tmp_path / "c.toml", "--json")[0]
        )
        assert (found["meta"]["meta_loss"], found["train"]["weight_decay"]) == ("prototypical", 0.5)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["rnu"], "No such command 'rnu' (did you mean run?)."),
        (["zzzz"], "No such command 'zzzz'."),
        (["run", "--epoks", "3"], "--epochs"),
        (["pack", "imagefolders"], "imagefolder"),
    ],
)
def test_what_may_have_been_meant(typed, meant):
    """Of verbs, options and packers."""
    _, err = curate(*typed, code=2)
    assert meant in err


def test_the_environment_gives_options(tmp_path):
    """CURATE_VERB_OPTION, where the command line is silent."""
    told = {
        "CURATE_CONFIG_EPOCHS": "7",
        "CURATE_CONFIG_STORE": "s",
        "CURATE_CONFIG_TARGET": "t",
        "CURATE_CONFIG_SEED": "3",
    }
    done = CliRunner().invoke(command, ["config", "--json", "--seed", "4"], env=told, prog_name="curate")
    found = json.loads(done.stdout)
    assert (found["train"]["epochs"], found["seed"]) == (7, 4)


def test_python_m_curate():
    """Where the command is not on the path."""
    call = [sys.executable, "-m", "curate", "--version"]
    assert subprocess.run(call, capture_output=True, text=True, check=True).stdout.startswith("curate, version ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell):
    """The script asks `curate` itself, which answers with verbs and options."""
    assert "_CURATE_COMPLETE" in curate("completion", shell)[0]
    for typed, wanted in (("ver", "verify"), ("run --meta-mo", "--meta-momentum"), ("run --pretext ro", "rotation")):
        words = f"curate {typed}"
        asked = {
            "_CURATE_COMPLETE": f"{shell}_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        }
        if shell == "fish":
            asked["COMP_CWORD"] = words.split()[-1]
        done = subprocess.run(
            [sys.executable, "-m", "curate"], env=os.environ | asked, capture_output=True, text=True, check=False
        )
        assert wanted in done.stdout, done


def test_lines_of_verbs_are_whole_and_of_all():
    """The help's table is of its own, so that no verb is loaded for it."""
    out, _ = curate("--help")
    for verb, line in VERBS.items():
        assert re.search(rf"^  {verb} +{re.escape(line)}$", out, re.MULTILINE)
    code = "import sys\nfrom click.testing import CliRunner\nfrom curate.cli import curate\n"
    code += "CliRunner().invoke(curate, ['--help'])\n"
    code += "print(*(m for m in sys.modules if m.startswith(('curate.cli.', 'curate.config', 'tqdm', 'msgspec'))))"
    assert python(code).stdout.split() == []


def test_what_a_newcomer_needs_stands_first():
    """The first section of run's help has few options, and what is asked for less follows by topic."""
    out, _ = curate("run", "--help")
    first = out.split("\nOptions:")[1].split("\n\n")[0]
    assert re.findall(r"^  (?:-h, )?(--[a-z-]+)", first, re.MULTILINE) == [
        *("--store", "--target", "--out", "--dry-run", "--method", "--pretext", "--epochs", "--device", "--help")
    ]
    sections = re.findall(r"^(\S.*):$", out.split("\nOptions:")[1], re.MULTILINE)
    assert sections[:3] == [
        "Options from elsewhere, and the result as data",
        "The run itself",
        "Plain SGD on the store",
    ]
    assert len(sections) == 12


class Clock:
    """A clock that is turned by hand."""

    now = 0.0

    def monotonic(self):
        return self.now


def read_all(descriptor):
    """What is written to a terminal until its other side is closed."""
    while True:
        try:
            part = os.read(descriptor, 65536)
        except OSError:
            return
        if not part:
            return
        yield part
