"""A dry run gives an interval from timed steps, comes to an end, and names cheaper choices to give as they stand."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
import toyset

from curate.config.defaults import resolve
from curate.config.resolved import ready
from curate.config.schema import from_options
from curate.runs import cheaper, dry_run, step_times
from curate.runs.cheaper import COUNTED, MEASURED, MODELLED, savings, smaller_networks


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("world")
    store, target = toyset.make_store(folder / "store"), toyset.make_target(folder / "target")
    return {**toyset.FAST, "batch": 8, "epochs": 40, "store": str(store), "target": str(target)}


def test_hours_are_an_interval_of_the_timed_steps(options: dict[str, Any], tmp_path: Path) -> None:
    found = dry_run.dry_run(from_options(options), tmp_path / "dry")
    assert (found.steps, found.timed_steps) == (12 * 40, step_times.STEPS)
    assert 0 < found.hours_low <= found.hours <= found.hours_high
    assert found.hours == found.seconds_per_step * found.steps / 3600
    assert found.cheaper == []  # it takes seconds
    assert "by the fastest and slowest of 5 steps" in found.text()


def test_of_several_devices_it_says_what_was_timed(options: dict[str, Any], tmp_path: Path) -> None:
    notes = dry_run.dry_run(from_options(options | {"devices": 2}), tmp_path / "dry").notes
    assert "timed in one process; of --devices 2 each takes its part of every batch" in notes


def test_past_its_time_it_stops_and_says_what_was_timed(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dry_run, "STEPS_FOR", 0.0)
    found = dry_run.dry_run(from_options(options), tmp_path / "dry")
    assert found.timed_steps == 1
    assert ", by a step of 2 images in " in found.text()


def test_a_long_run_names_what_is_cheaper(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store of a thousand hours: half the epochs, and features in no time."""
    monkeypatch.setattr(dry_run, "LONG", 0.0)
    monkeypatch.setattr(cheaper, "_hours_of_features", lambda job: 0.0)
    found = dry_run.dry_run(from_options(options), tmp_path / "dry")
    assert [(one.options, one.by) for one in found.cheaper] == [
        ("--method classifier", MEASURED),
        ("--epochs 20", COUNTED),
    ]
    assert found.cheaper[1].hours == pytest.approx(found.hours / 2)
    assert "\ncheaper --epochs 20: about " in found.text()


def test_features_are_timed_on_the_store(options: dict[str, Any], tmp_path: Path) -> None:
    job = dry_run.prepare(from_options(options), tmp_path)
    assert 0 < cheaper._hours_of_features(job) < 1


def prepared(**network: Any) -> Any:
    options = {"store": "s", "target": "t", "method": "bdw", **network}
    return ready(resolve(from_options(options), labelled=True), (0.5,) * 3, (0.5,) * 3)


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        ({"network": "resnet18"}, ["--size 36 --crop 32 --network resnet18", "--network small --size 72 --crop 64"]),
        (
            {"network": "small", "norm": "group"},
            [
                "--size 36 --crop 32 --network small --norm group --stem-stride 1 --width 16",
                "--stem-stride 2 --size 72 --crop 64 --network small --norm group --width 16",
                "--width 8 --size 72 --crop 64 --network small --norm group --stem-stride 1",
            ],
        ),
        ({"network": "small", "stem_stride": 2, "width": 8, "crop": 40}, []),
        ({"pretext": "simclr", "network": "resnet50", "crop": 32}, ["--network small --size 72 --crop 32"]),
    ],
)
def test_smaller_networks_are_options_that_a_run_takes(network: dict[str, Any], expected: list[str]) -> None:
    """They tell the whole shape, whatever the defaults."""
    config = prepared(**network)
    found = smaller_networks(config)
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected))
    for text, other in found.items():
        words = text.split()
        given = {name[2:].replace("-", "_"): value for name, value in zip(words[::2], words[1::2])}
        options = {k: int(v) if v.isdigit() else v for k, v in given.items()}
        other_options = {name: value for name, value in network.items() if name == "pretext"}
        assert prepared(**other_options, **options) == other


def test_hours_follow_the_passes_and_the_three_shortest_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of 4 s now; a smaller network takes what its width says. A network that is no faster is not named."""
    config = prepared(network="small", epochs=10)
    seconds = {(32, 1, 16): 1.0, (64, 2, 16): 0.5, (64, 1, 8): 5.0, (64, 1, 16): 4.0}
    monkeypatch.setattr(
        cheaper,
        "_seconds_of_pass",
        lambda c, device: seconds[c.images.crop, c.network.stem_stride, c.network.width],
    )
    monkeypatch.setattr(cheaper, "_hours_of_features", lambda job: 0.25)
    job = cast(Any, SimpleNamespace(config=config, target=object(), setup=SimpleNamespace(device=torch.device("cpu"))))
    found = savings(job, 8.0, time.perf_counter() + 60)
    assert [(" ".join(one.options.split()[:2]), one.hours, one.by) for one in found] == [
        ("--method classifier", 0.25, MEASURED),
        ("--stem-stride 2", 1.0, MODELLED),
        ("--size 36", 2.0, MODELLED),
    ]
    assert [one.options for one in savings(job, 8.0, 0.0)] == ["--epochs 5"]  # no time left for any measurement


def test_a_pass_of_a_smaller_network_is_timed() -> None:
    config = prepared(network="small", width=4, crop=16, size=18)
    assert 0 < cheaper._seconds_of_pass(config, torch.device("cpu")) < 10
