"""Where an evaluation is written: a folder of its own, in RUN/evaluations or apart from all that it reads.

What lies in the folder is the part of those who write it; each begins with a record that tells its folder from others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from curate import folders, provenance
from curate.config import from_options
from curate.errors import CurateError, Misuse, RunMismatch
from shards import names, remote
from shards.errors import NotShards
from shards.publish import from_json, publish_json

#: The folder in a run's own where evaluations go that name no other.
FOLDER = "evaluations"


def place(run: Path, target: str, out: Path | None, name: str, record: str) -> Path:
    """The folder of an evaluation; nothing is written yet.

    Args:
        out: the one asked for; None for RUN/evaluations/NAME.
        record: name of the file that such an evaluation writes first.

    Raises:
        Misuse: it overlaps the target, the store, or the run but for its evaluations; it is no folder, or holds files
            without such a record.
    """
    if out is None:
        folder = run / FOLDER / name
    else:
        folder = out
        refuse_overlap(run, target, out)
    refuse_strangers(folder, record)
    return folder


def refuse_overlap(run: Path, target: str, out: Path) -> None:
    """Refuse a folder in, or around, what is read.

    Raises:
        Misuse: they overlap.
    """
    config = from_options(provenance.read_run(run)["configuration"])
    store = _root(config.store)
    read = [("target", Path(target))] + ([("store", store)] if store is not None else [])
    if config.target:
        read.append(("run's target", Path(config.target)))
    if run.resolve() / FOLDER not in out.resolve().parents:
        read.append(("run", run))
    folders.refuse_overlap(out, read, ", or leave --out out")


def refuse_strangers(folder: Path, record: str) -> None:
    """Refuse what is no folder, and a folder with files of somebody else.

    Raises:
        Misuse: it is one of these.
    """
    if folder.exists() and not folder.is_dir():
        raise Misuse(f"--out {folder}: expected a folder, found a file; name another")
    if folder.is_dir() and not (folder / record).exists() and any(p.name[0] != "." for p in folder.iterdir()):
        raise Misuse(f"--out {folder}: holds files, but no {record}; name a new folder, or that of the same evaluation")


def keep(path: Path, said: dict[str, Any]) -> None:
    """Write a record, or make sure that the one there says the same.

    Raises:
        RunMismatch: it says something else; both values are shown.
        CurateError: it is damaged.
    """
    if not path.exists():
        publish_json(path, said)
        return
    try:
        before = dict(from_json(path.read_bytes()))
    except (ValueError, TypeError) as error:
        raise CurateError(f"{path}: is damaged ({type(error).__name__}: {error}); name a new --out") from error
    different = [f"{name} was {before.get(name)}, is {said[name]}" for name in said if before.get(name) != said[name]]
    if different:
        raise RunMismatch(f"{path.parent}: holds another evaluation: {'; '.join(different)}; name a new --out")


def _root(spec: str) -> Path | None:
    """The folder of shards on this machine; None where they are elsewhere, or gone, which an evaluation may survive."""
    if remote.is_url(spec) and not spec.startswith("file:"):
        return None
    try:
        return Path(names.resolve(spec).root)
    except NotShards:
        return None
