"""NN-Weighter: the neighbours are the true ones, the distances kept with the run, and files of weights only read."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import nmslib
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.torch
import torch
import torchvision
import toyset
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.config.schema import ImageConfig
from curate.errors import CurateError, Misuse, RunMismatch
from curate.ledger import table_file
from curate.runs import nearest_neighbours, saved_network, target_distances
from curate.runs.pretrain import pretrain
from shards.packing.idx import read_split

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "idx"
CPU = torch.device("cpu")
#: What a file of distances says of itself at least.
FOOTER = {"format": "distances", "version": 1, "of": {}, "recall": 0.5}


def real_vectors(count=1000):
    """Images of two sets as normalised pixels: (target, store); scikit-learn's digits where the sets are not."""
    if not SHARED.is_dir():
        pixels = toyset.digits()[0].reshape(-1, 256) / 127.5 - 1
        return pixels[:800].astype(np.float32), pixels[800:].astype(np.float32)
    first, second = (read_split(SHARED / name, "t10k").images for name in ("ahcd", "notmnist"))
    flat = [images.reshape(len(images), -1).astype(np.float32) / 127.5 - 1 for images in (first, second)]
    return flat[0][:count], np.concatenate([flat[0][count : count + 300], flat[1][:300]])


def brute(target, vectors):
    """The smallest squared distance of each vector, one by one in float64."""
    wide = target.astype(np.float64)
    return np.array([np.square(wide - vector).sum(1).min() for vector in vectors.astype(np.float64)])


@pytest.fixture(scope="module")
def real():
    target, store = real_vectors()
    return nearest_neighbours.build(target), store, brute(target, store)


def test_distances_equal_brute_force_but_for_the_share_that_recall_names(real):
    """Never smaller than the true one; equal in at least 99 of 100; recall is that share."""
    index, store, true = real
    found = nearest_neighbours.squared_distances(index, store)
    assert (found >= true * (1 - 1e-5)).all()
    right = found <= true * (1 + 1e-5)
    assert right.mean() >= 0.99
    assert nearest_neighbours.recall(index, store) == pytest.approx(right.mean(), abs=1e-9)


def test_every_build_in_a_process_finds_the_same():
    """nmslib's levels come from a generator that goes on; each build has a fresh one. Asked so carelessly that the
    neighbours found depend on the links."""
    target, vectors = np.random.default_rng(0).standard_normal((2, 1000, 64)).astype(np.float32)
    builds = [nearest_neighbours.build(target) for _ in range(2)]
    for build in builds:
        build.index.setQueryTimeParams({"efSearch": 1})
    first, second = (nearest_neighbours.squared_distances(build, vectors) for build in builds)
    assert np.array_equal(first, second)
    assert nearest_neighbours.recall(builds[0], vectors[:100]) < 1


def test_an_index_that_states_plain_distances_is_refused(real):
    """As nmslib's own index without its optimisation does: the scale is settled when the index is built."""
    index, store, _ = real
    plain = nmslib.init(method="hnsw", space="l2", data_type=nmslib.DataType.DENSE_VECTOR)
    plain.addDataPointBatch(index.target)
    plain.createIndex({**nearest_neighbours.BUILD, "skip_optimized_index": 1})
    with pytest.raises(CurateError, match="is the squared one; this build of nmslib measures something else"):
        nearest_neighbours.recall(nearest_neighbours.Neighbours(index.target, plain), store[:5])


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_small_targets_are_searched_exactly(count, dimensions, seed):
    """From a single vector in a single dimension on; equal vectors too, whose distance is 0."""
    rng = np.random.default_rng(seed)
    target = rng.integers(-3, 4, (count, dimensions)).astype(np.float32)
    vectors = rng.integers(-3, 4, (7, dimensions)).astype(np.float32)
    assert np.array_equal(
        nearest_neighbours.squared_distances(nearest_neighbours.build(target), vectors), brute(target, vectors)
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_refused(real, bad):
    """nmslib takes it without a word."""
    index, store, _ = real
    broken = store[:3].copy()
    broken[1, 5] = bad
    with pytest.raises(CurateError, match="vector 1 of the store is not finite"):
        nearest_neighbours.squared_distances(index, broken)
    with pytest.raises(CurateError, match="vector 1 of the target is not finite"):
        nearest_neighbours.build(broken)


def test_the_library_says_nothing_on_import():
    """Its greeting would stand among the data on stdout, or the talk on stderr."""
    imports = "import numpy as np; from curate.runs import nearest_neighbours"
    code = f"{imports}; nearest_neighbours.build(np.zeros((3, 4), np.float32))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (said.stdout, said.stderr) == (b"", b"")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    toyset.make_store(folder / "store", 48, {9: b"no picture"})
    toyset.make_target(folder / "target")
    return folder


def go(data, out, **changes):
    toyset.run_on(data, out, **{"method": "nn", "nn_beta": 0.01, "epochs": 1, **changes})
    return dict(toyset.partition(out, 1, "row", "mean"))


def resized(pictures):
    """Digits as the runs of these tests see them: 16 px to 8 by Pillow, then [-1, 1]."""
    from PIL import Image

    small = [Image.fromarray(picture).resize((8, 8), Image.Resampling.BICUBIC) for picture in pictures]
    return np.stack([np.asarray(picture, np.float64) for picture in small]).reshape(len(small), -1) / 127.5 - 1


def test_weights_of_a_run_follow_from_the_pixels(data, tmp_path):
    """exp(-0.01 d), d the squared distance of the normalised pixels to the nearest of the 40 target-train digits."""
    pictures = resized(toyset.digits()[0])
    weights = go(data, tmp_path / "run")
    rows = [row for row in range(48) if row != 9]
    expected = np.exp(-0.01 * brute(pictures[-40:], pictures[rows]))
    np.testing.assert_allclose([weights[row] for row in rows], expected, rtol=1e-4)
    assert weights[9] == 0
    assert 0.05 < min(weights[row] for row in rows) < max(weights.values()) < 1


def test_plain_distances_are_the_roots_of_the_squared(data, tmp_path):
    """log w of the one is the root of log w of the other: -beta d against -beta d^2."""
    squared, plain = go(data, tmp_path / "a"), go(data, tmp_path / "b", nn_distance="euclidean")
    rows = [row for row in range(48) if row != 9]
    logs = [np.log([weights[row] for row in rows]) / -0.01 for weights in (squared, plain)]
    np.testing.assert_allclose(np.sqrt(logs[0]), logs[1], rtol=1e-3)


def test_distances_are_kept_and_not_measured_again(data, tmp_path):
    """One line an image by its name, null where it does not decode; a run that goes on reads the file it has."""
    go(data, tmp_path / "run")
    path = tmp_path / "run" / target_distances.FILE_NAME
    table, written = pq.read_table(path), path.stat().st_mtime_ns
    assert table.schema.names == ["shard", "key", "row", "squared"]
    assert [row for row, value in zip(*(table[n].to_pylist() for n in ("row", "squared"))) if value is None] == [9]
    go(data, tmp_path / "run")
    assert path.stat().st_mtime_ns == written


def test_distances_of_another_space_are_refused(data, tmp_path):
    """What was measured and what is asked for are both named."""
    go(data, tmp_path / "run")
    path = tmp_path / "run" / target_distances.FILE_NAME
    (tmp_path / "other").mkdir()
    path.rename(tmp_path / "other" / path.name)
    with pytest.raises(RunMismatch, match=r"distances\.parquet: measured with crop 8, now it is 7; start in a new"):
        go(data, tmp_path / "other", crop=7)


def test_nothing_is_written_into_the_folder_of_another_run(data, tmp_path):
    """The refusal comes before the pass over the store."""
    toyset.run_on(data, tmp_path / "run", epochs=1)
    with pytest.raises(RunMismatch, match="--method was bdw, is nn"):
        go(data, tmp_path / "run")
    assert not (tmp_path / "run" / target_distances.FILE_NAME).exists()


def test_damaged_distances_are_named(data, tmp_path):
    """Ours appear whole or not at all: something else happened to them."""
    go(data, tmp_path / "run")
    path = tmp_path / "run" / target_distances.FILE_NAME
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(CurateError, match=r"distances\.parquet: unfinished or damaged .*; remove the file so that it"):
        go(data, tmp_path / "run")
    path.unlink()
    go(data, tmp_path / "run")


def test_features_of_a_checkpoint_of_ours(data, tmp_path):
    """Read from a plain pre-training; the weights differ from those of pixels, and the run's id knows the file."""
    fast = {"pretext": "reconstruction", "size": 8, "crop": 8, "hidden": 8, "batch": 16, "workers": 0, "device": "cpu"}
    pretrain(str(data / "store"), tmp_path / "net", {**fast, "epochs": 2})
    weights = tmp_path / "net" / "checkpoints" / "epoch=0002" / "model.safetensors"
    options = {"nn_space": "features", "nn_features": str(weights), "nn_beta": 1.0}
    found, pixels = go(data, tmp_path / "run", **options), go(data, tmp_path / "pixels")
    assert found != pixels
    assert 0 < min(found[row] for row in range(48) if row != 9) < 1
    weights.write_bytes(weights.read_bytes()[:-1])
    for name, message in (
        ("model.safetensors", r"is damaged \(.*\); restore it, or name another file$"),
        ("state.json", r"is no file of tensors of this checkpoint; name its model\.safetensors$"),
    ):
        with pytest.raises(CurateError, match=message):
            saved_network.load(weights.with_name(name), ImageConfig(size=8, crop=8), CPU)
    other = tmp_path / "net" / "checkpoints" / "epoch=0001" / "model.safetensors"
    with pytest.raises(RunMismatch, match="measured with weights"):
        go(data, tmp_path / "run", **{**options, "nn_features": str(other)})


def resnet18():
    torch.manual_seed(0)
    return torchvision.models.resnet18(weights=None).eval()


@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
def test_features_of_torchvisions_weights_are_torchvisions(tmp_path, suffix):
    """Layer 2 and the pooled features of random images, under ImageNet's statistics, equal to its own forward."""
    theirs, path = resnet18(), tmp_path / f"weights.{suffix}"
    state = theirs.state_dict()
    safetensors.torch.save_file(state, path) if suffix == "safetensors" else torch.save(state, path)
    ours = saved_network.load(path, ImageConfig(size=32, crop=32, colour="rgb"), CPU)
    pixels = torch.randint(256, (3, 3, 32, 32), dtype=torch.uint8)
    mean, deviation = (torch.tensor(x).view(-1, 1, 1) for x in saved_network.IMAGENET)
    x = (pixels / 255 - mean) / deviation
    with torch.no_grad():
        stem = theirs.maxpool(theirs.relu(theirs.bn1(theirs.conv1(x))))
        second = theirs.layer2(theirs.layer1(stem))
        pooled = theirs.layer4(theirs.layer3(second)).mean((2, 3))
        given = ours.augment.normalise(ours.augment.centre(pixels))
        torch.testing.assert_close(ours.network.tap(given, "layer2"), second.flatten(1), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(ours.network.tap(given, "pool"), pooled, rtol=1e-4, atol=1e-4)


class Harmful:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_file_that_holds_code_is_not_run(tmp_path):
    """Refused, and nothing happened."""
    (tmp_path / "bad.pth").write_bytes(pickle.dumps(Harmful(tmp_path / "harm"), protocol=2))
    torch.save({"x": Harmful(tmp_path / "harm")}, tmp_path / "worse.pth")
    for name in ("bad.pth", "worse.pth"):
        with pytest.raises(CurateError, match=f"{name}: not a file of weights alone"):
            saved_network.read_tensors(tmp_path / name)
    assert not (tmp_path / "harm").exists()


def test_files_that_are_no_networks_known_here_are_refused(tmp_path):
    """Each with what it lacks."""
    rgb = ImageConfig(size=32, crop=32, colour="rgb")
    torch.save({"weight": torch.zeros(2)}, tmp_path / "other.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    torch.save({1: torch.zeros(2)}, tmp_path / "number.pth")
    torch.save({k: v for k, v in resnet18().state_dict().items() if "layer4" not in k}, tmp_path / "part.pth")
    torch.save(resnet18().state_dict(), tmp_path / "whole.pth")
    (tmp_path / "cut.safetensors").write_bytes(b"\x08")
    for name, images, message in (
        ("other.pth", rgb, "the weights of no network known here"),
        ("list.pth", rgb, "expected a state_dict of tensors"),
        ("number.pth", rgb, "expected a state_dict of tensors"),
        ("part.pth", rgb, "not the weights of a resnet18"),
        ("cut.safetensors", rgb, "not a file of weights alone"),
        ("whole.pth", ImageConfig(size=32, crop=32, colour="grey"), "a network for rgb images, this run reads grey"),
    ):
        with pytest.raises(CurateError, match=message):
            saved_network.load(tmp_path / name, images, CPU)
    os.mkfifo(tmp_path / "pipe.pth")
    for name in ("none.pth", "pipe.pth", "."):
        with pytest.raises(Misuse, match="no such file; name a model"):
            saved_network.digest(tmp_path / name)


def test_distances_need_no_column_but_row_and_squared(tmp_path):
    """Rows that the file lacks (no image in the sample) are infinitely far."""
    table = pa.table({"row": [0, 2], "squared": pa.array([1.0, None], pa.float32())})
    table_file.write(tmp_path / "d.parquet", table, FOOTER)
    found, recall = target_distances.load(tmp_path / "d.parquet", np.array([0, 2]), 3, {})
    assert (found.tolist(), recall) == ([1.0, np.inf, np.inf], 0.5)


@pytest.mark.parametrize(
    ("rows", "squared", "footer", "message"),
    [
        ([0], [1.0], {}, "holds 1 rows that are not the 2 of this run"),
        ([0, 10**9], [1.0, 1.0], {}, "holds 2 rows that are not the 2"),
        ([0, 0], [1.0, 1.0], {}, "holds 2 rows that are not the 2"),
        ([0, -1], [1.0, 1.0], {}, "holds 2 rows that are not the 2"),
        ([0, None], [1.0, 1.0], {}, "holds 2 rows that are not the 2"),
        ([0, 1, 2], [1.0, 1.0, 1.0], {}, "holds 3 rows that are not the 2"),
        (["a", "b"], [1.0, 1.0], {}, r"unfinished or damaged \(Unfinished: column row: expected int64, found string"),
        ([0, 2], [1.0, math.nan], {}, "a squared distance is nan"),
        ([0, 2], [math.inf, 1.0], {}, "a squared distance is inf"),
        ([0, 2], [1.0, 1e300], {}, "a squared distance is inf"),
        ([0, 2], [-1.0, None], {}, r"a squared distance is -1\.0"),
        ([0, 2], None, {}, "unfinished or damaged .*squared"),
        ([0, 2], [1.0, 1.0], {"of": []}, "unfinished or damaged .*TypeError"),
        ([0, 2], [1.0, 1.0], {"recall": None}, "unfinished or damaged .*TypeError"),
        ([0, 2], [1.0, 1.0], {"format": None}, "is of another format, or of a later release"),
        ([0, 2], [1.0, 1.0], {"version": 2}, "is of another format, or of a later release"),
    ],
)
def test_distances_that_cannot_be_this_runs_are_refused(tmp_path, rows, squared, footer, message):
    """In one line that says what to do: every row of the run once, each with a distance or with null."""
    table = pa.table({"row": rows} | ({} if squared is None else {"squared": squared}))
    table_file.write(tmp_path / "d.parquet", table, FOOTER | footer)
    with pytest.raises(CurateError, match=rf"d\.parquet: ({message}).*; remove the file so that it is measured again$"):
        target_distances.load(tmp_path / "d.parquet", np.array([0, 2]), 3, {})


def test_the_nearest_of_each_are_those_by_brute_force():
    """By the angle between standardised vectors, nearest first, never the vector itself; hardly one is missed."""
    draws = np.random.default_rng(3)
    vectors = (draws.normal(size=(500, 12)) * draws.uniform(0.1, 10, 12) + 4).astype(np.float16)
    found = nearest_neighbours.of_each(vectors, 7)
    wide = vectors.astype(np.float64)
    wide = (wide - wide.mean(0)) / wide.std(0)
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    cosines = wide @ wide.T
    np.fill_diagonal(cosines, -2)
    assert (found == np.argsort(-cosines, 1)[:, :7]).mean() > 0.99
    assert not (found == np.arange(500)[:, None]).any()


def test_copies_are_neighbours_of_one_another():
    """Where the index cannot tell a vector from its copies, they are its neighbours; places are filled."""
    vectors = np.repeat(np.random.default_rng(4).normal(size=(3, 5)), 4, 0).astype(np.float32)
    found = nearest_neighbours.of_each(vectors, 3)
    assert found.shape == (12, 3)
    assert (found // 4 == np.arange(12)[:, None] // 4).all()
    assert not (found == np.arange(12)[:, None]).any()
