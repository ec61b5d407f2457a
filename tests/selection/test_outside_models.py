"""Encoders of libraries that are extras: timm's models and ONNX files, against what the libraries themselves say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from curate.config.catalogue import ENCODERS, parse_encoder
from curate.errors import CurateError, Misuse
from curate.selection.base import EncoderInputs

NORMAL = (np.array([0.485, 0.456, 0.406]).reshape(3, 1, 1), np.array([0.229, 0.224, 0.225]).reshape(3, 1, 1))


def encoder(text: str) -> Any:
    name, argument = parse_encoder(text)
    return ENCODERS[name](EncoderInputs(argument, 3, torch.device("cpu")))


def pixels(side: int, count: int = 5) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (count, 3, side, side), np.uint8))


@pytest.mark.parametrize(("module", "text"), [("timm", "timm:resnet10t"), ("onnxruntime", "onnx:net.onnx")])
def test_a_missing_extra_is_one_line(module: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    name = text.partition(":")[0]
    with pytest.raises(CurateError, match=rf"^--encoder {name} needs the library: pip install 'curate-bdw\[{name}\]'$"):
        encoder(text)
    assert ENCODERS.spec(name).extra == name


class TestTimm:
    timm = None

    @pytest.fixture(autouse=True)
    def library(self) -> None:
        TestTimm.timm = pytest.importorskip("timm", reason="timm is not installed")

    @pytest.fixture
    def weights(self, tmp_path: Path) -> Path:
        torch.manual_seed(0)
        torch.save(self.timm.create_model("resnet10t").state_dict(), tmp_path / "net.pt")
        return tmp_path / "net.pt"

    def test_features_are_what_timm_gives_without_its_head(self, weights: Path) -> None:
        found = encoder(f"timm:resnet10t@{weights}")
        assert (found.size, found.crop) == (201, 176)  # a crop of 0.875
        x = pixels(201)
        network = self.timm.create_model("resnet10t", num_classes=0).eval()
        state = {k: v for k, v in torch.load(weights, weights_only=True).items() if not k.startswith("fc.")}
        network.load_state_dict(state)
        middle = x[:, :, 12:188, 12:188].numpy()
        with torch.no_grad():
            theirs = network(torch.from_numpy((middle / 255 - NORMAL[0]) / NORMAL[1]).float()).numpy()
        features = found(x)
        assert features.dtype == np.float32
        assert features == pytest.approx(theirs, rel=1e-3, abs=1e-4)
        assert found(x[2:3])[0] == pytest.approx(features[2], rel=1e-3, abs=1e-4)

    def test_safetensors_give_the_same_features(self, weights: Path, tmp_path: Path) -> None:
        from safetensors.torch import save_file

        save_file(torch.load(weights, weights_only=True), tmp_path / "net.safetensors")
        x = pixels(201, 2)
        other = encoder(f"timm:resnet10t@{tmp_path / 'net.safetensors'}")
        assert np.array_equal(encoder(f"timm:resnet10t@{weights}")(x), other(x))

    def test_weights_are_taken_from_the_users_cache_and_never_fetched(
        self, weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import socket

        monkeypatch.setattr(socket, "create_connection", lambda *given, **named: pytest.fail("a connection"))
        monkeypatch.setenv("TORCH_HOME", str(tmp_path / "cache"))
        with pytest.raises(
            CurateError, match=r"^--encoder timm:resnet10t: no weights of it in the cache, and none are"
        ):
            encoder("timm:resnet10t")
        url = self.timm.get_pretrained_cfg("resnet10t").url
        place = Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
        place.parent.mkdir(parents=True)
        place.write_bytes(weights.read_bytes())
        assert encoder("timm:resnet10t").identity == encoder(f"timm:resnet10t@{weights}").identity

    def test_what_cannot_be_used_is_one_line(self, weights: Path, tmp_path: Path) -> None:
        with pytest.raises(Misuse, match="timm has no such model"):
            encoder("timm:resnet1000")
        with pytest.raises(Misuse, match="no such file of weights"):
            encoder(f"timm:resnet10t@{tmp_path / 'gone.pt'}")
        for name, body in (("a.pt", b"no weights"), ("b.safetensors", b"no weights"), ("c.pt", b"")):
            (tmp_path / name).write_bytes(body)
            with pytest.raises(CurateError, match="not the weights of timm's resnet10t") as caught:
                encoder(f"timm:resnet10t@{tmp_path / name}")
            assert "\n" not in str(caught.value)
        with pytest.raises(CurateError, match="not the weights of timm's resnet18"):
            encoder(f"timm:resnet18@{weights}")


class TestOnnx:
    @pytest.fixture(autouse=True)
    def library(self) -> None:
        pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
        pytest.importorskip("onnx", reason="onnx, which writes the networks of these tests, is not installed")

    def net(self, path: Path, shape: list[int | str], kind: str = "FLOAT", node: str = "mean") -> Path:
        """Means over rows, so that a feature is a channel's mean in a column: (k, 3, H, W) -> (k, 3, 1, W)."""
        import onnx
        from onnx import TensorProto, helper

        kind_of = getattr(TensorProto, kind)
        steps = [helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT)]
        if node == "mean":
            steps.append(helper.make_node("ReduceMean", ["f", "axes"], ["y"], keepdims=1))
        else:
            steps.append(helper.make_node("ReduceSum", ["f"], ["y"], keepdims=0))
        graph = helper.make_graph(
            steps,
            "net",
            [helper.make_tensor_value_info("x", kind_of, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [helper.make_tensor("axes", TensorProto.INT64, [1], [2])],
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
        return path

    @pytest.mark.parametrize("batch", ["k", 1, 4])
    @pytest.mark.parametrize("kind", ["FLOAT", "UINT8"])
    def test_the_first_output_of_the_middle_of_an_image(self, tmp_path: Path, batch: int | str, kind: str) -> None:
        """Whatever count of images the file asks for; floats are normalised, bytes are not."""
        found = encoder(f"onnx:{self.net(tmp_path / 'net.onnx', [batch, 3, 28, 28], kind)}")
        assert (found.crop, found.size) == (28, 32)
        x = pixels(32, 6)
        middle = x[:, :, 2:30, 2:30].numpy().astype(np.float64)
        seen = middle if kind == "UINT8" else (middle / 255 - NORMAL[0]) / NORMAL[1]
        features = found(x)
        assert features.dtype == np.float32
        assert features == pytest.approx(seen.mean(axis=2).reshape(6, -1), rel=1e-4, abs=1e-4)

    def test_open_sides_are_224(self, tmp_path: Path) -> None:
        found = encoder(f"onnx:{self.net(tmp_path / 'net.onnx', ['k', 3, 'h', 'w'])}")
        assert (found.crop, found.size) == (224, 256)

    def test_what_cannot_be_used_is_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(Misuse, match="no such file"):
            encoder(f"onnx:{tmp_path / 'gone.onnx'}")
        (tmp_path / "text.onnx").write_bytes(b"no network")
        with pytest.raises(CurateError, match=r"text\.onnx: onnxruntime cannot run it") as caught:
            encoder(f"onnx:{tmp_path / 'text.onnx'}")
        assert "\n" not in str(caught.value)
        for shape in ([1, 1, 28, 28], [1, 3, 28], [1, 3, 28, 32]):
            with pytest.raises(CurateError, match=r"expected (one input|a square input)"):
                encoder(f"onnx:{self.net(tmp_path / 'net.onnx', shape)}")
        one = encoder(f"onnx:{self.net(tmp_path / 'sum.onnx', ['k', 3, 28, 28], node='sum')}")
        with pytest.raises(CurateError, match="expected a row an image in the first output"):
            one(pixels(32))
