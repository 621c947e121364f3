"""Image files: each file is one row, decoded when the row is read."""

import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, PngImagePlugin

from forebay.core.spec import ArraySpec
from forebay.errors import SourceChangedError, SourceError, SpecError
from forebay.sources.files.many_files import open_files
from forebay.sources.formats.images import open_image
from forebay.testing.sources import SourceTests, assert_rows


def pixels(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


class TestColour(SourceTests):
    def make_source(self, tmp_path):
        images = pixels(12, 5, 7, 3)
        save_all(tmp_path, images)
        return open_files(tmp_path / "*.png"), images


class TestGray(SourceTests):
    def make_source(self, tmp_path):
        images = pixels(12, 5, 7, 1)
        save_all(tmp_path, images[..., 0])
        return open_files(tmp_path / "*.png"), images


class TestTransparent(SourceTests):
    def make_source(self, tmp_path):
        images = pixels(12, 5, 7, 4)
        save_all(tmp_path, images)
        return open_files(tmp_path / "*.png"), images


class TestResized(SourceTests):
    def make_source(self, tmp_path):
        images = pixels(12, 8, 6, 3)
        save_all(tmp_path, images)
        resized = [Image.fromarray(image).resize((3, 4), Image.Resampling.BILINEAR) for image in images]
        return open_files(tmp_path / "*.png", size=(4, 3)), np.stack([np.asarray(image) for image in resized])


class TestMixedFormats(SourceTests):
    def make_source(self, tmp_path):
        images = pixels(3, 5, 7, 3)
        paths = [tmp_path / "b.png", tmp_path / "a.bmp", tmp_path / "c.tiff"]
        [Image.fromarray(image).save(path) for image, path in zip(images, paths, strict=True)]
        return open_files(paths), images


def test_a_single_image_is_one_row(tmp_path):
    (image,) = save_all(tmp_path, pixels(1, 5, 7, 3))
    assert len(open_image(image)) == 1


def test_opening_reads_only_the_first_image(tmp_path):
    save_all(tmp_path, pixels(3, 5, 7, 3))
    (tmp_path / "2.png").write_bytes(b"no image")
    source = open_files(tmp_path / "*.png")
    with pytest.raises(SourceError, match=r"2\.png cannot be decoded"):
        source.gather(slice(0, 3), [np.empty((3, 5, 7, 3), "u1")])


def test_images_of_two_sizes_are_refused_with_both_sizes_and_a_fix(tmp_path):
    first, second = save(tmp_path, "a", pixels(5, 7, 3)), save(tmp_path, "b", pixels(6, 8, 3))
    source = open_files([first, second])
    with pytest.raises(SourceError, match=r"b\.png is 6 x 8, but .*a\.png is 5 x 7 .*size=\(5, 7\)"):
        source.gather(slice(0, 2), [np.empty((2, 5, 7, 3), "u1")])


def test_a_gray_image_among_colour_images_is_refused_with_a_fix(tmp_path):
    first, second = save(tmp_path, "a", pixels(5, 7, 3)), save(tmp_path, "b", pixels(5, 7))
    source = open_files([first, second])
    with pytest.raises(SourceError, match=r"has 1 channels \(mode L\).*Pass channels=3"):
        source.gather(slice(0, 2), [np.empty((2, 5, 7, 3), "u1")])


def test_channels_convert_gray_to_colour(tmp_path):
    gray = pixels(5, 7)
    source = open_image(save(tmp_path, "a", gray), channels=3)
    assert_rows(source, slice(0, 1), [np.stack([gray] * 3, -1)[None]])


def test_sixteen_bit_images_are_refused(tmp_path):
    with pytest.raises(SourceError, match="mode 'I"):
        open_image(save(tmp_path, "a", np.zeros((5, 7), "u2")))


def png_of_16_bits(color_type, channels):
    """Return a PNG file with 16 bits per channel. Pillow writes only gray ones."""
    line = b"\0" + struct.pack(">H", 300) * channels * 4
    header = struct.pack(">IIBBBBB", 4, 3, 16, color_type, 0, 0, 0)
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(line * 3)), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def tiff_of_16_bits():
    """Return an uncompressed TIFF file of 2 x 2 RGB pixels."""
    entries = [(256, 3, 1, 2), (257, 3, 1, 2), (258, 3, 3, 122), (259, 3, 1, 1), (262, 3, 1, 2), (273, 4, 1, 128)]
    entries += [(277, 3, 1, 3), (278, 3, 1, 2), (279, 4, 1, 24)]
    table = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    head = b"II*\0" + struct.pack("<IH", 8, len(entries)) + table + struct.pack("<I", 0)
    return head + struct.pack("<3H", 16, 16, 16) + struct.pack("<12H", *[300] * 12)


IMAGES_OF_16_BITS = {
    "rgb.png": png_of_16_bits(2, 3),
    "rgba.png": png_of_16_bits(6, 4),
    "gray_alpha.png": png_of_16_bits(4, 2),
    "rgb.tiff": tiff_of_16_bits(),
    "ppm.png": b"P6 2 1 65535\n" + struct.pack(">6H", *[300] * 6),
}


@pytest.mark.parametrize("name", IMAGES_OF_16_BITS)
def test_colour_images_of_16_bits_are_refused_instead_of_losing_the_low_byte(tmp_path, name):
    (tmp_path / name).write_bytes(IMAGES_OF_16_BITS[name])
    Image.new("RGB", (4, 3)).save(tmp_path / "a.png")
    with pytest.raises(SourceError, match=rf"{name} has 16 bits for each channel, and Pillow would drop the lower 8"):
        open_image(tmp_path / name)
    images = open_files([tmp_path / "a.png", tmp_path / name], size=(3, 4), channels=3)
    with pytest.raises(SourceError, match=rf"{name} has 16 bits for each channel"):
        images.gather(slice(0, 2), [np.empty((2, 3, 4, 3), np.uint8)])


def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch):
    path = save(tmp_path, "a", pixels(20, 20))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(SourceError, match=r"a\.png"):
        open_image(path)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_an_image_that_pillow_only_warns_about_is_refused(tmp_path, monkeypatch):
    path = save(tmp_path, "a", pixels(20, 20))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300)
    with pytest.raises(SourceError, match=r"a\.png has more pixels than Pillow's safety limit of 300.*MAX_IMAGE"):
        open_image(path)


def test_a_tiff_whose_tiles_have_too_many_pixels_is_refused(tmp_path):
    """Without a limit, Pillow allocates 2 GiB for the one tile of this file."""
    path = tmp_path / "a.tiff"
    path.write_bytes(tiff_bytes(tile_length=46_000, data=zlib.compress(bytes(100))))
    with pytest.raises(SourceError, match=r"a\.tiff has more pixels than Pillow's safety limit"):
        open_image(path)


def test_a_tiff_of_tiles_larger_than_the_image_is_read(tmp_path):
    path = tmp_path / "a.tiff"
    path.write_bytes(tiff_bytes(tile_length=16, data=zlib.compress(bytes([7]) * 256)))
    assert_rows(open_image(path), slice(0, 1), [np.full((1, 10, 10, 1), 7, "u1")])


def test_a_postscript_file_named_png_does_not_start_ghostscript(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *arguments: calls.append(arguments))
    (tmp_path / "a.png").write_bytes(POSTSCRIPT)
    with pytest.raises(SourceError, match=r"a\.png cannot be decoded.*not an image of a format that Forebay reads"):
        open_image(tmp_path / "a.png").gather(slice(0, 1), [np.empty((1, 10, 10, 3), "u1")])
    assert not calls


@pytest.mark.parametrize("form", ["EPS", "ICO", "PCX", "PDF", "SGI", "TGA", "XBM"])
def test_an_image_of_an_unsupported_format_is_refused_whatever_its_suffix(tmp_path, form):
    image = Image.fromarray(pixels(5, 7)).convert("1" if form == "XBM" else "RGB")
    image.save(tmp_path / "a.png", form)
    with pytest.raises(SourceError, match="not an image of a format that Forebay reads"):
        open_image(tmp_path / "a.png")


@pytest.mark.parametrize("form", ["BMP", "GIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TIFF", "WEBP"])
def test_an_image_of_a_supported_format_is_read_whatever_its_suffix(tmp_path, form):
    Image.fromarray(pixels(5, 7, 3)).save(tmp_path / "a.png", form)
    with Image.open(tmp_path / "a.png") as image:
        right = np.asarray(image.convert("RGB"))
    assert_rows(open_image(tmp_path / "a.png"), slice(0, 1), [right[None]])


@pytest.mark.parametrize("form", ["GIF", "TIFF", "WEBP"])
def test_an_animation_becomes_its_first_frame(tmp_path, form):
    frames = [Image.fromarray(np.full((5, 7, 3), value, "u1")) for value in (0, 255)]
    frames[0].save(tmp_path / "a.png", form, save_all=True, append_images=frames[1:])
    assert_rows(open_image(tmp_path / "a.png", channels=3), slice(0, 1), [np.zeros((1, 5, 7, 3), "u1")])


def test_an_image_with_less_pixel_data_than_its_header_says_is_refused(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(png_bytes(height=10, width=10, data=bytes(50)))
    source = open_image(path)
    with pytest.raises(SourceError, match=r"a\.png cannot be decoded"):
        source.gather(slice(0, 1), [np.empty((1, 10, 10, 1), "u1")])


def test_a_header_with_an_absurd_size_is_refused(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(png_bytes(height=2**31 - 1, width=2**31 - 1, data=bytes(50)))
    with pytest.raises(SourceError, match=r"a\.png has more pixels than Pillow's safety limit"):
        open_image(path)


def test_an_image_that_changes_its_size_when_it_is_loaded_is_refused(tmp_path, monkeypatch):
    """Some versions of Pillow rotate a TIFF file when they load it."""
    path = save(tmp_path, "a", pixels(5, 7, 3))
    source = open_image(path)
    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load", rotate)
    with pytest.raises(SourceError, match=r"a\.png is 7 x 5, but .*a\.png is 5 x 7"):
        source.gather(slice(0, 1), [np.empty((1, 5, 7, 3), "u1")])


def test_a_truncated_image_is_refused(tmp_path):
    path = save(tmp_path, "a", pixels(50, 50, 3))
    path.write_bytes(path.read_bytes()[:1000])
    source = open_image(path)
    with pytest.raises(SourceError, match="cannot be decoded"):
        source.gather(slice(0, 1), [np.empty((1, 50, 50, 3), "u1")])


def test_an_image_deleted_after_opening_raises_an_error(tmp_path):
    path = save(tmp_path, "a", pixels(5, 7, 3))
    source = open_image(path)
    path.unlink()
    with pytest.raises(SourceChangedError, match="is missing now"):
        source.gather(slice(0, 1), [np.empty((1, 5, 7, 3), "u1")])


def test_a_spec_gives_the_images_a_name(tmp_path):
    path = save(tmp_path, "a", pixels(5, 7, 3))
    assert open_image(path, spec={"image": ArraySpec((5, 7, 3), "uint8")}).structure.paths == ("image",)


@pytest.mark.parametrize("options", [{"channels": 2}, {"size": (0, 3)}, {"size": (3,)}])
def test_invalid_image_options_are_refused(tmp_path, options):
    path = save(tmp_path, "a", pixels(5, 7, 3))
    with pytest.raises(SpecError):
        open_image(path, **options)


def test_without_pillow_the_error_says_how_to_install_it():
    code = "import sys; sys.modules['PIL'] = None\nimport forebay.sources.formats.images"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "FrameworkError" in done.stderr
    assert "pip install 'forebay[images]'" in done.stderr


POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


def png_bytes(*, height, width, data):
    """Return a gray PNG file whose header may contradict its data."""
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(data)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )


def tiff_bytes(*, tile_length, data):
    """Return a gray, deflated TIFF file of 10 x 10 pixels in one square tile."""
    tags = {256: 10, 257: 10, 258: 8, 259: 8, 262: 1, 277: 1, 322: tile_length, 323: tile_length, 324: 134}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in {**tags, 325: len(data)}.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags) + 1) + entries + bytes(4) + data


def rotate(image):
    image._size = image.size[::-1]


def save(folder, name, image):
    path = folder / f"{name}.png"
    Image.fromarray(image).save(path)
    return path


def save_all(folder, images):
    return [save(folder, str(number), image) for number, image in enumerate(images)]
