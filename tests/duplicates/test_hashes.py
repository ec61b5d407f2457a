"""What an image is known by: the peer's hash bit for bit, and digests that tell exact copies."""

from __future__ import annotations

import numpy as np
import planted_copies as copies
import pytest
import toyset
from PIL import Image, ImageOps
from scipy.fftpack import dct

from curate.duplicates.hashes import SIDE, look, perceptual
from curate.types import ERRORS
from shards.io.images import decode


def of(bodies: list[bytes]):
    """Hashes of encoded images."""
    return perceptual(np.stack([look(body).thumbnail for body in bodies]))


def phash(picture: Image.Image) -> int:
    """imagehash 4.3.2's `phash`, in its own words."""
    pixels = np.asarray(picture.convert("L").resize((SIDE, SIDE), Image.Resampling.LANCZOS))
    low = dct(dct(pixels, axis=0), axis=1)[:8, :8]
    return int("".join("01"[bit] for bit in (low > np.median(low)).flatten().tolist()), 2)


def photographs(count: int) -> list[Image.Image]:
    """Cuts of scikit-learn's two photographs, in colour."""
    from sklearn.datasets import load_sample_images

    rng, found = np.random.default_rng(0), []
    for _ in range(count):
        whole = load_sample_images().images[rng.integers(2)]
        top, left = rng.integers(0, 300), rng.integers(0, 500)
        found.append(Image.fromarray(whole[top : top + 120, left : left + 90 + rng.integers(40)]))
    return found


def test_the_hash_is_imagehashs() -> None:
    """Of photographs and of their mirror images."""
    found = photographs(40)
    held = of([toyset.png(np.asarray(one)) for one in found])
    assert held.hash.tolist() == [phash(one) for one in found]
    assert held.mirror.tolist() == [phash(ImageOps.mirror(one)) for one in found]
    assert held.flat.sum() < 4  # some sky


def test_the_hash_is_the_installed_imagehashs() -> None:
    """Where it is installed."""
    imagehash = pytest.importorskip("imagehash")
    found = photographs(10)
    held = of([toyset.png(np.asarray(one)) for one in found])
    assert [f"{value:016x}" for value in held.hash.tolist()] == [str(imagehash.phash(one)) for one in found]


def test_copies_are_near_and_others_are_not() -> None:
    """Each kind of copy within 8 bits of its original, mirrored ones by the mirror hash."""
    for number in range(copies.EACH):
        bodies = copies.kinds(number)
        held = of(list(bodies.values()))
        straight = np.bitwise_count(held.hash ^ held.hash[0])
        turned = np.bitwise_count(held.mirror ^ held.hash[0])
        mirrored = np.array([kind == "mirrored" for kind in bodies])
        assert (np.where(mirrored, turned, straight) <= 8).all()
    assert np.bitwise_count(of([copies.kinds(n)["original"] for n in (0, 1)]).hash[[0]] ^ held.hash).min() > 8


def test_images_of_one_colour_say_nothing() -> None:
    """Nor do those with a shade of noise, or a fine pattern; a drawing does."""
    noise = np.random.default_rng(0).integers(100, 103, (64, 64)).astype(np.uint8)
    pattern = np.kron(np.indices((32, 32)).sum(axis=0) % 2 * 255, np.ones((2, 2))).astype(np.uint8)
    flat = [np.full((9, 7), 200, np.uint8), np.zeros((1, 1), np.uint8), noise, pattern]
    assert of([toyset.png(one) for one in flat]).flat.all()
    assert not of([copies.kinds(0)["original"]]).flat.any()


def test_exact_copies_have_equal_digests() -> None:
    """The same pixels in one channel or in three, whatever the file; not those of another size."""
    bodies = copies.kinds(0)
    one, same, pixels, saved = (look(bodies[kind]) for kind in ("original", "bytes", "pixels", "recompressed"))
    assert one.image == same.image != pixels.image
    assert one.pixels == same.pixels == pixels.pixels != saved.pixels
    wide, high = (look(toyset.png(np.zeros(shape, np.uint8))) for shape in ((2, 3), (3, 2)))
    assert (wide.width, wide.height) == (3, 2)
    assert wide.pixels != high.pixels
    colour = np.zeros((4, 4, 3), np.uint8)
    colour[0, 0, 2] = 1
    assert look(toyset.png(colour)).pixels != look(toyset.png(colour[..., 0])).pixels


@pytest.mark.parametrize(("body", "kind"), [(b"", "empty-member"), (b"x" * 99, "not-an-image")])
def test_what_does_not_decode_is_said(body: bytes, kind: str) -> None:
    """With no digest of pixels."""
    found = look(body)
    assert (ERRORS[found.error], found.pixels, found.width) == (kind, b"", 0)


def test_unusual_images_are_looked_at_as_they_are_decoded() -> None:
    """16 bits, CMYK, animated, upright by EXIF."""
    deep = Image.fromarray(np.asarray(copies.digit(3)).astype(np.uint16) * 257)
    cmyk = copies.digit(3).convert("RGB").convert("CMYK")
    film = [copies.digit(3).convert("RGB"), copies.digit(4).convert("RGB")]
    files = []
    for picture, form, options in (
        (deep, "PNG", {}),
        (cmyk, "JPEG", {}),
        (film[0], "GIF", {"save_all": True, "append_images": film[1:]}),
    ):
        import io

        file = io.BytesIO()
        picture.save(file, form, **options)
        files.append(file.getvalue())
    held = of([copies.kinds(3)["original"], *files])
    assert (np.bitwise_count(held.hash ^ held.hash[0]) <= 4).all()
    assert {decode(body).size for body in files} == {(64, 64)}
