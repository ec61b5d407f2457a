"""Prototypical episodes: K ways, N shots, Q queries a way (Snell, Swersky, Zemel 2017; docs/method.md section 3)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from curate import ranks
from curate.config.schema import MetaConfig
from curate.data.augment import Augment
from curate.errors import CurateError
from curate.metalosses.base import TargetImages
from curate.models.networks import Network
from curate.pretexts.base import Pretext
from curate.rng import generator_of_part


class Episode(NamedTuple):
    """Support images first, then queries, in one batch.

    Args:
        images: shape (s + q, C, crop, crop), normalised floats; over several ranks, those of this one.
        averaging: shape (K, s): row c averages the support images of way c.
        answers: shape (q,), int64: the way of each query.
    """

    images: Tensor
    averaging: Tensor
    answers: Tensor


class Prototypical:
    """Mean cross-entropy of the queries; logits are minus the squared distance to each way's mean feature."""

    def __init__(self, target: TargetImages, config: MetaConfig, augment: Augment, seed: int) -> None:
        if target.labels is None:
            raise CurateError("the prototypical meta-loss needs labels: .cls members in the target's train shards")
        self.target, self.config, self.seed = target, config, seed
        self.crop = augment.training if config.target_augment == "same" else lambda pixels, g: augment.centre(pixels)
        self.normalise = augment.normalise
        self.members = usable_classes(target.labels, config)
        self.ways = min(config.ways, len(self.members))
        lonely = len(torch.unique(target.labels)) - len(self.members)
        self.notes = episode_notes(self.members, self.ways, config)
        if lonely:
            self.notes += (f"{lonely} classes of the target have a single image that decodes, and no episode has them",)

    @classmethod
    def of(
        cls, target: TargetImages, config: MetaConfig, augment: Augment, pretext: Pretext, seed: int
    ) -> Prototypical:
        """The episodes of a configuration (ways, shots, queries); the pretext is not used."""
        return cls(target, config, augment, seed)

    def batch(self, epoch: int, step: int) -> Episode:
        """An episode of the target, keyed by (seed, epoch, step)."""
        g = generator_of_part(self.seed, "episode", epoch, step)
        support, queries = draw_episode(self.members, self.ways, self.config, g)
        chosen = torch.cat([*support, *queries])
        g.own, g.whole = ranks.part(len(chosen)).own, len(chosen)
        chosen = chosen[g.own]
        device = self.target.pixels.device
        images = self.crop(self.target.pixels[chosen.to(device, non_blocking=True)], g)
        sizes = torch.tensor([len(rows) for rows in support])
        owner = torch.arange(self.ways).repeat_interleave(sizes)
        averaging = F.one_hot(owner, self.ways).T / sizes[:, None]
        asked = queries if self.config.query == "apart" else support
        answers = torch.arange(self.ways).repeat_interleave(torch.tensor([len(rows) for rows in asked]))
        return Episode(self.normalise(images), averaging.to(device), answers.to(device))

    def shape(self) -> str:
        """Ways, support and query images of an episode, in words."""
        batch = self.batch(1, 0)
        ways, support = batch.averaging.shape
        return f"{ways} ways, {support} support and {len(batch.answers)} query images ({self._size(batch)} in a batch)"

    def loss(self, network: Network, batch: Episode) -> Tensor:
        """Mean cross-entropy over the queries, a scalar; over several ranks, which all know it, an equal part of it."""
        features = ranks.part(self._size(batch)).gathered(network(batch.images).features)
        support = batch.averaging.shape[1]
        prototypes = batch.averaging.to(features.dtype) @ features[:support]
        queries = features[support:] if len(features) > support else features
        distances = (queries[:, None] - prototypes[None]).square().sum(-1)
        return ranks.one_part(F.cross_entropy(-distances, batch.answers))

    def _size(self, batch: Episode) -> int:
        """Images of the whole episode."""
        return batch.averaging.shape[1] + (len(batch.answers) if self.config.query == "apart" else 0)


def usable_classes(labels: Tensor, config: MetaConfig) -> list[Tensor]:
    """The rows of each class that can give a support and a query image.

    Raises:
        CurateError: fewer than two such classes.
    """
    fewest = 2 if config.query == "apart" else 1
    members = [torch.nonzero(labels == label).flatten() for label in torch.unique(labels)]
    usable = [rows for rows in members if len(rows) >= fewest]
    if len(usable) < 2:
        raise CurateError(
            f"target train has {len(usable)} classes with {fewest} or more images, an episode needs 2; "
            "add labelled images, or use --meta-loss self-supervised"
        )
    return usable


def episode_notes(members: list[Tensor], ways: int, config: MetaConfig) -> tuple[str, ...]:
    """Warnings: fewer ways than configured; classes with too few images for a whole episode."""
    notes = (
        [] if ways == config.ways else [f"episodes have {ways} ways, not {config.ways}: the target has no more classes"]
    )
    needed = config.shots + (config.queries or config.shots) if config.query == "apart" else config.shots
    small = sum(len(rows) < needed for rows in members)
    if small:
        few = f"{small} of {len(members)} classes have fewer than {needed} images and give fewer in an episode"
        notes.append(f"{few}; add images to train, or ask for fewer --shots")
    return tuple(notes)


def draw_episode(
    members: list[Tensor], ways: int, config: MetaConfig, g: torch.Generator
) -> tuple[list[Tensor], list[Tensor]]:
    """Support and query rows of each way, disjoint; a class with n images gives min(N, n - 1) shots and
    min(Q, n - shots) queries. With ``query`` "support" there are no queries apart."""
    support, queries = [], []
    for place in torch.randperm(len(members), generator=g)[:ways].tolist():
        rows = members[place][torch.randperm(len(members[place]), generator=g)]
        if config.query == "support":
            support.append(rows[: config.shots])
            continue
        shots = min(config.shots, len(rows) - 1)
        support.append(rows[:shots])
        queries.append(rows[shots : shots + (config.queries or config.shots)])
    return support, queries
