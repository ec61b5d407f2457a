"""Options by method: their defaults, and those that say nothing to a method refused with the reason."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import toyset

from curate.api import configured
from curate.config.defaults import applicable, inapplicable, paper, resolve
from curate.config.schema import PAPER, PAPER_PIXELS, from_options, to_options
from curate.errors import CurateError, Misuse, RunMismatch
from curate.methods import METHODS
from curate.runs.prepare import prepare

#: What a method cannot do without, beside a store and a target.
NEEDED = {"oracle": {"domain": "own"}}
every_method = pytest.mark.parametrize("name", METHODS)


def settled(name, **options):
    given = {"store": "s", "target": "t", "method": name, **NEEDED.get(name, {}), **options}
    return resolve(from_options(given), labelled=True)


@every_method
def test_resolving_twice_changes_nothing(name):
    """What run.json holds repeats the run, though it names every option."""
    once = settled(name)
    assert resolve(once, labelled=True) == once
    assert resolve(from_options(json.loads(json.dumps(to_options(once)))), labelled=True) == once


def test_dw_has_defaults_of_its_own():
    """docs/method.md: recent, eta 0.1, lam 0, the bar at zero; a raw signal has the paper's eta; what is given wins."""
    found = settled("dw")
    assert (found.belief.eta_scale, found.belief.eta, found.belief.reference) == ("recent", 0.1, "none")
    assert (found.prune.lam, found.prune.rho) == (0.0, 0.5)
    assert settled("dw", eta_scale="raw").belief.eta == 10.0
    assert settled("dw", eta=0.3, lam=0.2).prune.lam == 0.2
    assert settled("bdw").prune.lam == 0.25


@pytest.mark.parametrize(("name", "lam"), [("dw", -0.1), ("dw", 1.0), ("bdw", 0.0)])
def test_the_range_of_lam_is_the_methods(name, lam):
    """A weight can be 0 and be dropped by it; no belief has mass below 0."""
    with pytest.raises(Misuse, match=f"--lam {lam}: must be"):
        settled(name, lam=lam)


#: A method, an option that says nothing to it, and why.
IDLE = [
    ("dw", {"meta_momentum": 0.9}, "the paper's DW has none"),
    ("dw", {"expected_gradient": True}, "a point weight has no distribution"),
    ("dw", {"rho": 0.9}, "a point weight lies above lam or not"),
    ("dw", {"warmup": 1}, "a warm-up would train nothing"),
    ("l2rw", {"eta": 1.0}, "its weights sum to 1 over a batch"),
    ("l2rw", {"eta_scale": "history"}, "its weights sum to 1 over a batch"),
    ("l2rw", {"lam": 0.1}, "it prunes nothing"),
    ("l2rw", {"warmup": 1}, "a warm-up would train nothing"),
    ("nn", {"reference": "batch"}, "settled before the first epoch"),
    ("nn", {"rho": 0.1}, "`curate prune --keep` takes a budget afterwards"),
    ("oracle", {"lam": 0.5}, "it drops other domains before the first epoch"),
    ("uniform", {"eta": 1.0}, "its weights are all 1"),
    ("uniform", {"meta_momentum": 0.5}, "its weights are all 1"),
    ("uniform", {"lam": 0.5}, "it prunes nothing"),
    ("bdw", {"nn_beta": 1e-3}, "only nn measures distances"),
    ("uniform", {"nn_space": "features"}, "only nn measures distances"),
]


@pytest.mark.parametrize(("name", "options", "reason"), IDLE)
def test_an_option_that_would_do_nothing_is_refused(name, options, reason):
    """With its value, the method, and the reason."""
    option = next(iter(options)).replace("_", "-")
    with pytest.raises(Misuse, match=f"^--{option} .*: says nothing to --method {name}: .*{reason}.*; leave it out$"):
        settled(name, **options)


@every_method
def test_the_value_that_is_no_choice_passes(name):
    """Every inapplicable option at its only value, as run.json holds it."""
    only = {option: value for option, (value, _) in inapplicable(name).items() if value is not None}
    assert settled(name, **only) == settled(name)


@every_method
def test_one_set_of_options_serves_all_methods(name):
    """`applicable` leaves out what says nothing to a method, so that a comparison can name them once."""
    shared = {"eta": 1.0, "eta_scale": "recent", "reference": "batch", "lam": 0.3, "rho": 0.4, "epochs": 7}
    config = settled(name, **applicable(name, shared))
    assert config.train.epochs == 7
    assert config.belief.eta == (1.0 if METHODS[name].learns and name != "l2rw" else None)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("oracle", {"domain": None}, "--method oracle needs --domain: the target's own, as domains.parquet"),
        ("nn", {"nn_space": "features"}, "--nn-space features needs --nn-features"),
        ("nn", {"nn_features": "x.pth"}, "--nn-features is for --nn-space features; pixels need no network"),
        ("nn", {"nn_tap": "layer2"}, "--nn-tap is for --nn-space features"),
        ("nn", {"nn_beta": 0.0}, "--nn-beta 0.0: must be positive"),
    ],
)
def test_what_belongs_together_is_asked_for(name, options, message):
    """And what it is for."""
    with pytest.raises(Misuse, match=message):
        settled(name, **options)


@pytest.mark.parametrize("name", ["bdw", "dw", "l2rw", "nn"])
def test_methods_that_weigh_by_a_target_need_one(name):
    """Also where the configuration is made by hand."""
    with pytest.raises(Misuse, match="--target is missing"):
        from_options({"store": "s", "method": name})
    with pytest.raises(Misuse, match=f"--method {name} needs a --target"):
        resolve(dataclasses.replace(settled(name), target=""), labelled=True)


@every_method
def test_paper_mode_fits_every_method(name):
    """The paper's constants where they mean something; of dw, lam 0 and the eta that works."""
    config = settled(name, **paper(name))
    assert config.belief.reference == "none"
    if name == "bdw":
        assert paper(name) == PAPER
        assert (config.belief.eta, config.prune.lam) == (10.0, 0.25)
    if name == "dw":
        assert (config.belief.eta, config.belief.eta_scale, config.prune.lam) == (0.1, "recent", 0.0)
    asked = {"method": name, **NEEDED.get(name, {})}
    assert configured("s", "t", None, True, asked, Path("run")) == from_options(
        {"store": "s", "target": "t", **asked, **paper(name), **PAPER_PIXELS}
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return toyset.make_data(tmp_path_factory.mktemp("data"), 16)


_STATISTICS = ("mean", "deviation")


@pytest.mark.parametrize(
    ("options", "source"),
    [
        ({"mean": (0.4,), "deviation": (0.2,)}, "given"),
        ({}, "of the pretext reconstruction"),
        ({"pretext": "rotation", "colour": "grey"}, "measured on 16 images of the store"),
        ({"pretext": "rotation", "colour": "grey", "deviation": (0.2,)}, "measured on 16 images of the store"),
    ],
)
def test_a_run_says_where_its_statistics_come_from(data, tmp_path, options, source):
    """In run.json beside the machine: the numbers are part of the configuration either way."""
    toyset.run_on(data, tmp_path / "run", **{"batch": 8, "method": "uniform", "epochs": 1, **options})
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert run["machine"]["statistics"] == source
    assert all(run["configuration"][name] == list(given) for name, given in options.items() if name in _STATISTICS)


def test_a_file_of_weights_that_changed_is_not_the_runs(data, tmp_path):
    """Its sha256 is part of the configuration; both are shown."""
    (tmp_path / "w.pth").write_bytes(b"new")
    options = {"method": "nn", "nn_space": "features", "nn_features": str(tmp_path / "w.pth"), "nn_weights": "0" * 64}
    config = toyset.config(data / "store", data / "target", **options)
    with pytest.raises(RunMismatch, match=r"w\.pth: sha256 .*, the run has 000000000000; restore the file"):
        prepare(config, tmp_path / "run")
    with pytest.raises(CurateError, match="not a file of weights alone"):
        prepare(toyset.config(data / "store", data / "target", **{**options, "nn_weights": None}), tmp_path / "run")
