"""JPEG by simplejpeg: Pillow's pixels at full size, the same scene at a half or a quarter; faults as by Pillow."""

from __future__ import annotations

import builtins
import io
import json

import numpy as np
import pytest
import toyset
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_sample_image

import curate
from curate.data import jpeg
from curate.data.decode import Decoder, to_pixels
from curate.runs import provenance
from shards.io.images import ImageError, decode

simplejpeg = pytest.importorskip("simplejpeg")

#: A photograph of 640 x 427 px.
PHOTO = Image.fromarray(load_sample_image("flower.jpg"))


def packed(picture, kind="JPEG", **options):
    file = io.BytesIO()
    picture.save(file, kind, **({"quality": 90} | options if kind == "JPEG" else options))
    return file.getvalue()


def both(data, size, colour="rgb"):
    """int (C, size, size) of either library."""
    return (Decoder(size, colour, library).pixels(data).numpy().astype(int) for library in ("pil", "simplejpeg"))


@pytest.mark.parametrize("size", [224, 300, 427])
@pytest.mark.parametrize("options", [{}, {"subsampling": 0}, {"progressive": True}])
def test_at_full_size_the_pixels_are_pillows(size, options):
    """But for what releases of libjpeg-turbo differ in."""
    pil, ours = both(packed(PHOTO, **options), size)
    assert np.abs(pil - ours).max() <= 3
    assert np.abs(pil - ours).mean() < 0.1


@pytest.mark.parametrize(
    ("size", "decoded"), [(213, (320, 214)), (107, (320, 214)), (106, (160, 107)), (72, (160, 107))]
)
def test_it_is_decoded_no_larger_than_a_half_or_a_quarter_where_that_is_enough(size, decoded):
    data = packed(PHOTO)
    assert jpeg.decode_jpeg(data, size, "rgb").size == decoded
    pil, ours = both(data, size)
    assert np.abs(pil - ours).mean() < 2.5  # of 255: the same scene


@pytest.mark.parametrize("size", [214, 4096])
def test_what_would_become_too_small_is_decoded_whole(size):
    assert jpeg.decode_jpeg(packed(PHOTO), size, "rgb").size == PHOTO.size


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("colour", ["grey", "rgb"])
def test_gray_and_colour_become_what_is_asked_for(mode, colour):
    pil, ours = both(packed(PHOTO.convert(mode)), 300, colour)
    assert pil.shape == ours.shape == ({"grey": 1, "rgb": 3}[colour], 300, 300)
    assert np.abs(pil - ours).mean() < 1


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_stand_upright(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    pil, ours = both(packed(PHOTO, exif=exif), 300)
    assert np.abs(pil - ours).max() <= 3


def test_what_is_no_plain_jpeg_is_pillows():
    """Other formats, and colours for printing."""
    for data in (packed(PHOTO, "PNG"), packed(PHOTO, "WEBP"), packed(PHOTO.convert("CMYK"))):
        assert jpeg.decode_jpeg(data, 72, "rgb") is None
        pil, ours = both(data, 72)
        assert np.array_equal(pil, ours)


def test_one_too_large_is_refused_as_by_pillow(monkeypatch):
    monkeypatch.setattr(jpeg, "MAX_PIXELS", 1000)
    assert jpeg.decode_jpeg(packed(PHOTO), 72, "rgb") is None


def kind_of_fault(data, library):
    try:
        Decoder(72, "rgb", library).pixels(data)
    except ImageError as error:
        return error.kind


@settings(max_examples=150, deadline=None)
@given(at=st.integers(0, 8000), value=st.integers(0, 255), cut=st.integers(0, 8000))
def test_what_is_at_fault_does_not_depend_on_the_library(at, value, cut):
    """A byte changed, and the end cut off."""
    whole = bytearray(SMALL)
    whole[at % len(whole)] = value
    for data in (bytes(whole), SMALL[:cut]):
        assert kind_of_fault(data, "simplejpeg") == kind_of_fault(data, "pil")


SMALL = packed(PHOTO.resize((160, 107)))


def test_a_run_records_what_decoded_its_images(tmp_path):
    data = toyset.make_data(tmp_path, 32)
    toyset.run_on(data, tmp_path / "run", decoder="simplejpeg", epochs=1)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["configuration"]["decoder"] == "simplejpeg"
    assert record["machine"]["versions"]["simplejpeg"] == simplejpeg.__version__


def test_the_decoder_is_part_of_a_runs_id_only_where_it_is_another():
    ids = [
        provenance.identity(toyset.config("s", "t", **options), "", "")["options"].get("decoder")
        for options in ({}, {"decoder": "pil"}, {"decoder": "simplejpeg"})
    ]
    assert ids == [None, None, "simplejpeg"]


def test_paper_mode_decodes_as_the_paper_did():
    with pytest.raises(curate.Misuse, match="--paper fixes --decoder at pil"):
        curate.configuration("s", "t", paper=True, decoder="simplejpeg")
    assert curate.configuration("s", "t", paper=True)["images"]["decoder"] == "pil"


def test_without_the_package_it_is_one_line(monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "simplejpeg":
            raise ImportError("No module named 'simplejpeg'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(curate.CurateError, match=r"pip install 'curate-bdw\[jpeg\]'"):
        jpeg.available()


def test_a_picture_smaller_than_asked_for_is_scaled_up():
    pil, ours = both(SMALL, 300)
    assert pil.shape == ours.shape == (3, 300, 300)
    assert np.abs(pil - ours).max() <= 4
    assert np.array_equal(Decoder(72, "rgb").pixels(SMALL).numpy(), to_pixels(decode(SMALL), 72, "rgb").numpy())
