"""Image files: each file is one row, decoded when the row is read."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

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
    with pytest.raises(SourceError, match="mode 'I;16'"):
        open_image(save(tmp_path, "a", np.zeros((5, 7), "u2")))


def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch):
    path = save(tmp_path, "a", pixels(20, 20))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(SourceError, match=r"a\.png"):
        open_image(path)


@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_an_image_that_pillow_only_warns_about_is_refused(tmp_path, monkeypatch):
    path = save(tmp_path, "a", pixels(20, 20))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300)
    with pytest.raises(SourceError, match="20 x 20 pixels, more than Pillow's safety limit of 300"):
        open_image(path)


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


def save(folder, name, image):
    path = folder / f"{name}.png"
    Image.fromarray(image).save(path)
    return path


def save_all(folder, images):
    return [save(folder, str(number), image) for number, image in enumerate(images)]
