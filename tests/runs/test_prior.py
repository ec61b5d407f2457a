"""Runs that know something before their first epoch: epoch 0 by a classifier or a file, and what follows from it."""

from __future__ import annotations

import dataclasses
import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import toyset
from sklearn.datasets import load_sample_images

import curate
from curate.config import catalogue
from curate.errors import CurateError, Misuse, NothingLeft, RunMismatch
from curate.ledger import ledger
from curate.progress import NullProgress
from curate.runs import checkpoint
from curate.runs.dry_run import dry_run
from curate.runs.features import Choice, features
from curate.runs.inputs import check_inputs
from curate.runs.run import run
from shards.rewriting.verify import verify
from shards.tar.writer import write_shards

DIGITS, PATCHES = 60, 240
N = DIGITS + PATCHES + 1  # and one that does not decode
#: Prior and training of a second or two.
OPTIONS = {"prior": "classifier", "nets": 1, "epochs": 2, "reference": "none", "lam": 0.25, "rewrite": "always"}
#: What says something to dw, too.
OF_DW = {"eta": None, "eta_scale": None, "reference": None, "lam": None}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """60 digits among 240 patches of photographs, one image that does not decode; features of them are there."""
    folder = tmp_path_factory.mktemp("data")
    photographs, draws = load_sample_images().images, np.random.default_rng(0)
    digits = draws.permutation(toyset.digits()[0])  # they stand writer by writer, and the cut errs low between writers
    pictures = list(digits[:DIGITS])
    for number in range(PATCHES):
        photograph = photographs[number % 2]
        top, left = draws.integers(0, photograph.shape[0] - 32), draws.integers(0, photograph.shape[1] - 32)
        pictures.append(photograph[top : top + 32 : 2, left : left + 32 : 2].mean(2).astype(np.uint8))
    bodies = [
        (f"{'digit' if i < DIGITS else 'patch'}{i:04d}.png", toyset.png(pictures[i])) for i in range(len(pictures))
    ]
    turned = [bodies[i] for i in draws.permutation(len(bodies))]
    write_shards(folder / "store", [[body] for body in [*turned, ("zzz.png", b"no picture")]], shard_size=20_000)
    for split, first in (("train", 1000), ("val", 1100)):
        pngs = [[(f"{i:04d}.png", toyset.png(digits[i]))] for i in range(first, first + 60)]
        write_shards(folder / "target" / split, pngs)
    machine = toyset.MachineConfig(device="cpu", workers=0)
    features(toyset.indexed(folder / "store"), Choice("untrained", 1), None, machine, None, NullProgress())
    return folder


def go(data, out, progress=None, **changes):
    return toyset.run_on(data, out, progress, **{**OPTIONS, **changes})


@pytest.fixture(scope="module")
def done(data, tmp_path_factory):
    """A finished run, and its summary."""
    out = tmp_path_factory.mktemp("done") / "run"
    return out, go(data, out)


@pytest.fixture(scope="module")
def chosen(data, tmp_path_factory):
    """The run of the selector itself, by the same features and seed."""
    out = tmp_path_factory.mktemp("chosen") / "run"
    asked = {"method": "classifier", "nets": 1, "workers": 0, "device": "cpu", "size": 16, "crop": 16}
    store, target = str(data / "store"), str(data / "target")
    run(curate.config.schema.from_options({"store": store, "target": target, **asked}), out)
    return out


@pytest.mark.parametrize("method", ["bdw", "dw"])
def test_before_the_first_epoch_the_classifiers_cut_is_kept(data, done, chosen, tmp_path, method):
    """`--prior classifier` says what `--method classifier` says, in the same facts; nothing else is trained on."""
    out = done[0]
    if method == "dw":
        out = tmp_path / "run"
        toyset.run_on(data, out, method="dw", prior="classifier", nets=1, epochs=1)
    assert toyset.manifest(out, 0) == toyset.manifest(chosen, 1)
    assert ledger.facts_of(out, 0) == ledger.facts_of(chosen, 1)
    errors = [error for (error,) in toyset.partition(out, 0, "error")]
    assert [error for error in errors if error] == ["not-an-image"]
    assert toyset.metrics(out)[0]["images"] == len(toyset.manifest(out, 0))
    assert [row for (row,) in toyset.partition(out, 1, "row")] == toyset.manifest(out, 0)


def test_it_finds_the_digits(done):
    """Or the tests here would show little: patches are gone before anything is trained, hardly a digit is."""
    keys = [key for key, kept in toyset.partition(done[0], 0, "key", "kept") if kept]
    own = sum(key.startswith("digit") for key in keys)
    assert own > 0.8 * DIGITS
    assert len(keys) - own < 10
