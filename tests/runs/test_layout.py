"""Channels-last convolutions on the CPU: the same mathematics, kept by whoever goes on with a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import engine_scene
import pytest
import torch
import toyset

from curate import api
from curate.config.schema import RunConfig
from curate.errors import Misuse
from curate.models.memory_layout import laid_out
from curate.progress import NullProgress
from curate.runs import run_dir
from curate.runs.prepare import Job, prepare
from curate.training import engine

CONVOLUTIONS: dict[str, Any] = {
    **{"pretext": "rotation", "network": "small", "width": 16, "colour": "rgb", "size": 9, "crop": 8, "norm": "group"},
    **{"batch": 16, "epochs": 2},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toyset.make_data(tmp_path_factory.mktemp("data"), 48)


def is_last(job: Job) -> list[bool]:
    """Of each convolution's weights in the state, and of their velocities, whether channels lie last."""
    kernels = [x for part in (job.state.theta, job.state.velocity) for x in part.values() if x.ndim == 4]
    # Of one channel, or of one pixel, both are one.
    return [x.stride(1) == 1 for x in kernels if x.shape[1] > 1 and x.shape[2] > 1]


def prepared(config: RunConfig, out: Path) -> Job:
    return prepare(run_dir.continued(config, out), out)


def test_a_training_lies_channels_last_but_in_paper_mode(data: Path, tmp_path: Path) -> None:
    for layout, last in (("auto", True), ("channels-last", True), ("planes", False)):
        config = toyset.config(data / "store", data / "target", **CONVOLUTIONS, layout=layout)
        found = is_last(prepare(config, tmp_path / layout))
        assert len(found) > 10
        assert set(found) == {last}
    here = {"store": data / "store", "target": data / "target", "out": tmp_path / "paper"}
    asked = {"pretext": "reconstruction", "size": 8, "crop": 8, "colour": "grey", "batch": 16, "epochs": 1}
    api.run(here["store"], here["target"], out=here["out"], paper=True, **asked, workers=0, device="cpu")
    assert json.loads((tmp_path / "paper" / "run.json").read_bytes())["configuration"]["layout"] == "planes"


@pytest.mark.parametrize(("begun", "last"), [("auto", True), ("planes", False), (None, False)])
def test_a_run_keeps_what_it_began_with(data: Path, tmp_path: Path, begun: str | None, last: bool) -> None:
    """None: a run that was made before there was a choice."""
    out = tmp_path / "run"
    toyset.run_on(data, out, **CONVOLUTIONS, layout=begun or "planes")
    if begun is None:
        record = json.loads((out / "run.json").read_bytes())
        del record["configuration"]["layout"]
        (out / "run.json").write_text(json.dumps(record))
    config = toyset.config(data / "store", data / "target", **CONVOLUTIONS | {"epochs": 3})
    job = prepared(config, out)
    run_dir.claim(job, out, NullProgress())
    assert run_dir.resume(job, out, NullProgress()) == 2
    assert set(is_last(job)) == {last}


def test_both_learn_the_same(data: Path, tmp_path: Path) -> None:
    for layout in ("channels-last", "planes"):
        toyset.run_on(data, tmp_path / layout, **CONVOLUTIONS, layout=layout)
    last, planes = (toyset.partition(tmp_path / name, 2, "row", "mean") for name in ("channels-last", "planes"))
    assert [row for row, _ in last] == [row for row, _ in planes]
    assert [mean for _, mean in last] == pytest.approx([mean for _, mean in planes], abs=1e-3)


@pytest.mark.parametrize("norm", ["group", "batch"])
def test_the_meta_gradient_is_the_same_in_float64(norm: str) -> None:
    found = []
    for layout in (torch.contiguous_format, torch.channels_last):
        config = engine_scene.settings(pretext="rotation", network="small", width=16, norm=norm, reference="none")
        setup, _ = engine_scene.scene(config)
        setup.network.to(memory_format=layout)
        state = engine_scene.begun(engine.begin(setup, engine_scene.scene(config)[1].method))
        found.append(engine.meta_gradient(setup, state, engine_scene.batches()[0]))
    assert found[0].abs().max() > 0
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-12 * float(found[0].abs().max()))


def test_narrow_networks_keep_their_planes(data: Path, tmp_path: Path) -> None:
    """torch writes beyond its memory in their shortcuts' gradient: without AVX-512 it crashes at width 4."""
    narrow = CONVOLUTIONS | {"width": 8}
    config = toyset.config(data / "store", data / "target", **narrow, layout="auto")
    assert set(is_last(prepare(config, tmp_path / "auto"))) == {False}
    config = toyset.config(data / "store", data / "target", **narrow, layout="channels-last")
    with pytest.raises(Misuse, match=r"--layout channels-last: .*downsample.* fewer than 16 channels"):
        prepare(config, tmp_path / "asked")


@pytest.mark.parametrize(
    ("part", "last"),
    [
        (torch.nn.Conv2d(8, 16, 1, stride=2), False),
        (torch.nn.Conv2d(32, 32, 1, stride=2, groups=4), False),
        (torch.nn.Conv2d(16, 32, 1, stride=2), True),
        (torch.nn.Conv2d(8, 16, 1), True),
        (torch.nn.Conv2d(8, 16, 3, stride=2), True),
    ],
)
def test_which_convolutions_are_not_safe(part: torch.nn.Conv2d, last: bool) -> None:
    network = laid_out(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), part), "auto", torch.device("cpu"))
    assert network[0].weight.is_contiguous(memory_format=torch.channels_last) == last
