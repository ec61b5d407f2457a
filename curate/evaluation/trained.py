"""The networks that a run or a pre-training left, and a labelled target decoded as they were trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from curate.config.resolved import ReadyConfig
from curate.data.augment import Augment
from curate.data.decode import Decoder
from curate.data.target import SPLITS, TargetIndex, load_split
from curate.errors import CurateError
from curate.models.networks import TappedNetwork, network_of
from curate.runs import checkpoint, provenance
from curate.runs.prepare import pick_device

#: What a target without labels is told.
NO_LABELS = (
    "no labels (.cls members); evaluation needs a labelled target, as `curate pack imagefolder FOLDER --target --out "
    "DIR` makes of images in folders by class"
)


@dataclass(frozen=True)
class Trained:
    """A run and a target, ready to be scored.

    Args:
        splits: train, val and test: uint8 pixels (n, C, S, S) and int64 labels (n,) in 0 .. classes - 1, on the CPU.
        classes: labels of the target's cls members that any split has.
        left_out: target images without a label or that do not decode, by split and reason.
        device: where networks are put.
    """

    run: Path
    config: ReadyConfig
    splits: dict[str, tuple[Tensor, Tensor]]
    classes: int
    left_out: dict[str, dict[str, int]]
    device: torch.device

    @property
    def augment(self) -> Augment:
        """The crop and the normalisation that the network was trained with."""
        return Augment.of(self.config.images)

    def network(self, epoch: int) -> TappedNetwork:
        """The network after an epoch, on the device; as it was drawn before the first for epoch 0."""
        network = network_of(self.config)
        if epoch > 0:
            checkpoint.load_model(checkpoint.folder(self.run, epoch) / "model.safetensors", network)
        return network.to(self.device)

    def epochs(self, asked: int | None) -> list[int]:
        """The finished epochs, or the one asked for; epoch 0 is always there.

        Raises:
            CurateError: there is none, or not that one.
        """
        done = checkpoint.finished(self.run)
        if asked == 0:
            return [0]
        if not done:
            raise CurateError(f"{self.run}: no finished epoch; train first with `curate run` or `curate pretrain`")
        if asked is None:
            return done
        if asked not in done:
            raise CurateError(f"--epoch {asked}: not finished; there are {done[0]} to {done[-1]}")
        return [asked]


def open_trained(run: Path, name: str, target: TargetIndex, device: str) -> Trained:
    """Decode the target as the run's own images were.

    Args:
        name: of the target, for messages.

    Raises:
        CurateError: no run, a split is missing or has no labels, no such device.
    """
    config = provenance.read_config(run)
    images, labels = {}, {}
    for split in SPLITS:
        found = images[split] = load_split(target, split, Decoder.of(config.images))
        if found.words:
            raise CurateError(f"{name}/{found.words}")
        if found.labels is None:
            raise CurateError(f"{name}/{split}: {NO_LABELS}")
        labels[split] = found.labels
    known = torch.unique(torch.cat(list(labels.values())))
    return Trained(
        run=run,
        config=config,
        splits={split: (found.pixels, torch.searchsorted(known, labels[split])) for split, found in images.items()},
        classes=len(known),
        left_out={split: found.left_out for split, found in images.items() if found.left_out},
        device=pick_device(device),
    )
