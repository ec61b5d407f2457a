"""Defaults by pretext, ranges and exclusions, and configurations that travel through files unchanged."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.config.defaults import resolve
from curate.config.schema import GROUPS, PAPER, RunConfig, from_options, read_options, to_options
from curate.errors import Misuse
from curate.runs.provenance import identity

#: One value a kind of field, other than its default.
OTHER = {
    "seed": 7,
    "index": "elsewhere.parquet",
    "size": 40,
    "mean": (0.1, 0.2, 0.3),
    "lr_drops": (3, 5),
    "norm": "group",
    "meta_updates_bn": True,
    "meta_average": 0.9,
    "lam": 0.1,
    "shard_size": 1000,
    "cache_bytes": 0,
    "keep_generations": True,
}


def given_options(**options):
    return from_options({"store": "s", "target": "t", **options})


def test_rotation_defaults_are_the_papers():
    """The paper: 72 px, crops of 64, mirror, 35 epochs, rate 0.1 divided after 15 and 25, momentum 0.9."""
    config = resolve(given_options(), labelled=True)
    assert (config.images.size, config.images.crop, config.images.colour, config.images.mirror) == (72, 64, "rgb", True)
    train = config.train
    assert (train.epochs, train.batch, train.lr, train.lr_drops) == (35, 64, 0.1, (15, 25))
    assert (train.momentum, train.weight_decay) == (0.9, 1e-4)
    assert config.network.network == "resnet18"
    assert (config.meta.meta_loss, config.meta.queries) == ("self-supervised", 5)
    assert (config.belief.reference, config.belief.eta) == ("target", 1.0)
    assert (config.prune.lam, config.prune.rho) == (0.25, 0.5)


def test_reconstruction_defaults_are_the_papers():
    """The paper: 28 px grey in [-1, 1], the VAE, rate 1e-4 without momentum, decay or drops."""
    config = resolve(given_options(pretext="reconstruction"), labelled=False)
    assert (config.images.size, config.images.crop, config.images.channels, config.images.mirror) == (28, 28, 1, False)
    assert (config.images.mean, config.images.deviation) == ((0.5,), (0.5,))
    assert (config.network.network, config.network.hidden, config.network.latent) == ("vae", 100, 1)
    train = config.train
    assert (train.epochs, train.batch, train.lr, train.lr_drops) == (100, 64, 1e-4, ())
    assert (train.momentum, train.weight_decay) == (0.0, 0.0)
    assert (config.meta.meta_loss, config.belief.reference) == ("self-supervised", "target")


@pytest.mark.parametrize(("options", "eta"), [({"eta_scale": "raw"}, 10.0), ({}, 1.0), ({"eta": 0.3}, 0.3)])
def test_eta_follows_its_unit_unless_given(options, eta):
    """10 for a raw signal, 1 for one in units of its size (docs/method.md)."""
    assert resolve(given_options(**options), labelled=True).belief.eta == eta


@pytest.mark.parametrize(("crop", "network"), [(32, "small"), (33, "resnet18")])
def test_small_crops_get_the_small_network(crop, network):
    """Up to 32 px."""
    assert resolve(given_options(crop=crop), labelled=True).network.network == network


@pytest.mark.parametrize(("epochs", "drops"), [(35, (15, 25)), (70, (30, 50)), (7, (3, 5)), (2, (1,)), (1, ())])
def test_rate_drops_keep_the_papers_shares(epochs, drops):
    """15/35 and 25/35 of the epochs, rounded; never before the first epoch or after the last."""
    assert resolve(given_options(epochs=epochs), labelled=True).train.lr_drops == drops


def test_rate_drops_by_step_keep_the_same_shares_of_the_steps():
    """15/35 and 25/35 of 700 steps; a cosine has none."""
    assert resolve(given_options(schedule="step", steps=700), labelled=True).train.lr_drops == (300, 500)
    assert resolve(given_options(schedule="cosine", steps=700), labelled=True).train.lr_drops == ()


def test_simclr_has_two_views_and_a_projection():
    """The measured temperature and width; of the networks the ResNets."""
    config = resolve(given_options(pretext="simclr", crop=32, size=36), labelled=False)
    assert (config.network.network, config.network.projection, config.network.temperature) == ("small", 64, 0.2)
    assert (config.images.augment_strength, config.images.mirror) == ("mild", True)


def test_paper_mode_switches_every_option_of_ours_off():
    """Paper mode resolves to raw eta 10, no reference, averaging, momentum or warm-up."""
    belief = resolve(given_options(**PAPER), labelled=False).belief
    assert dataclasses.asdict(belief) == {
        "signal": "exact",
        "contrast": "none",
        "meta_every": 1,
        "eta": 10.0,
        "eta_scale": "raw",
        "reference": "none",
        "meta_average": 0.0,
        "meta_momentum": 0.0,
        "expected_gradient": False,
        "warmup": 0,
        "prior": "uniform",
        "prior_strength": 4.0,
        "share": "none",
        "returns": False,
        "prior_key": "",
    }


def test_resolving_twice_changes_nothing():
    """What run.json holds is a configuration that repeats the run."""
    once = resolve(given_options(), labelled=True)
    assert resolve(once, labelled=True) == once


def test_no_resolved_value_is_missing_where_one_is_needed():
    """None remains only where it means "measured", "by the machine" or "as the store"."""
    left = {name for name, value in to_options(resolve(given_options(), labelled=True)).items() if value is None}
    assert left == {
        *("mean", "deviation", "index", "image", "shard_size", "workers", "threads", "cache_bytes"),
        *("domain", "nn_features", "nn_weights"),
        *("augment_strength", "projection", "temperature", "steps"),  # of other pretexts and schedules
    }


def test_option_names_are_unique_over_the_groups():
    """Flat options would lose one of two fields of one name."""
    names = [f.name for kind in GROUPS.values() for f in dataclasses.fields(kind)]
    names += [f.name for f in dataclasses.fields(RunConfig) if f.name not in GROUPS]
    assert len(names) == len(set(names))


@settings(deadline=None)
@given(st.sets(st.sampled_from(sorted(OTHER))))
def test_options_and_configuration_are_one_to_one(chosen):
    """from_options undoes to_options, through JSON too, where tuples become lists."""
    config = given_options(**{name: OTHER[name] for name in chosen})
    assert from_options(to_options(config)) == config
    assert from_options(json.loads(json.dumps(to_options(config)))) == config


def test_options_are_read_from_toml_json_and_a_run(tmp_path):
    """Flat or in tables; a run.json gives its configuration, what is
    younger than it as it was then; "network" may be an option or a table."""
    (tmp_path / "flat.toml").write_text('store = "s"\ntarget = "t"\nlr_drops = [3, 5]\nnetwork = "small"\n')
    (tmp_path / "tables.toml").write_text(
        'store = "s"\ntarget = "t"\n[train]\nlr_drops = [3, 5]\n[network]\nwidth = 4\n'
    )
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "configuration": {"store": "s", "target": "t"}}))
    flat = from_options(read_options(tmp_path / "flat.toml"))
    assert (flat.train.lr_drops, flat.network.network) == ((3, 5), "small")
    tables = from_options(read_options(tmp_path / "tables.toml"))
    assert (tables.train.lr_drops, tables.network.width) == ((3, 5), 4)
    assert from_options(read_options(tmp_path / "run.json")) == given_options(
        prior="uniform", contrast="none", layout="planes"
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.toml", "lam = ", r"a\.toml: does not parse as \.toml"),
        ("a.json", "{", r"a\.json: does not parse as \.json"),
        ("a.json", "[1]", r"a\.json: expected a table of options, found list"),
    ],
)
def test_a_file_that_is_no_configuration_is_named(tmp_path, name, text, message):
    """With what was expected of it."""
    (tmp_path / name).write_text(text)
    with pytest.raises(Misuse, match=message):
        read_options(tmp_path / name)


def test_a_missing_configuration_file_is_named(tmp_path):
    """The message says what to give."""
    with pytest.raises(Misuse, match=r"no\.toml: no such file; give a \.toml or \.json"):
        read_options(tmp_path / "no.toml")


def test_an_unknown_option_lists_the_known_ones():
    """A typo is answered with the names."""
    with pytest.raises(Misuse, match=r"lamda: not an option of a run \(did you mean lam\?\)$"):
        given_options(lamda=0.1)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("rho", "0.1", "float"),
        ("batch", 16.5, r"int \| None"),
        ("epochs", True, r"int \| None"),
        ("mirror", 1, r"bool \| None"),
        ("store", 3, "str"),
        ("mean", 0.5, r"tuple\[float, \.\.\.\] \| None"),
        ("mean", ["x"], r"tuple\[float, \.\.\.\] \| None"),
        ("rho", [], "float"),
        ("lam", [], r"float \| None"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(name, value, expected):
    """A file can hold anything; what was expected is said."""
    with pytest.raises(Misuse, match=f"--{name} .*: expected {expected}$"):
        given_options(**{name: value})


def test_whole_numbers_are_floats_where_floats_are_meant():
    """`eta = 1` in a file and `--eta 1` are one configuration, and so one run id."""
    config = given_options(eta=1, mean=[0, 1, 0], lr_drops=[3])
    assert [type(x) for x in (config.belief.eta, *config.images.mean, *config.train.lr_drops)] == [float] * 4 + [int]


@pytest.mark.parametrize(("colour", "channels"), [("rgb", 3), ("grey", 1)])
def test_the_vae_sees_pixels_in_minus_one_to_one_whatever_the_colour(colour, channels):
    """Mean and deviation of a half, one a channel."""
    images = resolve(given_options(pretext="reconstruction", colour=colour), labelled=False).images
    assert images.mean == images.deviation == (0.5,) * channels


@pytest.mark.parametrize("name", ["store", "target"])
def test_a_store_and_a_target_must_be_named(name):
    """Neither has a default."""
    with pytest.raises(Misuse, match=f"--{name} is missing"):
        from_options({"store": "s", "target": "t", name: ""})


#: The option, a value just outside its range, and one on its edge.
EDGES = [
    ("size", 3, 64),
    ("size", 4097, 4096),
    ("crop", 3, 4),
    ("crop", 73, 72),
    ("width", 0, 1),
    ("ways", 1, 2),
    ("shots", 0, 1),
    ("queries", 0, 1),
    ("target_batch", 1, 2),
    ("meta_average", 1.0, 0.0),
    ("meta_every", 0, 2**20),
    ("meta_momentum", 1.0, 0.999),
    ("meta_momentum", -0.1, 0.0),
    ("warmup", -1, 0),
    ("lam", 0.0, 1e-6),
    ("lam", 1.0, 0.999),
    ("rho", 0.0, 1e-6),
    ("rho", 1.0, 0.999),
    ("seed", -1, 0),
    ("seed", 2**63, 2**63 - 1),
    ("epochs", 0, 1),
    ("batch", 1, 2),
    ("lr", 0.0, 1e-9),
    ("lr", float("nan"), 1e9),
    ("eta", float("inf"), 1e9),
    ("momentum", 1.0, 0.0),
    ("weight_decay", -1e-9, 0.0),
    ("mean", (0.5,), (0.0, 0.5, 1.0)),
    ("mean", (0.5, 0.5, 1.1), (0.5, 0.5, 0.5)),
    ("deviation", (0.5, 0.5, 0.0), (0.5, 1e-6, 1.0)),
]


@pytest.mark.parametrize(("name", "outside", "edge"), EDGES)
def test_a_value_out_of_its_range_is_refused_and_its_edge_taken(name, outside, edge):
    """The message names the option as it is typed."""
    with pytest.raises(Misuse, match=rf"^--{name.replace('_', '-')} .*: must be "):
        resolve(given_options(**{name: outside}), labelled=True)
    crop = {"crop": 64} if name == "size" else {}
    resolve(given_options(**{**crop, name: edge}), labelled=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "bwd"}, "--method bwd: unknown; known: bdw, dw, l2rw, nn, oracle, uniform"),
        ({"pretext": "jigsaw"}, "--pretext jigsaw: unknown; known: rotation, reconstruction"),
        ({"eta_scale": "big"}, "--eta-scale big: unknown; known: raw, history, recent"),
        ({"network": "vae"}, "--network vae is for --pretext reconstruction"),
        ({"network": "vae", "pretext": "simclr"}, "simclr needs a ResNet"),
        ({"temperature": 0.5}, "--temperature 0.5: for --pretext simclr"),
        ({"augment_strength": "strong"}, "--augment-strength strong: for --pretext simclr"),
        ({"projection": 8}, "--projection 8: for --pretext simclr"),
        ({"pretext": "simclr", "temperature": 0.0}, "--temperature 0.0: must be in 0.01..100"),
        ({"stem_stride": 2}, "--stem-stride 2: of --network small; resnet18 has its own"),
        ({"stem_stride": 0, "network": "small"}, "--stem-stride 0: must be in 1..4"),
        ({"schedule": "cosine"}, "--schedule cosine: needs to know how many steps"),
        ({"steps": 5}, "--steps 5: of a run's options it needs --schedule step"),
        ({"schedule": "cosine", "steps": 5, "lr_drops": (2,)}, "--lr-drops: a cosine has none"),
        ({"network": "resnet18", "pretext": "reconstruction"}, "trains the VAE, not resnet18; give --network vae"),
        ({"reference": "target", "meta_loss": "prototypical"}, "--reference target needs --meta-loss self-supervised"),
    ],
)
def test_words_that_are_unknown_or_exclude_each_other_are_refused(options, message):
    """With what to give instead."""
    with pytest.raises(Misuse, match=message):
        resolve(given_options(**options), labelled=True)


def test_prototypes_need_labels():
    """Asked for by name on a target without labels."""
    with pytest.raises(Misuse, match=r"prototypical needs labels \(\.cls members\)"):
        resolve(given_options(meta_loss="prototypical"), labelled=False)


@pytest.mark.parametrize("method", ["bdw", "dw", "l2rw"])
@pytest.mark.parametrize("labelled", [True, False])
def test_the_default_meta_loss_needs_no_labels(method, labelled):
    """Whatever the target has; one that is named stays."""
    assert resolve(given_options(method=method), labelled).meta.meta_loss == "self-supervised"
    assert resolve(given_options(method=method, meta_loss="prototypical"), True).meta.meta_loss == "prototypical"


def test_a_method_that_computes_none_keeps_its_id():
    """What is written of a meta-loss that is never computed is as it was."""
    assert resolve(given_options(method="uniform"), labelled=True).meta.meta_loss == "prototypical"


def test_options_of_selectors_are_no_part_of_other_runs():
    """At their defaults they are left out of the identity, so a run of an earlier release keeps its id."""
    options = identity(given_options(), "", "")["options"]
    assert not {"encoder", "nets", "features", "keep", "encoder_key"} & set(options)
    chosen = identity(given_options(method="nearest", keep=0.5, encoder="parquet:file"), "", "")["options"]
    assert chosen["keep"] == 0.5
    assert "encoder" not in chosen  # it may name a path; its key stands for it
