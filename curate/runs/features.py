"""Features of a store and of a target: found where they were made before, else made, shard by shard.

Owns where features are looked for and kept, and the one pass over the images. What a feature is, is the encoder's
business (`curate.selection`); how it lies on disk, that of `curate.selection.feature_files`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
from curate.runs.shard_features import cuts_of, decoder_of, encoded, write, write_shard
from curate.selection import base, feature_files
from curate.selection.base import Features
from curate.selection.given import GivenFeatures
from curate.types import ERRORS, Floats, Ints
from shards import shuffle
from shards.indexing.index import Index, one_shard
from shards.io import remote
from shards.io.images import ImageError
from shards.io.locks import locked
from shards.io.parallel import default_workers, is_local, map_shards
from shards.io.part import Part

#: Told of images, how many more are done.
Tell = Callable[[int], None]


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
        return decoder_of(self.encoder)

    def encode(self, pixels: Tensor) -> Floats:
        """Features of uint8 images (k, C, size, size): shape (k, d)."""
        return encoded(self.ready(), pixels)

    def ready(self) -> base.Encoder:
        """The encoder, calibrated."""
        if not self.calibrated:
            self._calibrate()
        return self.encoder

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
    """What a pass over a store, or over a part of it, came to.

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
    """Compute the features that are missing, a file a shard. Returns of how many images.

    Raises:
        Busy: another process is at it.
        OSError: disk full, no permission; files that are there stay.
    """
    with locked(folder):
        return make_some(source, index, folder, range(len(index.shards)), progress)


def make_some(source: Source, index: Index, folder: Path, numbers: range, progress: Progress) -> int:
    """As `make`, of some shards; others may be at other shards meanwhile."""
    todo = [number for number in feature_files.missing(folder, index) if number in numbers]
    known = fresh_examples(index).error
    usable = {number: _rows(index, number)[known[_rows(index, number)] == 0] for number in todo}
    n_todo, whole = sum(map(len, usable.values())), sum(len(index.rows(number)) for number in numbers)
    with progress.images("features", whole, whole - n_todo) as tell:
        if is_local():
            _in_one_pass(source, index, folder, usable, tell)
        else:
            _shard_by_shard(source, index, folder, todo, tell)
    return n_todo


def _in_one_pass(source: Source, index: Index, folder: Path, usable: dict[int, Ints], tell: Tell) -> None:
    """Encode here what this machine's processes decode, the next shard's images while those of one are encoded.

    Args:
        usable: of each shard, by number, the rows that may decode.
    """
    cuts, known = {number: cuts_of(rows) for number, rows in usable.items()}, fresh_examples(index).error
    batches = source.images(index).read([cut for number in usable for cut in cuts[number]])
    for number in usable:
        held = index.rows(number)
        names, error = index.table.slice(held.start, len(held)), known[held.start : held.stop]
        own = islice(batches, len(cuts[number]))
        write(source.ready(), own, names, error, feature_files.part_of(folder, number), held.start, tell)


def _shard_by_shard(source: Source, index: Index, folder: Path, todo: list[int], tell: Tell) -> None:
    """Have an engine's tasks decode and encode a shard each."""
    if not todo:
        return
    task = partial(write_shard, source.ready(), torch.get_num_threads(), folder)
    items = ((number, one_shard(index, number)) for number in todo)
    for done in map_shards(task, items, total=len(todo), cards=int(source.device.type == "cuda")):
        tell(done)


def features(
    index: Index,
    choice: Choice,
    out: Path | None,
    machine: MachineConfig,
    calibrate_on: Index | None,
    progress: Progress,
    part: Part | None = None,
) -> FeatureSummary:
    """Make the features of a store, or go on where an earlier call was stopped.

    Args:
        out: where their folder goes; None for ``features`` beside the store.
        calibrate_on: the store whose features they are to be compared with; None for itself.
        part: of the store's shards; None for all of them.

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
    numbers = range(len(index.shards)) if part is None else part.share(len(index.shards))
    with progress:
        computed = (
            make(source, index, folder, progress)
            if part is None
            else make_some(source, index, folder, numbers, progress)
        )
    seconds = time.perf_counter() - started
    images, width = feature_files.count(folder, index, numbers)
    left_out = sum(len(index.rows(number)) for number in numbers) - images
    rate = round(computed / seconds, 1)
    return FeatureSummary(str(folder), images, left_out, width, computed, round(seconds, 3), rate)


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
    values = source.encode(torch.stack(pictures) if pictures else torch.zeros(0))
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
