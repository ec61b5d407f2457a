"""What every meta-loss must hold, over the registry; then episodes and prototypes against loops written out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.config.schema import ImageConfig, MetaConfig, NetworkConfig
from curate.data.augment import Augment
from curate.errors import CurateError
from curate.metalosses import META_LOSSES
from curate.metalosses.base import TargetImages
from curate.metalosses.prototypical import Episode, Prototypical, draw_episode, usable_classes
from curate.models.networks import Outputs, build
from curate.pretexts import PRETEXTS
from curate.rng import generator

IMAGES = ImageConfig(size=9, crop=8, colour="grey", mirror=True, mean=(0.5,), deviation=(0.5,))
NETWORK = NetworkConfig(network="small", norm="group", width=4)
AUGMENT = Augment.of(IMAGES)
PRETEXT = PRETEXTS["rotation"](AUGMENT, NETWORK)
every_loss = pytest.mark.parametrize("name", META_LOSSES)


def target(n=24, classes=4):
    g = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (n, 1, 9, 9), generator=g, dtype=torch.uint8)
    return TargetImages(pixels, torch.arange(n) % classes)


def meta_loss(name, images=None, seed=0, **options):
    config = MetaConfig(**{"ways": 3, "shots": 2, "queries": 2, "target_batch": 6, **options})
    return META_LOSSES[name](images or target(), config, AUGMENT, PRETEXT, seed)


def tensors(batch):
    return (batch,) if isinstance(batch, torch.Tensor) else tuple(batch)


def same(one, two):
    return all(torch.equal(x, y) for x, y in zip(tensors(one), tensors(two)))


@every_loss
def test_a_loss_is_a_scalar_with_gradients(name):
    """For every trainable part that it uses."""
    net, meta = build(NETWORK, IMAGES, generator(0, "network")), meta_loss(name)
    loss = meta.loss(net, meta.batch(1, 0))
    assert loss.shape == ()
    assert torch.isfinite(loss)
    loss.backward()
    assert net.stages["stem"][0].weight.grad.abs().sum() > 0


@every_loss
def test_a_batch_depends_on_seed_epoch_and_step_alone(name):
    """Not on the calls before it."""
    one, two = meta_loss(name), meta_loss(name)
    two.batch(1, 0)
    assert same(one.batch(2, 5), two.batch(2, 5))
    for other in (one.batch(2, 6), one.batch(3, 5), meta_loss(name, seed=1).batch(2, 5)):
        assert not same(one.batch(2, 5), other)


@every_loss
def test_without_augmentation_target_images_are_centre_crops(name):
    """`--target-augment none`: every image of the batch is the middle of an image of the target."""
    meta = meta_loss(name, target_augment="none")
    images = tensors(meta.batch(1, 0))[0]
    middles = AUGMENT.normalise(AUGMENT.centre(target().pixels))
    upright = images if name == "prototypical" else images[: len(images) // 4]
    assert all(any(torch.equal(image, middle) for middle in middles) for image in upright)
    augmented = tensors(meta_loss(name).batch(1, 0))[0]
    assert not all(any(torch.equal(image, middle) for middle in middles) for image in augmented)


def prototypical_by_hand(features, support, ways, answers, queries):
    """Prototypes, minus squared distances and cross-entropy, image by image in numpy."""
    total = 0.0
    for feature, answer in zip(queries, answers):
        logits = []
        for way in range(ways):
            prototype = np.mean([f for f, owner in zip(features, support) if owner == way], axis=0)
            logits.append(-sum((feature - prototype) ** 2))
        total += np.log(np.sum(np.exp(np.array(logits) - max(logits)))) + max(logits) - logits[answer]
    return total / len(queries)


def test_the_prototypical_loss_is_snells():
    """Uneven ways: 3, 1 and 2 shots, and 4 queries (Snell, Swersky, Zemel 2017, equations 1 and 2)."""
    g = np.random.default_rng(0)
    features, support, answers = g.normal(size=(10, 5)), [0, 0, 0, 1, 2, 2], [2, 0, 1, 1]
    averaging = np.array([[(owner == way) / support.count(way) for owner in support] for way in range(3)])
    batch = Episode(torch.zeros(10, 1, 8, 8), torch.tensor(averaging), torch.tensor(answers))
    found = meta_loss("prototypical").loss(lambda x: Outputs(torch.tensor(features)), batch)
    expected = prototypical_by_hand(features[:6], support, 3, answers, features[6:])
    assert found.item() == pytest.approx(expected, rel=1e-12)


def test_the_support_may_be_scored_itself():
    """`--query support`: each support image is asked for its own way, and no other image is drawn."""
    meta = meta_loss("prototypical", query="support", shots=3)
    batch = meta.batch(1, 0)
    assert len(batch.images) == 9
    assert batch.answers.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    features = np.random.default_rng(1).normal(size=(9, 5))
    found = meta.loss(lambda x: Outputs(torch.tensor(features)), batch)
    owners = batch.answers.tolist()
    assert found.item() == pytest.approx(prototypical_by_hand(features, owners, 3, owners, features), rel=1e-6)


def test_an_episode_is_support_then_queries_way_by_way():
    """Each image in the batch belongs to the class of its way: read off pixels that hold their own label."""
    labels = torch.arange(24) % 4
    marked = TargetImages((40 * labels)[:, None, None, None].expand(24, 1, 9, 9).to(torch.uint8), labels)
    batch = meta_loss("prototypical", marked).batch(1, 3)
    mark = batch.images[:, 0, 0, 0]
    support, queries = mark[:6], mark[6:]
    assert batch.averaging.tolist() == [[0.5, 0.5, 0, 0, 0, 0], [0, 0, 0.5, 0.5, 0, 0], [0, 0, 0, 0, 0.5, 0.5]]
    of_way = batch.averaging @ support
    assert len(set(of_way.tolist())) == 3
    assert torch.equal(of_way[batch.answers], queries)


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(2, 9), min_size=2, max_size=6),
    ways=st.integers(2, 8),
    shots=st.integers(1, 6),
    queries=st.integers(1, 6),
    seed=st.integers(0, 99),
)
def test_support_and_queries_are_disjoint_and_of_the_stated_sizes(sizes, ways, shots, queries, seed):
    """A class of n gives min(N, n - 1) shots and min(Q, n - shots) queries (docs/method.md)."""
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    config = MetaConfig(ways=ways, shots=shots, queries=queries)
    members = usable_classes(labels, config)
    drawn = min(ways, len(members))
    support, asked = draw_episode(members, drawn, config, generator(seed, "episode"))
    assert len(support) == len(asked) == drawn
    classes = set()
    for shot_rows, query_rows in zip(support, asked):
        rows = torch.cat([shot_rows, query_rows]).tolist()
        assert len(rows) == len(set(rows))
        (label,) = {int(labels[row]) for row in rows}
        classes.add(label)
        n = sizes[label]
        assert len(shot_rows) == min(shots, n - 1)
        assert len(query_rows) == min(queries, n - len(shot_rows))
    assert len(classes) == drawn


def test_a_class_with_one_image_is_never_drawn():
    """It has no query; scored on the support itself it may be."""
    labels = torch.tensor([0, 0, 0, 1, 2, 2, 2])
    assert [len(rows) for rows in usable_classes(labels, MetaConfig())] == [3, 3]
    assert [len(rows) for rows in usable_classes(labels, MetaConfig(query="support"))] == [3, 1, 3]


def test_fewer_classes_than_ways_are_said_once():
    """K becomes what there is; small classes are counted too."""
    meta = meta_loss("prototypical", ways=20, shots=4, queries=3)
    assert len(meta.batch(1, 0).averaging) == 4
    assert meta.notes == (
        "episodes have 4 ways, not 20: the target has no more classes",
        "4 of 4 classes have fewer than 7 images and give fewer in an episode; add images to train, or ask for fewer "
        "--shots",
    )
    assert meta_loss("prototypical").notes == ()


def test_a_target_with_one_class_is_an_error():
    """An episode needs two."""
    with pytest.raises(CurateError, match="target train has 1 classes with 2 or more images, an episode needs 2"):
        meta_loss("prototypical", target(6, 1))


def test_prototypes_of_a_target_without_labels_are_an_error():
    """The message says where labels come from."""
    with pytest.raises(CurateError, match=r"needs labels: \.cls members"):
        Prototypical(TargetImages(target().pixels, None), MetaConfig(), AUGMENT, 0)


def test_the_self_supervised_loss_is_the_mean_pretext_loss():
    """Labels play no part."""
    net, meta = build(NETWORK, IMAGES, generator(0, "network")), meta_loss("self-supervised")
    batch = meta.batch(1, 0)
    torch.testing.assert_close(meta.loss(net, batch), PRETEXT.losses(net, batch).mean())
    unlabelled = meta_loss("self-supervised", TargetImages(target().pixels, None))
    assert same(unlabelled.batch(1, 0), batch)


@pytest.mark.parametrize(("n", "batch", "drawn"), [(24, 6, 6), (4, 6, 4), (2, 6, 2)])
def test_a_target_batch_is_drawn_without_replacement(n, batch, drawn):
    """At most the whole target: images are told apart by one grey level each."""
    levels = TargetImages(torch.arange(n).view(n, 1, 1, 1).expand(n, 1, 9, 9).to(torch.uint8), None)
    view = meta_loss("self-supervised", levels, target_batch=batch).batch(1, 0)
    levels_drawn = view[:drawn, 0, 0, 0].tolist()
    assert len(view) == 4 * drawn
    assert len(set(levels_drawn)) == drawn


def test_a_target_of_one_image_is_an_error():
    """Batch norm needs two."""
    with pytest.raises(CurateError, match="target train has 1 images that decode; at least 2"):
        meta_loss("self-supervised", target(1, 1))
