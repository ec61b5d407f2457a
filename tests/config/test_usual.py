"""What `curate run` takes where nothing is said: for a new run the usual road, for one that began as it began."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import toyset
from click.testing import CliRunner

from curate import api
from curate.cli import curate as command
from curate.config.catalogue import METHODS, PRETEXTS, SELECTORS
from curate.config.defaults import resolve, usual
from curate.config.schema import from_options
from curate.errors import Misuse
from shards.tar.writer import write_shards

OLD = Path(__file__).parents[1] / "runs" / "begun_by_0.2.0.tar.gz"


def options_of(out: Path, paper: bool = False, **given: Any) -> Any:
    """The configuration, resolved."""
    return resolve(api.configured("store", "target", None, paper, given, out), labelled=True)


def test_a_new_run_takes_the_usual_road(tmp_path: Path) -> None:
    found = options_of(tmp_path)
    assert (found.belief.prior, found.images.size, found.images.crop, found.train.epochs) == ("classifier", 36, 32, 10)
    assert (found.network.network, found.network.stem_stride, found.network.norm) == ("small", 2, "group")
    assert found.meta.meta_loss == "self-supervised"


def test_what_is_given_wins(tmp_path: Path) -> None:
    found = options_of(tmp_path, epochs=3, prior="uniform", lr=0.2)
    assert (found.train.epochs, found.belief.prior, found.train.lr, found.images.size) == (3, "uniform", 0.2, 36)


@pytest.mark.parametrize("given", [{"size": 64, "crop": 56}, {"network": "resnet18"}, {"stem_stride": 1}])
def test_a_shape_of_ones_own_is_left_whole(tmp_path: Path, given: dict[str, Any]) -> None:
    """A crop of 32 px of images of 64, or a ResNet-18 at 32 px, is what nobody asked for."""
    found, plain = (
        options_of(tmp_path, **given),
        resolve(from_options({"store": "s", "target": "t", **given}), True),
    )
    assert (found.images.size, found.images.crop) == (plain.images.size, plain.images.crop)
    assert found.network == plain.network
    assert found.belief.prior == "classifier"


@pytest.mark.parametrize("method", [*METHODS, *SELECTORS])
def test_every_method_and_pretext_can_be_run_with_what_is_usual(tmp_path: Path, method: str) -> None:
    for pretext in PRETEXTS:
        more: dict[str, Any] = {"domain": "x"} if method == "oracle" else {}
        if method in ("nearest", "softdedup", "random"):
            more = {"keep": 5.0}
        options_of(tmp_path, method=method, pretext=pretext, **more)
        assert not usual({"method": method}) or method in METHODS


@pytest.mark.parametrize("paper", [False, True])
@pytest.mark.parametrize(("name", "value"), [("pretext", ["rotation"]), ("method", {"a": 1}), ("target", 3)])
def test_a_value_of_another_type_is_refused_before_it_is_looked_into(
    tmp_path: Path, name: str, value: Any, paper: bool
) -> None:
    """As a file of options may have it."""
    asked = {"store": "s", "target": "t", name: value}
    (tmp_path / "c.json").write_text(json.dumps(asked))
    with pytest.raises(Misuse, match=f"--{name} .*: expected str"):
        api.configured(None, None, tmp_path / "c.json", paper, {}, tmp_path)


def test_paper_mode_takes_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("curate.api.runs._papers_meta_loss", lambda target: {})
    found = options_of(tmp_path, paper=True)
    assert (found.belief.prior, found.images.size, found.train.epochs) == ("uniform", 72, 35)
    assert (found.network.network, found.network.norm, found.network.stem_stride) == ("resnet18", "batch", 1)
    assert found.belief.expected_gradient is False


def test_a_run_of_an_older_release_goes_on_as_it_began(tmp_path: Path) -> None:
    """What 0.2.0 took where nothing was said is in its run.json, but for what did not exist."""
    with tarfile.open(OLD) as archive:
        archive.extractall(tmp_path, filter="data")
    held = json.loads((tmp_path / "run" / "run.json").read_bytes())["configuration"]
    began, new = (options_of(tmp_path / name, pretext=held["pretext"]).belief for name in ("run", "new"))
    assert (began.prior, began.meta_average, began.expected_gradient) == ("uniform", 0.0, False)
    assert (held["meta_average"], held["expected_gradient"]) == (0.0, False)
    assert (new.prior, new.meta_average, new.expected_gradient) == ("classifier", 0.95, True)


def test_the_same_command_goes_on_and_a_longer_one_extends(tmp_path: Path) -> None:
    """From the command line, with the classifier's prior."""
    digits = np.random.default_rng(0).permutation(toyset.digits()[0])  # on disk they stand writer by writer
    for name, first, last in (("store", 0, 160), ("target/train", 200, 280)):
        write_shards(tmp_path / name, ([(f"{place}.png", toyset.png(digits[place]))] for place in range(first, last)))
    words = ["run", "--store", str(tmp_path / "store"), "--target", str(tmp_path / "target"), "--out"]
    words += [str(tmp_path / "run"), "--size", "8", "--crop", "8", "--workers", "0", "--device", "cpu", "--width", "2"]
    kept = []
    for epochs in ("1", "1", "2"):
        result = CliRunner().invoke(command, [*words, "--epochs", epochs, "--nets", "1"], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        kept.append(sorted(path.name for path in (tmp_path / "run" / "ledger").iterdir()))
    assert kept == [
        ["epoch=0000", "epoch=0001"],
        ["epoch=0000", "epoch=0001"],
        ["epoch=0000", "epoch=0001", "epoch=0002"],
    ]
