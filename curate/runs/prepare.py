"""From a configuration to what a run needs: indexes opened, statistics measured, network built. Trains nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from curate import ranks
from curate.config.defaults import resolve
from curate.config.resolved import ReadyConfig, ResolvedConfig, ready
from curate.config.schema import ImageConfig, RunConfig
from curate.data.augment import Augment
from curate.data.decode import Decoder, measure
from curate.data.image_store import ImageStore, ShardView, default_cache_bytes
from curate.data.target import TargetIndex, is_labelled, load_split, open_target
from curate.duplicates.leak_notes import leak_notes
from curate.errors import CurateError, Misuse, NothingLeft, RunMismatch
from curate.metalosses import META_LOSSES
from curate.metalosses.base import MetaLoss, TargetImages
from curate.methods import METHODS
from curate.methods.base import Method, MethodInputs
from curate.models.memory_layout import laid_out
from curate.models.networks import network_of
from curate.models.synced_batch_norm import synced
from curate.pretexts import PRETEXTS
from curate.pretexts.base import Pretext
from curate.runs import provenance, saved_network, target_distances
from curate.runs.checkpoint import Examples
from curate.training import engine
from curate.types import ERRORS, Floats, Ints, Mask
from shards import shuffle
from shards.indexing import domains
from shards.indexing import index as shard_index
from shards.io import shard_set
from shards.io.mirror.place import local
from shards.io.parallel import default_workers
from shards.rewriting.plan import unsafe_rows
from shards.store import open_index

#: Images of the store over which mean and deviation are measured.
MEASURED = 1000


@dataclass
class Job:
    """A run that is ready to start or to go on.

    Args:
        config: resolved, statistics included.
        index: of the store.
        target: indexes of the target's splits; None where there is no target.
        notes: what a person should know before it starts, a line each.
        statistics: where mean and deviation of the pixels come from, in words.
        generation: number of the rewritten shards that are read now; 0 for the store.
    """

    config: ReadyConfig
    index: shard_index.Index
    target: TargetIndex | None
    setup: engine.Setup
    state: engine.State
    images: ImageStore
    examples: Examples
    notes: list[str]
    statistics: str
    generation: int = 0


def prepare(config: RunConfig, out: Path) -> Job:
    """Open store and target, and build what is trained.

    Args:
        config: as the user gave it; without a target only a method that learns nothing can run.
        out: where an index is written if the store has none.

    Raises:
        ShardError, CurateError: the store or the target cannot be used; the message says what to do.
    """
    target = open_target(config.target) if config.target else None
    notes = list(target.notes) if target else []
    requested = config.images
    resolved = _with_digest(resolve(config, labelled=target is None or is_labelled(target)))
    place = local(config.index) if config.index else None
    workers = default_workers() if config.machine.workers is None else max(1, config.machine.workers)
    index = open_index(
        config.store, place, workers, config.image, out / "index.parquet", allow_pipe=config.machine.allow_pipe
    )
    device = pick_device(config.machine.device)
    decoder = Decoder.of(resolved.images)
    images = open_images(resolved, index, decoder, device)
    examples = fresh_examples(index)
    notes += store_notes(resolved, examples) + method_notes(resolved)
    notes += leak_notes(index, target.splits) if target else []
    whole, statistics = measured(resolved, requested, images, examples)
    augment, pretext = Augment.of(whole.images), pretext_of(whole)
    method: Method = METHODS[whole.method](_method_inputs(whole, images, examples, target, out, notes))
    if method.admitted is not None:
        examples.kept &= method.admitted
    meta_loss = None
    if method.learns:
        meta_loss = _meta_loss(whole, target, decoder, augment, pretext, device, notes)
    network = network_of(whole).to(device)
    _refuse_wrapped(network, whole)
    if ranks.world() > 1 and whole.network.sync_bn:
        network = synced(network)
    network = laid_out(network, whole.machine.layout, device)
    setup = engine.Setup(whole, network, pretext, meta_loss, device)
    return Job(whole, index, target, setup, engine.begin(setup, method), images, examples, notes, statistics)


def pretext_of(config: ReadyConfig) -> Pretext:
    """The pretext of a run, with its augmentation."""
    pretext: Pretext = PRETEXTS[config.pretext](Augment.of(config.images), config.network)
    return pretext


def _refuse_wrapped(network: torch.nn.Module, config: ResolvedConfig) -> None:
    """Refuse a network from outside that spreads itself: such a module loses tangents without a word."""
    kinds = {kind.__name__ for part in network.modules() for kind in type(part).__mro__}
    wrapped = kinds & {"DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule"}
    if wrapped:
        name = config.network.network
        raise Misuse(f"--network {name}: is wrapped in {min(wrapped)}; give the bare module, --devices spreads it")


def open_images(config: ResolvedConfig, index: shard_index.Index, decoder: Decoder, device: torch.device) -> ImageStore:
    """The store's images, by the machine's workers and memory."""
    machine = config.machine
    workers = max(1, default_workers() // ranks.here()) if machine.workers is None else machine.workers
    cache = default_cache_bytes(device) if machine.cache_bytes is None else machine.cache_bytes
    return ImageStore(ShardView.whole(index), decoder, workers, cache, device)


def store_notes(config: RunConfig, examples: Examples) -> list[str]:
    """Warnings of the store: shards that do not exist, files passed over, samples without an image or a safe name."""
    listed = shard_set.resolve(config.store, allow_pipe=config.machine.allow_pipe)
    missing, passed_over = listed.missing, listed.passed_over.left_out()
    shown = ", ".join(missing[:5]) + (" ..." if len(missing) > 5 else "")
    notes = [f"{len(missing)} shards of the store do not exist: {shown}"] if missing else []
    notes += [f"of the store's folder was passed over: {passed_over}"] if passed_over else []
    for kind in ("no-image", "unsafe-name"):
        count = int((examples.error == ERRORS.index(kind)).sum())
        notes += [f"{count} samples of the store are not trained on: {kind}"] if count else []
    return notes


def method_notes(config: ResolvedConfig) -> list[str]:
    """Warnings of settings under which the method prunes nearly everything at once."""
    by_itself = config.belief.prior == "uniform"
    if by_itself and METHODS.spec(config.method).defaults.get("lam") == 0 and config.prune.lam > 0:
        weights = f"weights of {config.method} start at 0"
        return [f"--lam {config.prune.lam:g}: {weights}, so nearly everything may go after epoch 1"]
    return []


def fresh_examples(index: shard_index.Index) -> Examples:
    """Before the first epoch: all kept, none visited; what has no image or no safe name is known from the index."""
    n = len(index)
    error = np.zeros(n, np.uint8)
    error[index.table["image"].is_null().to_numpy()] = ERRORS.index("no-image")
    error[unsafe_rows(index.table["key"])] = ERRORS.index("unsafe-name")
    return Examples(np.ones(n, np.bool_), np.zeros(n, np.int16), error)


def trainable(examples: Examples) -> Ints:
    """The rows that an epoch trains on: kept, and not known to be undecodable."""
    return np.flatnonzero(examples.kept & (examples.error == 0)).astype(np.int64)


def pick_device(name: str) -> torch.device:
    """The device of that name; "auto" is CUDA where there is one.

    Raises:
        CurateError: the machine has no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            raise Misuse(f"--device {name}: expected auto, cpu, cuda or cuda:N")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise CurateError(f"--device {name}: not on this machine ({_first_sentence(error)}); try cpu") from error
    return device


def _first_sentence(error: Exception) -> str:
    return re.split(r"\n|(?<=[.!?])\s", str(error), maxsplit=1)[0][:200]


def measured(
    config: ResolvedConfig, requested: ImageConfig, images: ImageStore, examples: Examples
) -> tuple[ReadyConfig, str]:
    """The configuration with mean and deviation of the pixels, and a note on where they come from.

    Args:
        requested: the options as given, which tell statistics of the user's from those of the pretext.

    Raises:
        CurateError: no sample has an image.
    """
    rows = trainable(examples)
    if len(rows) == 0:
        raise CurateError(f"{config.store}: no sample has an image; name the store, or the extension by --image")
    mean, deviation = config.images.mean, config.images.deviation
    if mean is not None and deviation is not None:
        given = requested.mean is not None and requested.deviation is not None
        return ready(config, mean, deviation), "given" if given else f"of the pretext {config.pretext}"
    chosen = np.sort(rows[shuffle.permutation(config.seed, "statistics", 0, len(rows))[:MEASURED]])
    measured = measure(images.sample(chosen))
    source = f"measured on {len(chosen)} images of the store"
    return ready(config, mean or measured[0], deviation or measured[1]), source


def _with_digest(config: ResolvedConfig) -> ResolvedConfig:
    """With the sha256 of the file of weights that features come from, which stands for it in the run's id."""
    near = config.neighbours
    if near.nn_features is None:
        return config
    found = saved_network.digest(Path(near.nn_features))
    if near.nn_weights not in (None, found):
        raise RunMismatch(
            f"--nn-features {near.nn_features}: sha256 {found[:12]}, the run has {str(near.nn_weights)[:12]}; "
            "restore the file or start in a new --out"
        )
    return replace(config, neighbours=replace(near, nn_weights=found))


def _method_inputs(
    config: ReadyConfig, images: ImageStore, examples: Examples, target: TargetIndex | None, out: Path, notes: list[str]
) -> MethodInputs:
    """What the method is made of: domains and distances only where it asks for them."""
    index = images.view.index
    given = MethodInputs(len(index), config.belief, config.seed, images.device)
    inputs = METHODS.spec(config.method).inputs
    own = domains.load(index).own(config.domain) if config.domain else None
    if "domain" in inputs:
        _refuse_lonely(config, own, examples)
        given = replace(given, own=own)
    if "distances" in inputs:
        if target is None:
            raise _no_target(config)
        found = _distances(config, images, trainable(examples), target, out, notes)
        given = replace(given, distances=found, decay=config.neighbours.nn_beta)
    return given


def _refuse_lonely(config: ResolvedConfig, own: Mask | None, examples: Examples) -> None:
    count = int(np.count_nonzero(own & examples.kept & (examples.error == 0))) if own is not None else 0
    if count < engine.FEWEST:
        raise NothingLeft(
            f"--domain {config.domain}: {count} of {len(examples.kept)} images of the store is of it, "
            f"training needs {engine.FEWEST}; name another domain"
        )


def _distances(
    config: ReadyConfig, images: ImageStore, rows: Ints, target: TargetIndex, out: Path, notes: list[str]
) -> Floats:
    """The distance of each row of the store to the target, measured once a run."""
    index, path = images.view.index, out / target_distances.FILE_NAME
    record = target_distances.identity(config, index, target.fingerprint)
    if not path.exists():
        if (out / "run.json").exists():
            who = provenance.identity(config, index.fingerprint, target.fingerprint)
            provenance.compare(out, provenance.read_run(out), who)  # before anything is written into another's folder
        train, vectors = load_split(target, "train", images.decoder), target_distances.vectors_by(config, images.device)
        squared, share = target_distances.measure(images, rows, train.pixels, vectors, config.seed)
        target_distances.save(path, index, rows, squared, record, share)
    squared, share = target_distances.load(path, rows, len(index), record)
    notes.append(f"nearest target images: {share:.1%} of a sample are the true ones")
    far = squared if config.neighbours.nn_distance == "squared" else np.sqrt(squared)
    middle = float(np.exp(-config.neighbours.nn_beta * np.median(far[rows])))
    if not 0.1 <= middle <= 0.9:
        beta = config.neighbours.nn_beta
        notes.append(f"--nn-beta {beta:g}: the median image weighs {middle:.3g}; see docs/method.md")
    return far


def _meta_loss(
    config: ReadyConfig,
    target: TargetIndex | None,
    decoder: Decoder,
    augment: Augment,
    pretext: Pretext,
    device: torch.device,
    notes: list[str],
) -> MetaLoss:
    if target is None:
        raise _no_target(config)
    train = load_split(target, "train", decoder)
    if train.left_out:
        notes.append(f"target train: left out {', '.join(f'{n} {reason}' for reason, n in train.left_out.items())}")
    if train.words and config.meta.meta_loss == "prototypical":
        raise CurateError(f"{config.target}/{train.words}, or give --meta-loss self-supervised, which needs none")
    images = TargetImages(train.pixels.to(device), train.labels)
    loss: MetaLoss = META_LOSSES[config.meta.meta_loss](images, config.meta, augment, pretext, config.seed)
    notes.extend(loss.notes)
    return loss


def _no_target(config: RunConfig) -> CurateError:
    return CurateError(f"--method {config.method} needs a --target: a folder with train/, val/ and test/ shards")
