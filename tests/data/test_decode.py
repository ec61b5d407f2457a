"""Bytes to pixels of one size: upright, grey or RGB, whatever the shape; failures by name; colour statistics."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
import toyset
from PIL import Image
from torchvision.transforms.v2 import functional as F

from curate.config.schema import ImageConfig
from curate.data.decode import Decoder, image_bytes, measure, to_pixels
from curate.types import ERRORS


def sample(row, data):
    return {"__key__": f"{row:06d}", "__url__": "000000.tar", "__row__": row, "png": data}


def ramp(width, height):
    """A colour image that is different at every pixel, and not symmetric in any way."""
    y, x = np.mgrid[:height, :width]
    return np.stack([x * 200 // width, y * 200 // height, (x + 2 * y) % 256], -1).astype(np.uint8)


def test_a_batch_is_its_images_at_one_size():
    """Rows and pixels in the order of the samples; a picture of the right size comes through untouched."""
    pictures = toyset.digits()[0][:3]
    batch = Decoder(16, "grey")([sample(row, toyset.png(picture)) for row, picture in zip((4, 2, 9), pictures)])
    assert batch.rows.tolist() == [4, 2, 9]
    assert batch.pixels.dtype == torch.uint8
    assert np.array_equal(batch.pixels.numpy(), pictures[:, None])
    assert batch.bad == ()


@pytest.mark.parametrize("colour", ["grey", "rgb"])
def test_the_shape_is_the_configurations(colour):
    """Grey pictures become RGB and colour ones grey, as asked."""
    decoder = Decoder.of(ImageConfig(size=10, crop=8, colour=colour))
    batch = decoder([sample(0, toyset.png(ramp(30, 20))), sample(1, toyset.png(toyset.digits()[0][0]))])
    assert batch.pixels.shape == (2, *decoder.shape)
    assert decoder.shape == ({"grey": 1, "rgb": 3}[colour], 10, 10)
    assert decoder.n_bytes == batch.pixels[0].numel()


def test_what_does_not_decode_leaves_its_slot_empty():
    """Each with its row and the name of what is wrong; the others are there in order."""
    whole = toyset.png(toyset.digits()[0][0])
    batch = Decoder(16, "grey")([sample(5, b""), sample(6, whole), sample(7, b"plain text"), sample(8, whole[:60])])
    assert batch.rows.tolist() == [6]
    assert [(row, ERRORS[code]) for row, code in batch.bad] == [
        (5, "empty-member"),
        (7, "not-an-image"),
        (8, "truncated-image"),
    ]


def test_a_batch_in_which_nothing_decodes_is_empty():
    """Of the right shape, so that it can be passed on."""
    batch = Decoder(16, "rgb")([sample(0, b"no")])
    assert batch.pixels.shape == (0, 3, 16, 16)
    assert batch.rows.shape == (0,)
    assert len(batch.bad) == 1


def test_the_image_is_the_member_that_is_no_name():
    """Samples of a stream hold their image and webdataset's own entries."""
    assert image_bytes(sample(3, b"body")) == b"body"


@pytest.mark.parametrize(("orientation", "turns"), [(1, 0), (3, 2), (6, 1), (8, 3)])
def test_pictures_stand_upright(orientation, turns):
    """EXIF says how the camera was held; 6 and 8 are a quarter turn each way, by the EXIF standard."""
    upright = ramp(16, 16)
    # What the sensor saw: the upright scene turned back.
    sensor = Image.fromarray(np.rot90(upright, turns).copy())
    exif = Image.Exif()
    exif[0x0112] = orientation
    packed = io.BytesIO()
    sensor.save(packed, "PNG", exif=exif)
    batch = Decoder(16, "rgb")([sample(0, packed.getvalue())])
    assert np.array_equal(batch.pixels[0].permute(1, 2, 0).numpy(), upright)


@pytest.mark.parametrize(("width", "height"), [(40, 20), (20, 40), (21, 20), (20, 20)])
def test_the_middle_square_is_kept(width, height):
    """At the picture's own shorter side nothing is resized: a plain slice."""
    picture = ramp(width, height)
    top, left = round((height - 20) / 2), round((width - 20) / 2)
    found = to_pixels(Image.fromarray(picture), 20, "rgb").permute(1, 2, 0).numpy()
    assert np.array_equal(found, picture[top : top + 20, left : left + 20])


@pytest.mark.parametrize(("width", "height"), [(1, 1), (1, 300), (300, 1), (3, 1000), (17, 1)])
def test_a_strip_becomes_a_square(width, height):
    """One pixel wide is a picture too, and is not scaled up to 300 times its length on the way."""
    assert to_pixels(Image.fromarray(ramp(width, height)), 24, "rgb").shape == (3, 24, 24)


def test_shrinking_keeps_the_mean():
    """Bicubic and antialiased: a fine chequerboard becomes its mean, 127.5, and not one of its colours."""
    chequers = ((np.indices((64, 64)).sum(0) % 2) * 255).astype(np.uint8)
    inner = to_pixels(Image.fromarray(chequers), 8, "grey").float()[:, 2:6, 2:6]
    assert (inner - 127.5).abs().max() < 4


def test_statistics_are_numpys():
    """Mean and deviation over all pixels of all batches, per channel, to 6 digits."""
    g = torch.Generator().manual_seed(0)
    batches = [torch.randint(256, (k, 3, 5, 5), generator=g, dtype=torch.uint8) for k in (4, 1, 7)]
    whole = torch.cat(batches).numpy() / 255
    mean, deviation = measure(batches)
    assert mean == pytest.approx(whole.mean((0, 2, 3)), abs=1e-6)
    assert deviation == pytest.approx(whole.std((0, 2, 3)), abs=1e-6)
    assert all(round(value, 6) == value for value in mean + deviation)


def test_a_constant_channel_can_be_divided_by():
    """Its deviation is one grey level, 1/255."""
    mean, deviation = measure([torch.full((2, 1, 3, 3), 51, dtype=torch.uint8)])
    assert mean == (0.2,)
    assert deviation == (round(1 / 255, 6),)


@pytest.mark.parametrize("colour", ["grey", "rgb"])
@pytest.mark.parametrize("shape", [(16, 16), (17, 16), (16, 19), (40, 31), (31, 45), (9, 8), (7, 30)])
def test_the_crop_is_torchvisions(shape, colour):
    """Shorter side to 16 and the centre of 16 x 16, to the pixel as torchvision cuts it, odd margins included."""
    picture = Image.fromarray(ramp(*shape)).convert("RGB" if colour == "rgb" else "L")
    scale = 16 / min(shape)
    shrunk = picture.resize(tuple(max(16, round(side * scale)) for side in shape), Image.Resampling.BICUBIC)
    expected = F.center_crop(F.pil_to_tensor(shrunk), [16, 16])
    assert torch.equal(to_pixels(picture, 16, colour), expected)
