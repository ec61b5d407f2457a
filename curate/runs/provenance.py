"""Who a run is: its id, and what must stay the same when it goes on.

The id is a hash of the configuration and of the fingerprints of store and target, without paths, workers, device,
times and versions: the same run elsewhere has the same id, and the same bytes.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypedDict

from curate.config.defaults import resolve
from curate.config.resolved import ReadyConfig, ResolvedConfig, ready
from curate.config.schema import GROUPS, MachineConfig, RunConfig, from_options, recorded, to_options
from curate.config.schema import RUN_FORMAT as FORMAT
from curate.config.schema import RUN_VERSION as VERSION
from curate.errors import CurateError, Misuse, RunMismatch, differences
from shards.io.json_files import convert, parse_json, sha256_of, version_in, write_json
from shards.io.regular_files import read_regular

_PATHS = ("store", "target", "index", "nn_features", "encoder", "features")
_PACKAGES = ("torch", "torchvision", "numpy", "scipy", "pyarrow", "webdataset", "pillow", "safetensors")


def identity(config: RunConfig, store: str, target: str) -> dict[str, Any]:
    """What the id is a hash of: every option that may change a byte, and the two fingerprints.

    An option that later releases added is left out where it is as in every run before, so that a run keeps its id.
    """
    machine = {field.name for field in fields(MachineConfig)}
    belief = config.belief
    if belief.prior_key:  # what the file says stands for where it lies
        config = replace(config, belief=replace(belief, prior=f"file {belief.prior_key}", prior_key=""))
    later = _later()
    options = {
        name: value
        for name, value in to_options(config).items()
        if name not in machine and name not in _PATHS and not (name in later and later[name] == value)
    }
    return {"options": options, "store": store, "target": target}


def _later() -> dict[str, Any]:
    """The options that later releases added, and what every run before had: mostly their defaults."""
    kinds = (RunConfig, *GROUPS.values())
    later = [item for kind in kinds for item in fields(kind) if item.metadata.get("later")]
    return {item.name: item.metadata.get("before", item.default) for item in later}


class RunRecord(TypedDict):
    """What run.json says, beside its format and version."""

    run_id: str
    configuration: dict[str, Any]
    store: str
    target: str
    machine: dict[str, Any]


def run_id(who: dict[str, Any]) -> str:
    """Sixteen hex digits of the identity's sha256."""
    return sha256_of(who)[:16]


def versions(decoder: str) -> dict[str, str]:
    """Python and the packages that results depend on, the one that decodes JPEG among them."""
    packages = _PACKAGES if decoder == "pil" else (*_PACKAGES, decoder)
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}}


def write_run(path: Path, config: RunConfig, who: dict[str, Any], machine: dict[str, Any]) -> dict[str, Any]:
    """Publish run.json and return it."""
    record = {
        "format": FORMAT,
        "version": VERSION,
        "run_id": run_id(who),
        "configuration": to_options(config),
        "store": who["store"],
        "target": who["target"],
        "machine": {**machine, "versions": versions(config.images.decoder)},
    }
    write_json(path, record)
    return record


def read_run(run: Path) -> dict[str, Any]:
    """The run.json of a run directory.

    Raises:
        CurateError: there is none, it does not parse, or its format is unknown.
    """
    path = run / "run.json"
    try:
        record = parse_json(read_regular(path))
    except FileNotFoundError as error:
        raise CurateError(f"{run}: no run.json in it; name the --out folder of a `curate run`") from error
    except ValueError as error:
        raise CurateError(f"{path}: does not parse ({error}); restore it, or start in a new --out") from error
    if (version := version_in(record, FORMAT)) != VERSION:
        raise CurateError(f"{path}: version {version}, this release reads {VERSION}; use the release that wrote it")
    try:
        convert(record, RunRecord)
    except ValueError as error:
        raise CurateError(f"{path}: is not as it was written ({error}); restore it, or start in a new --out") from error
    whole: dict[str, Any] = record
    return whole


def read_config(run: Path) -> ReadyConfig:
    """The configuration of a run directory; an option that is younger than the run is at its default.

    Raises:
        CurateError: as `read_run`; or run.json has an option that this release does not know.
    """
    return config_of(read_run(run), run)


def held_by(run: Path) -> dict[str, Any]:
    """The options that the run in a folder has, those that are younger than it as every run had them then; none where
    there is no run. What goes on in the folder takes from here what nobody said.

    Raises:
        CurateError: as `read_run`.
    """
    return recorded(read_run(run)["configuration"]) if (run / "run.json").exists() else {}


def config_of(record: dict[str, Any], run: Path) -> ReadyConfig:
    """As `read_config`, from what `read_run` returned."""
    config = _resolved_of(record, run)
    mean, deviation = config.images.mean, config.images.deviation
    if mean is None or deviation is None:
        raise CurateError(f"{run / 'run.json'}: is not as it was written; restore it, or start in a new --out")
    return ready(config, mean, deviation)


def _resolved_of(record: dict[str, Any], run: Path) -> ResolvedConfig:
    try:
        return resolve(from_options(recorded(record["configuration"])), labelled=True)
    except Misuse as error:
        raise CurateError(f"{run / 'run.json'}: {error}; restore it, or use the release that wrote it") from error


def compare(run: Path, record: dict[str, Any], who: dict[str, Any], done: int = 0) -> list[str]:
    """Refuse to go on with another run; return a warning for each version that changed.

    A missing option, younger than the run, is read as its default. More epochs, and other drops of the learning rate
    after the epochs that are done, only extend the run.

    Args:
        done: epochs that are trained.

    Raises:
        RunMismatch: the configuration, the store or the target differ; both values are shown.
    """
    held = _resolved_of(record, run)
    known = identity(held, "", "")["options"]
    old, new = to_options(held) | known, who["options"]
    left_out = {name: value for name, value in _later().items() if name in known}
    new = left_out | new
    changed = {name: (old[name], value) for name, value in new.items() if _plain(old[name]) != _plain(value)}
    if old["epochs"] < new["epochs"]:
        del changed["epochs"]
        if _drops_before(done, old["lr_drops"]) == _drops_before(done, new["lr_drops"]):
            changed.pop("lr_drops", None)
    different = [f"--{name.replace('_', '-')} was {was}, is {value}" for name, (was, value) in changed.items()]
    different += [
        f"the {what} holds other images or names than it did (fingerprint {record[what][:12]}, now {who[what][:12]})"
        for what in ("store", "target")
        if record[what] != who[what]
    ]
    if different:
        raise RunMismatch(f"{run}: belongs to another run: {'; '.join(different)}; start in a new --out, or restore")
    then = record.get("machine", {}).get("versions", {})
    return differences(then, versions(held.images.decoder))


def _drops_before(epoch: int, drops: Sequence[int]) -> set[int]:
    """The drops that the rates of the first ``epoch`` epochs depend on."""
    return {drop for drop in drops if drop < epoch}


def extend(path: Path, record: dict[str, Any], config: ReadyConfig) -> None:
    """Write into run.json how far the run goes now; its id stays that of the run that was begun."""
    begun = record["configuration"]["epochs"]
    record["machine"]["extended_from"] = [*record["machine"].get("extended_from", []), begun]
    record["configuration"] |= {"epochs": config.train.epochs, "lr_drops": list(config.train.lr_drops)}
    write_json(path, record)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
