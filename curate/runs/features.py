"""Features of a store and of a target: found where they were made before, else made, shard by shard.

Owns where features are looked for and kept, and the one pass over the images. What a feature is, is the encoder's
business (`curate.selection`); how it lies on disk, that of `curate.selection.feature_files`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from curate.config.catalogue import ENCODERS, parse_encoder
from curate.config.schema import MachineConfig
from curate.data.decode import Decoder
from curate.data.image_store import ImageStore, ShardView
from curate.data.photos import Photos
from curate.data.target import names_of
from curate.errors import Misuse
from curate.progress import Progress
from curate.runs.prepare import fresh_examples, pick_device, trainable
from curate.selection import base, feature_files
from curate.selection.base import Features, Vectors
from curate.selection.given import GivenFeatures
from curate.types import ERRORS, Floats
from shards import shuffle
from shards.indexing.index import Index
from shards.io import remote
from shards.io.images import ImageError
from shards.io.locks import locked
from shards.io.parallel import default_workers

#: Images a pass; a batch never spans two shards, so that a shard's features do not depend on what was done before.
BATCH = 256


@dataclass(frozen=True)
class Choice:
    """Which features are computed: ``--encoder`` as it is given, and the networks of the untrained encoder."""

    encoder: str = "untrained"
    nets: int = 3


class Source:
    """Where features come from: an encoder, calibrated on a store when it is first needed; or given ones.

    Args:
        choice: what is wanted.
        store: what is calibrated on; None where nothing is to be.
        machine: workers and device.

    Raises:
        Misuse: an encoder that is calibrated, and no store.
    """

    def __init__(self, choice: Choice, store: Index | None, machine: MachineConfig) -> None:
        self.name, argument = parse_encoder(choice.encoder)
        self.store = store
        self.device = pick_device(machine.device)
        self.workers = default_workers() if machine.workers is None else machine.workers
        found: Any = ENCODERS[self.name](base.EncoderInputs(argument, choice.nets, self.device))
        self.given: GivenFeatures | None = found if isinstance(found, GivenFeatures) else None
        self.encoder: base.Encoder = found
        self.identity: dict[str, Any] = {"encoder": self.name, **found.identity}
        self.calibrated = self.given is not None or self.encoder.calibrated_on == 0
        if not self.calibrated:
            if store is None:
                raise Misuse(f"--encoder {choice.encoder}: is calibrated on a store; name it with --calibrate")
            self.identity["calibrated on"] = store.fingerprint

    @property
    def key(self) -> str:
        """Twelve hex digits of encoder, preprocessing and calibration store: the name of the features' folder."""
        return feature_files.key_of(self.identity)

    @property
    def decoder(self) -> Decoder:
        """The decoder that gives the encoder's image size and channels."""
        return Decoder(self.encoder.size, self.encoder.colour)

    def encode(self, pixels: Tensor) -> Floats:
        """Features of uint8 images (k, C, size, size): shape (k, d)."""
        if not self.calibrated:
            self._calibrate()
        return np.concatenate([self.encoder(batch) for batch in torch.split(pixels, BATCH)])

    def images(self, index: Index) -> ImageStore:
        """The images of a store, decoded for the encoder."""
        return ImageStore(ShardView.whole(index), self.decoder, self.workers, 0, self.device)

    def folder(self, held: Index | Photos, within: Path) -> Path:
        """Where the features of a store, or of image files, are kept."""
        whole = feature_files.key_of({**self.identity, "of": held.fingerprint})
        return within / f"{self.name}-{whole}"

    def _calibrate(self) -> None:
        assert self.store is not None
        rows = trainable(fresh_examples(self.store))
        chosen = rows[shuffle.permutation(0, "calibration", 0, len(rows))[: self.encoder.calibrated_on]]
        self.encoder.calibrate(self.images(self.store).sample(np.sort(chosen)))
        self.calibrated = True


@dataclass(frozen=True)
class FeatureSummary:
    """What a pass over a store came to.

    Args:
        folder: where the features are.
        images: with features.
        left_out: without, for they do not decode.
        numbers: an image.
        computed: of the images, now; the others were there.
        seconds: of this call.
        images_per_second: of those computed now.
    """

    folder: str
    images: int
    left_out: int
    numbers: int
    computed: int
    seconds: float
    images_per_second: float


def of_store(
    source: Source, index: Index, places: Sequence[Path], progress: Progress, into: Path | None = None
) -> Features:
    """The features of a store: read from the first of ``places`` that has them all, else made in the last.

    Args:
        into: as `feature_files.load` has it.

    Raises:
        CurateError, ShardError: the store or its features cannot be read.
    """
    if source.given is not None:
        found = source.given.of(index.table.select(["shard", "key"]), "store")
        if into:
            np.save(into, found.values)
        return found
    for place in places:
        folder = source.folder(index, place)
        if not feature_files.missing(folder, index):
            return feature_files.load(folder, index, into)
    make(source, index, folder, progress)
    return feature_files.load(folder, index, into)


def beside(index: Index) -> list[Path]:
    """Where features of a local store would lie beside its index."""
    return [] if remote.is_url(index.root) else [Path(index.root) / feature_files.FOLDER]


def make(source: Source, index: Index, folder: Path, progress: Progress) -> int:
    """Compute the features that are missing, a part a shard. Returns of how many images.

    Raises:
        Busy: another process is at it.
        OSError: disk full, no permission; parts that are there stay.
    """
    with locked(folder):
        todo = feature_files.missing(folder, index)
        known = fresh_examples(index).error
        usable = {number: _rows(index, number)[known[_rows(index, number)] == 0] for number in todo}
        cuts = {number: [rows[at : at + BATCH] for at in range(0, len(rows), BATCH)] for number, rows in usable.items()}
        batches = source.images(index).read([cut for number in todo for cut in cuts[number]])
        n_todo = sum(map(len, usable.values()))
        with progress.images("features", len(index), len(index) - n_todo) as tell:
            for number in todo:
                error = known[_rows(index, number)]
                values: list[Vectors] = []
                for batch in islice(batches, len(cuts[number])):
                    for row, code in batch.bad:
                        error[row - index.rows(number).start] = code
                    values += [source.encode(batch.pixels)] if len(batch.pixels) else []
                    tell(len(batch.pixels) + len(batch.bad))
                names = index.table.select(["shard", "key"]).slice(index.rows(number).start, len(error))
                part = np.concatenate(values) if values else source.encode(_black(source.decoder))[:0]
                feature_files.write_part(feature_files.part_of(folder, number), names, part, error)
    return n_todo


def features(
    index: Index,
    choice: Choice,
    out: Path | None,
    machine: MachineConfig,
    calibrate_on: Index | None,
    progress: Progress,
) -> FeatureSummary:
    """Make the features of a store, or go on where an earlier call was stopped.

    Args:
        out: where their folder goes; None for ``features`` beside the store.
        calibrate_on: the store whose features they are to be compared with; None for itself.

    Raises:
        Misuse: no ``out`` for a store that is remote or not to be written, or given features.
        CurateError, ShardError: as `of_store`.
    """
    started = time.perf_counter()
    source = Source(choice, calibrate_on or index, machine)
    if source.given is not None:
        raise Misuse(f"--encoder {choice.encoder}: these features are there already; nothing to compute")
    place = out or _writable(index)
    folder = source.folder(index, place)
    with progress:
        computed = make(source, index, folder, progress)
    seconds = time.perf_counter() - started
    images, width = feature_files.count(folder, index)
    rate = round(computed / seconds, 1)
    return FeatureSummary(str(folder), images, len(index) - images, width, computed, round(seconds, 3), rate)


def features_of_photos(
    held: Photos, choice: Choice, out: Path | None, machine: MachineConfig, calibrate_on: Index | None
) -> FeatureSummary:
    """Make the features of image files: one part, whose samples have the shard ``""``.

    Args:
        out: where their folder goes; the images' own is left alone.

    Raises:
        Misuse: no ``out``, nothing to calibrate on, or given features.
    """
    started = time.perf_counter()
    source = Source(choice, calibrate_on, machine)
    if source.given is not None:
        raise Misuse(f"--encoder {choice.encoder}: these features are there already; nothing to compute")
    if out is None:
        raise Misuse(f"{held.root}: holds image files; say where the features go with --out")
    pictures, error = [], np.zeros(len(held), np.uint8)
    for place, body in enumerate(held.bodies()):
        try:
            pictures.append(source.decoder.pixels(body))
        except ImageError as fault:
            error[place] = ERRORS.index(fault.kind)
    values = source.encode(torch.stack(pictures)) if pictures else source.encode(_black(source.decoder))[:0]
    folder = source.folder(held, out)
    feature_files.write_part(feature_files.part_of(folder, 0), names_of(held), values, error)
    seconds, (n, width) = time.perf_counter() - started, values.shape
    return FeatureSummary(str(folder), n, len(held) - n, width, len(held), round(seconds, 3), round(n / seconds, 1))


def _writable(index: Index) -> Path:
    if not beside(index):
        raise Misuse(f"{index.root}: features are kept beside local shards only; say where else with --out")
    if not os.access(index.root, os.W_OK):
        raise Misuse(f"{index.root}: may not be written; say where the features go with --out")
    return beside(index)[0]


def _rows(index: Index, number: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    held = index.rows(number)
    return np.arange(held.start, held.stop, dtype=np.int64)


def _black(decoder: Decoder) -> Tensor:
    return torch.zeros((1, *decoder.shape), dtype=torch.uint8)
