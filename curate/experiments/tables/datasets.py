"""The data of tables 2 and 3: what a folder holds, packed once into a store and a target for each domain.

Recognised in DATA are ``decathlon-1.0/`` and every folder of STL-10's binary files. A data set of such a folder has the
folder's name (torchvision's stl10_binary is called stl10), whatever it holds: `DataSet.full` says whether it is as
large as the paper's. Where the binaries have an ``origin.csv`` beside them, which of their unlabelled images belong to
the target's classes is recorded beside the store.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from curate.data.target import open_target
from curate.errors import CurateError, Misuse, differences
from curate.experiments.baselines import trials
from curate.experiments.tables import protocols
from curate.experiments.tables.paper_numbers import DOMAINS
from curate.experiments.tables.presets import Scale
from curate.experiments.tables.protocols import Domain
from shards import shuffle
from shards.indexing import domains, index_file
from shards.indexing.domains import Domains
from shards.io.json_files import said_in, write_json
from shards.io.regular_files import read_regular
from shards.packing.decathlon.pack import SOURCE, pack_decathlon
from shards.packing.stl10 import pack_stl10
from shards.store import open_index

DECATHLON, BINARIES = "decathlon-1.0", "train_X.bin"
#: Fewer images than this in the store of a data set, and it is not the paper's.
FULL_SOURCE = {SOURCE: 1_000_000, "stl10": 100_000}
#: Domain of the unlabelled images that are of none of the target's classes.
OTHERS = "others"


@dataclass(frozen=True)
class DataSet:
    """A target, and the source that is weighed for it.

    Args:
        domain: name, episodes and protocol.
        source: name of the store.
        store, target: where they lie.
        images: of the store, and of train, val and test.
        origins: whether domains are on record beside the store: the target's name, and `OTHERS`.
        full: whether store and target are as large as the paper's.
    """

    domain: Domain
    source: str
    store: Path
    target: Path
    images: Mapping[str, int]
    origins: bool
    full: bool

    @property
    def name(self) -> str:
        """Name of the target domain."""
        return self.domain.name


def open_datasets(data: Path, out: Path, scale: Scale, seed: int, names: Sequence[str] | None) -> list[DataSet]:
    """Pack what ``data`` holds, where an earlier call has not, and choose.

    Args:
        data: a folder as above.
        out: gets ``data/`` with stores and targets.
        scale: its `source` and `labelled` are observed.
        seed: of the halves of the targets, and of the images that are drawn from a store.
        names: of targets, in this order; None for all (at a scale of few for the first and the last), those of the
            paper in its order, others after them.

    Raises:
        Misuse: nothing is recognised, a name is not there, or ``out`` holds other draws from the data.
        ShardError: the files are not as they should be.
    """
    claim(out, scale, seed)
    found = open_stl10(data, out, scale, seed)
    if names is None or not set(names) <= set(found):
        found |= open_decathlon(data, out, scale, seed)
    if not found:
        raise Misuse(f"--data {data}: expected {DECATHLON}/ or a folder with {BINARIES}, found neither; see --help")
    ordered = sorted(found, key=lambda name: (DOMAINS.index(name) if name in DOMAINS else len(DOMAINS), name))
    if names is None:
        names = [ordered[0], ordered[-1]] if scale.few and len(ordered) > 1 else ordered
    if unknown := [name for name in names if name not in found] or (["nothing"] if not names else []):
        raise Misuse(f"--domains {unknown[0]}: not in --data {data}; there are {', '.join(ordered)}")
    return [found[name] for name in dict.fromkeys(names)]


def claim(out: Path, scale: Scale, seed: int) -> None:
    """Take ``out`` for what is drawn from the data at this scale and seed.

    Raises:
        Misuse: it holds other draws, or a folder ``data`` that is not of an experiment.
    """
    record, path = {"seed": seed, "source": scale.source, "labelled": scale.labelled}, out / "data" / "drawn.json"
    if not path.exists():
        if path.parent.exists():
            raise Misuse(f"--out {out}: has a folder data/ that is not of an experiment; name another --out")
        write_json(path, record)
    held = said_in(path)
    if held != record:
        other = ", ".join(differences(held if isinstance(held, dict) else {}, record))
        raise Misuse(f"--out {out}: holds another experiment ({other}); name a new --out")


def open_decathlon(data: Path, out: Path, scale: Scale, seed: int) -> dict[str, DataSet]:
    """The domains of the decathlon, by name; one source for all. None where there is no such folder."""
    root = data if (data / "annotations").is_dir() else data / DECATHLON
    if not (root / "annotations").is_dir():
        return {}
    packed = out / "data" / DECATHLON
    if not packed.exists():
        pack_decathlon(root, packed, labelled=lambda name: _labelled(scale, protocols.of(name)), seed=seed)
    store = _part(packed / "store", out / "data" / f"{SOURCE}-{scale.source}", scale, seed)
    targets = sorted(path.name for path in (packed / "targets").iterdir())
    return {name: _dataset(protocols.of(name), SOURCE, store, packed / "targets" / name, scale) for name in targets}


def open_stl10(data: Path, out: Path, scale: Scale, seed: int) -> dict[str, DataSet]:
    """The folders of STL-10's binary files, by name; each has a source of its own, and its target is taken whole."""
    found = {}
    for folder in sorted(path.parent for path in [*data.glob(BINARIES), *data.glob(f"*/{BINARIES}")]):
        name = folder.resolve().name.removesuffix("_binary")
        packed = out / "data" / name
        if not packed.exists():
            pack_stl10(folder, packed, seed=seed)
        if not (packed / "store").exists():
            raise CurateError(f"{folder}: has no unlabeled_X.bin, so there is nothing to weigh; complete the folder")
        _record_origins(folder / "origin.csv", packed / "store", name)
        store = _part(packed / "store", out / "data" / f"{name}-{scale.source}", scale, seed)
        shape = protocols.of("stl10")
        domain = Domain(name, shape.ways, shape.shots, shape.queries, shape.labelled, stl10=True)
        found[name] = _dataset(domain, name, store, packed / "target", scale)
    return found


def _labelled(scale: Scale, domain: Domain) -> int:
    return domain.labelled if scale.labelled is None else min(scale.labelled, domain.labelled)


def _dataset(domain: Domain, source: str, store: Path, target: Path, scale: Scale) -> DataSet:
    splits = {name: len(split) for name, split in open_target(target).splits.items()}
    images = {"store": len(open_index(str(store))), **splits}
    whole = scale.source is None and images["store"] >= FULL_SOURCE.get(source, images["store"] + 1)
    full = whole and images["train"] + images["val"] == domain.labelled
    origins = domain.stl10 and (store / domains.FILE_NAME).exists()
    return DataSet(domain, source, store, target, images, origins, full)


def _record_origins(origins: Path, store: Path, name: str) -> None:
    """``domains.parquet`` beside a store, of an ``origin.csv`` with columns ``archive`` and ``in_the_10_classes``."""
    if not origins.exists() or (store / domains.FILE_NAME).exists():
        return
    try:
        lines = csv.DictReader(read_regular(origins).decode("utf-8").splitlines())
        inside = [row["in_the_10_classes"] == "yes" for row in lines if "unlabel" in row["archive"]]
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise CurateError(f"{origins}: is damaged ({type(error).__name__}: {error}); remove or mend it") from error
    index = open_index(str(store))
    if len(inside) != len(index):
        raise CurateError(f"{origins}: expected {len(index)} unlabelled images, found {len(inside)}; remove or mend it")
    # The packer keeps their order, and a key ends in the image's place.
    places = [int(key.rpartition("/")[2]) for key in index.table["key"].to_pylist()]
    codes = np.where(np.array(inside)[places], 0, 1).astype(np.int32)
    domains.save(index, Domains((name, OTHERS), codes), store / domains.FILE_NAME)


def _part(store: Path, out: Path, scale: Scale, seed: int) -> Path:
    """The store, or so many images of it as the scale has, with their domains where there are any."""
    index = open_index(str(store))
    if scale.source is None or scale.source >= len(index):
        return store
    rows = np.sort(shuffle.permutation(seed, "part of a store", 0, len(index))[: scale.source])
    trials.subset(index, rows, out)
    if (store / domains.FILE_NAME).exists() and not (out / domains.FILE_NAME).exists():
        whole = domains.load(index)
        part = index_file.load(out / index_file.FILE_NAME, str(out))
        domains.save(part, Domains(whole.names, whole.codes[rows]), out / domains.FILE_NAME)
    return out
