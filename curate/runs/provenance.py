"""Who a run is: its id, and what must stay the same when it goes on.

The id is a hash of the configuration and of the fingerprints of store and target, without paths, workers, device,
times and versions: the same run elsewhere has the same id, and the same bytes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
from dataclasses import fields
from pathlib import Path
from typing import Any

from curate.config.schema import RUN_FORMAT as FORMAT
from curate.config.schema import MachineConfig, RunConfig, to_options
from curate.errors import CurateError, RunMismatch
from shards.io.json_files import from_json, publish_json

_PATHS = ("store", "target", "index", "nn_features")
_PACKAGES = ("torch", "torchvision", "numpy", "scipy", "pyarrow", "webdataset", "pillow", "safetensors")


def identity(config: RunConfig, store: str, target: str) -> dict[str, Any]:
    """What the id is a hash of: every option that may change a byte, and the two fingerprints."""
    machine = {field.name for field in fields(MachineConfig)}
    options = {k: v for k, v in to_options(config).items() if k not in machine and k not in _PATHS}
    return {"options": options, "store": store, "target": target}


def run_id(who: dict[str, Any]) -> str:
    """Sixteen hex digits of the identity's sha256."""
    return hashlib.sha256(json.dumps(who, sort_keys=True).encode()).hexdigest()[:16]


def versions() -> dict[str, str]:
    """Python and the packages that results depend on."""
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in _PACKAGES}}


def write_run(path: Path, config: RunConfig, who: dict[str, Any], machine: dict[str, Any]) -> dict[str, Any]:
    """Publish run.json and return it."""
    record = {
        "format": FORMAT,
        "run_id": run_id(who),
        "configuration": to_options(config),
        "store": who["store"],
        "target": who["target"],
        "machine": {**machine, "versions": versions()},
    }
    publish_json(path, record)
    return record


def read_run(run: Path) -> dict[str, Any]:
    """The run.json of a run directory.

    Raises:
        CurateError: there is none, it does not parse, or its format is unknown.
    """
    path = run / "run.json"
    try:
        record = from_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise CurateError(f"{run}: no run.json in it; name the --out folder of a `curate run`") from error
    except ValueError as error:
        raise CurateError(f"{path}: does not parse ({error}); restore it, or start in a new --out") from error
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        found = record.get("format") if isinstance(record, dict) else type(record).__name__
        raise CurateError(f"{path}: format {found}, this release reads {FORMAT}; use the release that wrote it")
    tables = all(isinstance(record.get(name), dict) for name in ("configuration", "machine"))
    texts = all(isinstance(record.get(name), str) for name in ("run_id", "store", "target"))
    if not (tables and texts):
        raise CurateError(f"{path}: is not as it was written; restore it, or start in a new --out")
    return record


def compare(run: Path, record: dict[str, Any], who: dict[str, Any]) -> list[str]:
    """Refuse to go on with another run; return a warning for each version that changed.

    Raises:
        RunMismatch: the configuration, the store or the target differ; both values are shown.
    """
    old = {name: record["configuration"].get(name) for name in who["options"]}
    differences = [
        f"--{name.replace('_', '-')} was {old[name]}, is {value}"
        for name, value in who["options"].items()
        if _plain(old[name]) != _plain(value)
    ]
    differences += [
        f"the {what} was {record[what][:12]}, is {who[what][:12]}"
        for what in ("store", "target")
        if record[what] != who[what]
    ]
    if differences:
        raise RunMismatch(f"{run}: belongs to another run: {'; '.join(differences)}; start in a new --out, or restore")
    then = record.get("machine", {}).get("versions", {})
    return [f"{k} was {then.get(k)}, is {v}" for k, v in versions().items() if then.get(k) != v]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
