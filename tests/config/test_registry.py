"""Methods and pretexts from outside the package: by a call, and by the entry points of an installed package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import toyset
from click.testing import CliRunner

import curate
from curate.cli import curate as command
from curate.config import catalogue
from curate.config.registry import Registry
from curate.errors import CurateError, Misuse

ROOT = Path(__file__).resolve().parents[2]
REGISTRIES = (catalogue.METHODS, catalogue.SELECTORS, catalogue.PRETEXTS, catalogue.META_LOSSES, catalogue.NETWORKS)
#: The rows of a plug-in package, which can be read without torch, and what they are made of.
SPECS = """
from curate.config.catalogue import MetaLossSpec, MethodSpec, NetworkSpec, PretextSpec

METHOD = MethodSpec("toy_parts:Half", needs_target=False, inapplicable=(({"warmup": 0}, "it has no first signal"),))
PRETEXT = PretextSpec("toy_parts:Upright", outputs=2, defaults={
    **{"size": 8, "crop": 8, "colour": "grey", "mirror": False},
    **{"epochs": 2, "batch": 16, "lr": 0.01, "momentum": 0.9, "weight_decay": 0.0},
})
META_LOSS = MetaLossSpec("toy_parts:Spread")
NETWORK = NetworkSpec("toy_parts:plain", "the toy network")
"""
PARTS = """
import torch
from torch import nn
from torch.nn import functional as F
from curate.methods.base import FixedWeights
from curate.models.networks import StagedNet


class Half(FixedWeights):
    def __init__(self, inputs):
        self.table = torch.full((inputs.n,), 0.5)


class Upright:
    couples = False

    def __init__(self, augment, network):
        self.augment = augment

    def view(self, pixels, generator):
        return self.plain_view(pixels, generator)

    def plain_view(self, pixels, generator):
        crops = self.augment.centre(pixels)
        return self.augment.normalise(torch.cat([crops, crops.flip(2)]))

    def losses(self, network, view):
        answers = torch.arange(2).repeat_interleave(len(view) // 2)
        return F.cross_entropy(network(view).logits, answers, reduction="none").view(2, -1).mean(0)


class Spread:
    notes = ()

    def __init__(self, target, config, augment, pretext, seed):
        self.images = augment.normalise(augment.centre(target.pixels[:8]))

    def batch(self, epoch, step):
        return self.images

    def shape(self):
        return "the same 8 images"

    def loss(self, network, batch):
        return -network(batch).features.var(0).mean()


def plain(config, images, outputs):
    stages = {"layer1": nn.Sequential(nn.Conv2d(images.channels, 4, 3, padding=1), nn.GroupNorm(1, 4), nn.ReLU())}
    return StagedNet(stages, nn.Linear(4, outputs))
"""
ENTRY_POINTS = """
[curate.methods]
toy = toy_specs:METHOD
[curate.pretexts]
toy = toy_specs:PRETEXT
[curate.meta_losses]
toy = toy_specs:META_LOSS
[curate.networks]
toy = toy_specs:NETWORK
"""


@pytest.fixture
def registries(monkeypatch):
    """The registries, as they were afterwards; the verbs are loaded anew, as their choices are those of then."""
    for registry in REGISTRIES:
        list(registry)  # the rows of installed packages, once
        monkeypatch.setattr(registry, "_rows", dict(registry._rows))
    for name in [name for name in sys.modules if name.startswith("curate.cli.")]:
        monkeypatch.delitem(sys.modules, name)


def write_plugin(folder: Path, entry_points: str = ENTRY_POINTS) -> Path:
    """A package as pip would have installed it into ``folder``."""
    information = folder / "toy-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(entry_points)
    (folder / "toy_specs.py").write_text(SPECS)
    (folder / "toy_parts.py").write_text(PARTS)
    return folder


def call(plugin: Path, *arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """The command line, in a process that finds the plug-in."""
    code = f"import sys; {before or 'pass'}; from curate.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(plugin), str(ROOT)])},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_method_and_a_pretext_that_are_registered_run_from_the_command_line(tmp_path, registries, monkeypatch):
    """Two calls, and the names stand in the help, in the choices and in run.json."""
    monkeypatch.syspath_prepend(write_plugin(tmp_path / "plugin"))
    import toy_parts
    import toy_specs

    curate.register_method("toy", toy_parts.Half, needs_target=False, inapplicable=toy_specs.METHOD.inapplicable)
    curate.register_pretext("toy", "toy_parts:Upright", outputs=2, defaults=toy_specs.PRETEXT.defaults)
    store = toyset.make_store(tmp_path / "store", 48)
    words = ["run", "--method", "toy", "--pretext", "toy", "--store", str(store), "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(command, [*words, "--width", "2", "--workers", "0"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    run = curate.open_run(tmp_path / "run")
    assert (run.config.method, run.config.pretext, run.config.train.epochs) == ("toy", "toy", 2)
    assert set(run.weights()["mean"].to_pylist()) == {0.5}
    assert run.network(0).head.out_features == 2


def test_an_option_that_says_nothing_to_a_registered_method_is_refused(tmp_path, registries, monkeypatch):
    """The reason is the row's own."""
    monkeypatch.syspath_prepend(write_plugin(tmp_path / "plugin"))
    import toy_specs

    curate.register_method("toy", "toy_parts:Half", needs_target=False, inapplicable=toy_specs.METHOD.inapplicable)
    with pytest.raises(Misuse, match="--warmup 3: says nothing to --method toy: it has no first signal"):
        curate.run("store", out=tmp_path / "run", method="toy", warmup=3)


@pytest.mark.slow
def test_all_kinds_of_a_plug_in_package(tmp_path):
    """A pretext, a meta-loss and a network by entry points, with a target, to a curated set and a score."""
    plugin, data = write_plugin(tmp_path / "plugin"), toyset.make_data(tmp_path / "data", 48)
    out = str(tmp_path / "run")
    store, target = str(data / "store"), str(data / "target")
    parts = ["--pretext", "toy", "--meta-loss", "toy", "--network", "toy"]
    parts += ["--prior", "uniform", "--workers", "0", "--json"]
    ran = call(plugin, "run", "--store", store, "--target", target, "--out", out, *parts)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["epochs"] == 2
    scored = call(plugin, "evaluate", out, "--target", target, "--tap", "layer1", "--json")
    assert scored.returncode == 0, scored.stderr
    assert json.loads(scored.stdout)["features"] == 4 * 8 * 8


def test_a_method_and_a_pretext_of_a_plug_in_run_from_the_command_line(tmp_path):
    """No call is made; the names come from the entry points of what is installed."""
    plugin, store = write_plugin(tmp_path / "plugin"), toyset.make_store(tmp_path / "store", 48)
    words = ["--store", str(store), "--out", str(tmp_path / "run"), "--width", "2", "--workers", "0"]
    ran = call(plugin, "run", "--method", "toy", "--pretext", "toy", *words)
    assert ran.returncode == 0, ran.stderr
    assert curate.open_run(tmp_path / "run").record["configuration"]["pretext"] == "toy"


def test_the_help_lists_a_plug_in_and_loads_no_torch(tmp_path):
    """A row that names its factory by a string is read without what stands behind it."""
    heard = "import atexit; atexit.register(lambda: print('torch' in sys.modules))"
    helped = call(write_plugin(tmp_path / "plugin"), "run", "--help", before=heard)
    assert helped.returncode == 0, helped.stderr
    text = "".join(helped.stdout.split())
    assert re.search(r"--methodMETHOD[A-Za-z;]*:bdw,[a-z0-9,]*\btoy\b", text)
    assert re.search(r"--pretextPRETEXT[A-Za-z]*:rotation,[a-z0-9,]*\btoy\b", text)
    assert text.endswith("False")


@pytest.mark.parametrize(
    ("entry_points", "said"),
    [
        ("[curate.methods]\ntoy = no_such_module:SPEC\n", "plug-in toy (no_such_module:SPEC): cannot be loaded"),
        ("[curate.methods]\ntoy = toy_specs:NONE\n", "plug-in toy (toy_specs:NONE): cannot be loaded"),
        ("[curate.methods]\nbdw = toy_specs:METHOD\n", "plug-in bdw (toy_specs:METHOD): there is a method bdw already"),
        (
            "[curate.methods]\ntoy = toy_specs:PRETEXT\n",
            "plug-in toy (toy_specs:PRETEXT): is a PretextSpec, no MethodSpec",
        ),
    ],
)
def test_a_plug_in_at_fault_is_one_line(tmp_path, entry_points, said):
    """Whose it is, and what is wrong; never a traceback."""
    refused = call(write_plugin(tmp_path / "plugin", entry_points), "run", "--method", "toy", "--help")
    assert refused.returncode in (1, 2)
    assert said in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_factory_that_cannot_be_imported_is_told_by_name(registries):
    """The row is there; what it names is not."""
    curate.register_method("lost", "no_such_module:Method")
    with pytest.raises(CurateError, match="--method lost: no_such_module:Method cannot be imported"):
        catalogue.METHODS["lost"]


def test_a_method_of_a_selectors_name_is_not_passed_over(registries):
    """Two registries make one list of names: neither wins in silence."""
    curate.register_method("simcore", "toy_parts:Half")
    with pytest.raises(CurateError, match="--method simcore: is both a method and a selector"):
        curate.run("store", "target", out="run", method="simcore")


def test_a_pretext_without_its_defaults_is_told_so(tmp_path, registries):
    """An option that neither the user, the pretext nor anything else settles is named."""
    curate.register_pretext("bare", "toy_parts:Upright", outputs=2)
    with pytest.raises(Misuse, match=r"--size, --crop, .*: no default for --pretext bare; give it"):
        curate.run(toyset.make_store(tmp_path / "store", 16), out=tmp_path / "run", method="uniform", pretext="bare")


def test_a_name_that_is_taken_is_refused_and_the_same_row_is_not():
    """So a notebook's cell may run twice."""
    registry: Registry[catalogue.NetworkSpec] = Registry("network", "no.such", catalogue.NetworkSpec, {})
    row = catalogue.NetworkSpec("a:b", "one")
    registry.register("one", row)
    registry.register("one", row)
    with pytest.raises(Misuse, match="network one: is there already"):
        registry.register("one", catalogue.NetworkSpec("a:b", "another"))


def test_to_ask_for_a_name_imports_nothing():
    """`in` of a registry, as help and `curate config` ask: torch would take seconds."""
    code = (
        "import sys; from curate.config.catalogue import METHODS; from curate.config.defaults import usual; "
        "assert 'bdw' in METHODS and 'none' not in METHODS and usual({}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
