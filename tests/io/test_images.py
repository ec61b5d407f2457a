"""Pictures come out whole, upright, in 8 bits of gray or RGB, or not at all, with the reason by its name."""

from __future__ import annotations

import io
import struct
import threading
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from shards.faults import KINDS
from shards.io.images import BACKGROUND, MAX_PIXELS, ImageError, decode

IMAGES = Path(__file__).resolve().parents[3] / "shared" / "cases" / "images"
with_material = pytest.mark.skipif(not IMAGES.is_dir(), reason=f"no test material at {IMAGES}")

#: Mode and size after decoding, by the README's table of images.
READ = {
    "ok_hopper.jpg": ("RGB", (128, 128)),
    "ok_gray.jpg": ("L", (128, 128)),
    "ok_small.jpg": ("RGB", (32, 23)),
    "ok_olympus.jpg": ("RGB", (100, 72)),
    "ok_fuji.jpg": ("RGB", (59, 100)),
    "ok_ricoh.jpg": ("RGB", (100, 75)),
    "jpeg_cmyk.jpg": ("RGB", (100, 100)),
    "jpeg_exif6.jpg": ("RGB", (128, 128)),
    "jpeg_two_images.jpg": ("RGB", (640, 480)),
    "jpeg_progressive.jpg": ("RGB", (320, 240)),
    "jpeg_1px_wide.jpg": ("RGB", (2, 1)),  # stored 1 x 2, turned by its EXIF orientation 8
    "png_rgb16.png": ("RGB", (32, 32)),
    "png_gray16_interlaced.png": ("L", (32, 32)),
    "png_palette_trns.png": ("RGB", (32, 32)),
    "png_gray_alpha.png": ("L", (29, 100)),
    "gif_animated.gif": ("RGB", (100, 100)),
    "webp_plain.webp": ("RGB", (128, 128)),
    "tiff_12bit.tif": ("L", (100, 100)),
    "avif_plain.avif": ("RGB", (128, 128)),
}
REFUSED = {
    "jpeg_truncated.jpg": "truncated-image",
    "png_broken_80_bytes.png": "truncated-image",
    "png_truncated.png": "truncated-image",
    "png_text_bomb.png": "image-too-large",
    "png_cgbi_fried.png": "unsupported-image",
    "gif_bomb_44_bytes.gif": "image-too-large",
    "zero_byte.heic": "empty-member",
    "html_page.jpg": "not-an-image",
}


def encoded(image: Image.Image, form: str = "PNG", **options: object) -> bytes:
    packed = io.BytesIO()
    image.save(packed, form, **options)
    return packed.getvalue()


def pixels(data: bytes) -> list[object]:
    return np.asarray(decode(data)).tolist()  # type: ignore[no-any-return]


def picture(name: str) -> np.ndarray:
    return np.asarray(decode((IMAGES / name).read_bytes()).convert("RGB"), np.float64)


def outcome(data: bytes) -> str:
    """The mode of the picture, or the kind of what is wrong."""
    try:
        return decode(data, max_pixels=1 << 20).mode
    except ImageError as error:
        return error.kind


def refused(data: bytes) -> tuple[str, str]:
    with pytest.raises(ImageError) as caught:
        decode(data)
    assert str(caught.value) == f"{caught.value.kind}: {caught.value.detail}"
    return caught.value.kind, caught.value.detail


@with_material
class TestMaterial:
    def test_the_tables_name_every_image(self) -> None:
        assert {path.name for path in IMAGES.iterdir()} == READ.keys() | REFUSED.keys()

    @pytest.mark.parametrize("name", READ)
    def test_a_picture_that_reads_has_its_size_and_mode(self, name: str) -> None:
        image = decode((IMAGES / name).read_bytes())
        assert (image.mode, image.size) == READ[name]

    @pytest.mark.parametrize("name", REFUSED)
    def test_a_picture_that_does_not_read_is_refused_by_kind(self, name: str) -> None:
        assert refused((IMAGES / name).read_bytes())[0] == REFUSED[name]

    def test_a_turned_photograph_comes_out_as_the_upright_one(self) -> None:
        # The same photograph, compressed twice: a few gray values apart. Turned the other way it is over 60 apart.
        difference = np.abs(picture("jpeg_exif6.jpg") - picture("ok_hopper.jpg"))
        assert difference.mean() < 8
        assert np.abs(np.rot90(picture("jpeg_exif6.jpg"), 2) - picture("ok_hopper.jpg")).mean() > 60

    def test_inverted_cmyk_gives_sane_colours(self) -> None:
        # The word RED in red on black: its red is strong, the rest is dark.
        colours = picture("jpeg_cmyk.jpg")
        assert colours[..., 0].max() > 200
        assert np.median(colours) < 30
        assert colours[..., 1].mean() < 20

    def test_sixteen_bits_are_scaled_and_not_cut_off(self) -> None:
        gray = picture("png_gray16_interlaced.png")
        assert (gray.min(), gray.max()) == (0, 255)
        assert len(np.unique(gray)) > 100  # a ramp; cut off at 255 it would be nearly all white
        assert len(np.unique(picture("png_rgb16.png"))) > 20

    def test_twelve_bits_are_scaled_by_twelve(self) -> None:
        # Its largest value is 30 of 4,095 (read with Pillow): 30 * 255 / 4095 = 1.87.
        assert picture("tiff_12bit.tif").max() == 2


class TestRules:
    def test_transparency_is_laid_on_the_background(self) -> None:
        clear = Image.new("RGBA", (2, 1), (9, 8, 7, 0))
        clear.putpixel((1, 0), (100, 0, 200, 255))
        assert pixels(encoded(clear)) == [[[BACKGROUND] * 3, [100, 0, 200]]]

    def test_gray_with_alpha_stays_gray(self) -> None:
        half = Image.new("LA", (1, 1), (55, 51))
        # 51 of 255 is a fifth: 55 / 5 + 255 * 4 / 5 = 215.
        assert pixels(encoded(half)) == [[215]]

    def test_a_palette_with_a_transparent_colour_is_laid_on_the_background(self) -> None:
        image = Image.new("P", (2, 1))
        image.putpalette([10, 20, 30, 40, 50, 60])
        image.putpixel((1, 0), 1)
        assert pixels(encoded(image, transparency=0)) == [[[BACKGROUND] * 3, [40, 50, 60]]]

    def test_black_and_white_is_gray(self) -> None:
        assert pixels(encoded(Image.new("1", (1, 1), 1))) == [[255]]

    @pytest.mark.parametrize(("deep", "shallow"), [(0, 0), (128, 0), (129, 1), (32768, 128), (65535, 255)])
    def test_sixteen_bit_gray_is_rounded_to_eight(self, deep: int, shallow: int) -> None:
        # A gray value is 65535 / 255 = 257 wide: 128 rounds down, 129 up.
        data = encoded(Image.fromarray(np.full((1, 1), deep, np.uint16)))
        assert pixels(data) == [[shallow]]

    def test_only_the_first_frame_is_read(self) -> None:
        frames = [Image.new("RGB", (2, 2), colour) for colour in ("red", "blue")]
        data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
        assert decode(data).getpixel((0, 0)) == (255, 0, 0)

    @pytest.mark.parametrize("orientation", range(1, 9))
    def test_every_exif_orientation_is_undone(self, orientation: int) -> None:
        upright = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40
        # How a camera stores the picture: the inverse of what the EXIF standard says to do for display.
        stored = {
            1: upright,
            2: upright[:, ::-1],
            3: upright[::-1, ::-1],
            4: upright[::-1],
            5: upright.T,
            6: np.rot90(upright),
            7: upright[::-1, ::-1].T,
            8: np.rot90(upright, -1),
        }[orientation]
        exif = Image.Exif()
        exif[0x0112] = orientation
        data = encoded(Image.fromarray(np.ascontiguousarray(stored)), exif=exif.tobytes())
        assert pixels(data) == upright.tolist()

    def test_the_name_does_not_count(self) -> None:
        gray = Image.new("L", (1, 1), 7)
        assert pixels(encoded(gray, "PNG")) == pixels(encoded(gray, "TIFF")) == pixels(encoded(gray, "BMP")) == [[7]]

    def test_half_a_picture_is_never_filled_up(self) -> None:
        assert ImageFile.LOAD_TRUNCATED_IMAGES is False


class TestRefusals:
    def test_the_pixel_limit_is_exact(self) -> None:
        data = encoded(Image.new("L", (10, 10)))
        assert decode(data, max_pixels=100).size == (10, 10)
        with pytest.raises(ImageError, match=r"image-too-large: 10 x 10 px, at most 99 px are read"):
            decode(data, max_pixels=99)

    @pytest.mark.parametrize("width", [MAX_PIXELS + 1, 2 * MAX_PIXELS + 1])
    def test_a_header_of_great_size_is_refused_before_anything_is_allocated(self, width: int) -> None:
        # Beyond the limit Pillow only warns; from twice the limit on it raises.
        chunk = b"IHDR" + struct.pack(">IIBBBBB", width, 1, 8, 0, 0, 0, 0)
        data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
        data += struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
        assert refused(data)[0] == "image-too-large"

    @pytest.mark.parametrize(
        ("data", "kind", "words"),
        [
            (b"\0\0\0\x18ftypisom" + bytes(40), "unsupported-image", "ISO media of brand isom"),
            (b"8BPS" + bytes(40), "unsupported-image", "Photoshop is not read here"),
            (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not-an-image", "unknown bytes"),
            (b"  <html><body>", "not-an-image", "text/html"),
            (b"\xff\xd8\xff", "truncated-image", "cut or damaged JPEG of 3 bytes"),
            (b"RIFF\x24\0\0\0WEBPVP8 ", "truncated-image", "cut or damaged"),
            (b"\0" * 3136, "not-an-image", "unknown bytes"),
        ],
    )
    def test_damaged_pictures_other_pictures_and_no_pictures_are_told_apart(
        self, data: bytes, kind: str, words: str
    ) -> None:
        found = refused(data)
        assert found[0] == kind
        assert words in found[1]

    def test_pixels_without_a_known_range_are_not_guessed(self) -> None:
        kind, detail = refused(encoded(Image.new("F", (1, 1)), "TIFF"))
        assert kind == "unsupported-image"
        assert "TIFF of mode F" in detail

    @settings(max_examples=200, deadline=None)
    @given(st.data())
    def test_damage_of_any_kind_is_a_picture_error_or_a_picture(self, data: st.DataObject) -> None:
        form = data.draw(st.sampled_from(["PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "AVIF", "JPEG2000"]))
        raw = bytearray(SMALL[form])
        for _ in range(data.draw(st.integers(0, 8))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        raw = raw[: data.draw(st.integers(0, len(raw)))]
        assert outcome(bytes(raw)) in {"L", "RGB", *KINDS}


SMALL = {
    form: encoded(Image.linear_gradient("L").resize((24, 16)).convert("RGB"), form)
    for form in ("PNG", "JPEG", "GIF", "WEBP", "TIFF", "BMP", "PPM", "AVIF", "JPEG2000")
}


class TestWarnings:
    def test_warnings_of_the_reader_are_silent_in_all_threads_and_filters_are_as_before(self) -> None:
        # The warning of a great size becomes an error under the filters of these tests, unless it is silenced.
        chunk = b"IHDR" + struct.pack(">IIBBBBB", MAX_PIXELS + 1, 1, 8, 0, 0, 0, 0)
        data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
        data += struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
        before = list(warnings.filters)
        kinds: list[str] = []

        def look() -> None:
            for _ in range(50):
                kinds.append(refused(data)[0])

        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert kinds == ["image-too-large"] * 200
        assert list(warnings.filters) == before


class TestHeic:
    """By the extra `heif`, and a word on it where that is not installed."""

    def heic(self) -> bytes:
        heif = pytest.importorskip("pillow_heif")
        heif.register_heif_opener()
        file = io.BytesIO()
        # A gradient, red above, black below.
        pixels = np.zeros((24, 40, 3), np.uint8)
        pixels[..., 0] = np.linspace(250, 0, 24, dtype=np.uint8)[:, None]
        Image.fromarray(pixels).save(file, "HEIF", quality=95)
        return file.getvalue()

    def test_it_is_decoded(self) -> None:
        decoded = decode(self.heic())
        assert (decoded.mode, decoded.size) == ("RGB", (40, 24))
        top, bottom = decoded.getpixel((20, 0)), decoded.getpixel((20, 23))
        assert top[0] > 230 > 20 > bottom[0]
        assert max(top[1:]) < 20

    def test_a_cut_one_is_damaged(self) -> None:
        data = self.heic()
        for size in (40, len(data) // 2, len(data) - 9):
            with pytest.raises(ImageError, match="cut or damaged") as caught:
                decode(data[:size])
            assert caught.value.kind == "truncated-image"

    def test_a_large_one_is_not_allocated(self) -> None:
        with pytest.raises(ImageError, match="at most 10 px are read"):
            decode(self.heic(), max_pixels=10)

    def test_without_the_extra_it_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("shards.io.images._formats", lambda: ("JPEG", "PNG"))
        with pytest.raises(ImageError, match=r"brand heic is read where pillow-heif is installed \(the extra heif\)"):
            decode(b"\0\0\0\x18ftypheic" + bytes(40))


def test_avif_is_decoded_by_pillow_itself() -> None:
    file = io.BytesIO()
    Image.new("RGB", (8, 6), (10, 200, 30)).save(file, "AVIF")
    assert decode(file.getvalue()).size == (8, 6)
