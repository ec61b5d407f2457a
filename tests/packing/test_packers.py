"""The table of packers: its rows say what their functions take, and a row from outside has a command."""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from dataclasses import dataclass

import pytest
from click.testing import CliRunner
from shard_makers import tree
from toyset import digits, png

import curate
import shards
from curate.config.packers import PACKERS, PackerSpec, PackOption
from curate.errors import CurateError, Misuse
from shards.io.parallel import on_progress


@dataclass(frozen=True)
class Report:
    """What the toy packer was called with."""

    source: str
    seed: int
    given: dict[str, object]

    def text(self):
        return f"packed {self.source}"

    def remarks(self):
        return ["note: a toy"]


def toy(source, *, out, seed=0, **given):
    return Report(source.name, seed, {"out": out.name, **given})


TOY = {
    "title": "toys",
    "layout": "a box",
    "source": "box",
    "is_file": True,
    "examples": ("box.npz --out toys",),
    "options": (
        PackOption("how_many", "Toys.", int, (1, 5)),
        PackOption("red", "Red ones.", bool),
        PackOption("kinds", "Kinds.", parse=lambda text: text.split("+"), required=True, metavar="A+B"),
        PackOption("by", "Maker.", default="us"),
    ),
}


@pytest.fixture
def command(monkeypatch):
    """`curate` with the toy packer; the verbs are loaded anew, as their commands are those of then."""
    list(PACKERS)
    monkeypatch.setattr(PACKERS, "_rows", dict(PACKERS._rows))
    for name in [name for name in sys.modules if name.startswith("curate.cli")]:
        monkeypatch.delitem(sys.modules, name)
    curate.register_packer("toy", toy, **TOY)
    return importlib.import_module("curate.cli").curate


def pack(command, *arguments, code=0):
    result = CliRunner().invoke(command, ["pack", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize("name", list(PACKERS))
def test_a_row_is_what_its_function_takes(name):
    """Every option is an argument by name of the typed call; each of its arguments is an option, or of all packers."""
    spec = PACKERS.spec(name)
    typed = inspect.signature(getattr(shards, f"pack_{name}")).parameters
    keywords = {one for one, parameter in typed.items() if parameter.kind is parameter.KEYWORD_ONLY}
    assert callable(PACKERS[name])
    extra = {"stl10": {"download"}, "decathlon": set()}.get(name, set())
    beside = {"out", "seed", "shard_size", *(["labelled"] if name == "decathlon" else [])}
    assert {option.name for option in spec.options} - extra == keywords - beside
    required = {one for one in keywords if typed[one].default is inspect.Parameter.empty} - {"out"}
    assert required == {option.name for option in spec.options if option.required}


def test_a_registered_packer_is_a_command(command, tmp_path):
    """Its options are parsed, those not given left to its own defaults, defaults of the row passed on."""
    (tmp_path / "box.npz").touch()
    words = ["toy", tmp_path / "box.npz", "--out", tmp_path / "t", "--kinds", "a+b"]
    result = pack(command, *words, "--how-many", 2, "--red", "--seed", 3, "--shard-size", 9, "--json")
    wanted = {"out": "t", "how_many": 2, "red": True, "kinds": ["a", "b"], "by": "us", "shard_size": 9}
    assert json.loads(result.stdout) == {"source": "box.npz", "seed": 3, "given": wanted}
    assert result.stderr == "note: a toy\n"
    plain = pack(command, *words)
    assert plain.stdout == "packed box.npz\n"
    bare = json.loads(pack(command, *words, "--json").stdout)["given"]
    assert bare == {"out": "t", "kinds": ["a", "b"], "by": "us"}


def test_the_help_of_a_registered_packer_is_its_row(command):
    """Title, source, options with their limits, and examples."""
    text = pack(command, "toy", "--help").stdout
    for part in ("Pack toys.", "BOX", "curate pack toy box.npz --out toys", "1<=x<=5", "A+B", "[default: us]"):
        assert part in text
    assert "toy          a box -> store\n" in pack(command, "--help").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.npz", "--kinds", "a"], "does not exist"),
        (["{box}", "--kinds", "a", "--how-many", "6"], "6 is not in the range"),
        (["{box}"], "Missing option '--kinds'"),
    ],
)
def test_what_a_command_refuses(command, tmp_path, words, said):
    """Misuse, by the row."""
    (tmp_path / "box.npz").touch()
    arguments = [word.format(box=tmp_path / "box.npz") for word in words]
    assert said in pack(command, "toy", *arguments, "--out", tmp_path / "t", code=2).output


def test_pack_by_name_is_the_typed_call(tmp_path):
    """The same shards, byte for byte, and the same report."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for number, pixels in enumerate(digits()[0][:6]):
        (photos / f"{number}.png").write_bytes(png(pixels))
    ours = curate.pack("imagefolder", photos, out=tmp_path / "a", shard_size=2_000)
    theirs = shards.pack_imagefolder(photos, out=tmp_path / "b", shard_size=2_000)
    assert ours == theirs
    assert ours.text().startswith("packed 6 images; left out 0")
    assert tree(tmp_path / "a") == tree(tmp_path / "b")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: curate.pack("wax", "x", out="y"), "packer wax: unknown; known: imagefolder, idx"),
        (
            lambda: curate.pack("imagefolder", "x", out="y", shuffle=True),
            "shuffle: not an option of packer imagefolder",
        ),
        (lambda: curate.pack("idx", ["x"], out="y"), "packer idx: needs own; give it"),
        (lambda: curate.pack("imagefolder", ["x", "z"], out="y"), "packer imagefolder: takes one folder, not 2"),
        (lambda: shards.pack_imagefolder("x", out="y", split=(1.0, 0.0, 0.0)), "--split: only with --target"),
        (lambda: shards.pack_imagefolder("x", out="y", labels="l.csv"), "--labels: only with --target"),
    ],
)
def test_what_a_call_refuses(call, said):
    """One line: what is wrong, and what there is."""
    with pytest.raises(Misuse) as caught:
        call()
    assert said in str(caught.value)


def test_a_row_whose_function_is_lost_is_told_by_name(command):
    """The row is there; what it names is not."""
    curate.register_packer("lost", "no_such_module:pack", title="x", layout="y")
    with pytest.raises(CurateError, match="packer lost: no_such_module:pack cannot be imported"):
        curate.pack("lost", "x", out="y")
    with pytest.raises(Misuse, match="packer lost: is there already"):
        PACKERS.register("lost", PackerSpec("other:pack", "x", "y"))


def test_whoever_watches_hears_how_far_a_packer_is(tmp_path):
    """Every part of 128 images that is made, of the shard set that it belongs to."""
    for name in ("a", "b"):
        for part, rows in (("train", slice(0, 90)), ("t10k", slice(90, 120))):
            for kind, values in (("images-idx3", digits()[0][rows]), ("labels-idx1", digits()[1][rows])):
                path = tmp_path / name / f"{part}-{kind}-ubyte"
                path.parent.mkdir(exist_ok=True)
                head = bytes([0, 0, 8, values.ndim]) + b"".join(n.to_bytes(4, "big") for n in values.shape)
                path.write_bytes(head + values.astype("uint8").tobytes())
    told = []
    with on_progress(lambda done, total: told.append((done, total))):
        shards.pack_idx([tmp_path / "a", tmp_path / "b"], own="a", out=tmp_path / "out")
    store, index, splits = [(1, 2), (2, 2)], [(1, 1)], 3 * [(1, 1)]  # 165 images; a shard; train, val, test
    assert told == store + index + splits
