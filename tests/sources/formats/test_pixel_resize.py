"""Each pass of the C resize equals that of Pillow; the result differs by at most one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from forebay.sources.formats import pixel_resize
from forebay.sources.formats.pixel_resize import load_resize, resize_into

SIDE = st.integers(1, 150)
CHANNELS = st.sampled_from([1, 3, 4])


def random_image(height, width, channels):
    pixels = np.random.default_rng(height * width).integers(0, 256, (height, width, channels), dtype=np.uint8)
    pixels[..., 3:] = 255  # Pillow weighs colors by alpha; images from JPEG files are opaque
    return pixels


def resize_with_pillow(pixels, height, width):
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    return np.asarray(resized).reshape(height, width, pixels.shape[2])


def resize(pixels, height, width):
    out = np.empty((height, width, pixels.shape[2]), np.uint8)
    resize_into(pixels, out)
    return out


def test_the_library_is_compiled():
    assert load_resize() is not None


@given(SIDE, SIDE, SIDE, SIDE, CHANNELS)
def test_each_pass_equals_that_of_pillow(height, width, to_height, to_width, channels):
    pixels = random_image(height, width, channels)
    expected = resize_with_pillow(resize_with_pillow(pixels, height, to_width), to_height, to_width)
    assert np.array_equal(resize(pixels, to_height, to_width), expected)


@given(SIDE, SIDE, SIDE, SIDE, CHANNELS)
def test_pixels_differ_from_pillow_by_at_most_one(height, width, to_height, to_width, channels):
    pixels = random_image(height, width, channels)
    difference = resize(pixels, to_height, to_width).astype(int) - resize_with_pillow(pixels, to_height, to_width)
    assert np.abs(difference).max() <= 1


@pytest.mark.parametrize("part", [np.s_[3:90, 5:77], np.s_[::2, :], np.s_[::-1, :], np.s_[:, ::-1]])
def test_parts_and_turned_images_equal_their_copies(part):
    pixels = random_image(100, 80, 3)[part]
    assert np.array_equal(resize(pixels, 31, 47), resize(pixels.copy(), 31, 47))


def test_pillow_resizes_without_the_library(monkeypatch):
    monkeypatch.setattr(pixel_resize, "load_resize", lambda: None)
    pixels = random_image(60, 50, 3)
    assert np.array_equal(resize(pixels, 20, 30), resize_with_pillow(pixels, 20, 30))


def test_a_target_that_is_not_contiguous_is_written():
    pixels, slot = random_image(60, 50, 3), np.zeros((20, 60, 3), np.uint8)
    resize_into(pixels, slot[:, ::2])
    assert np.array_equal(slot[:, ::2], resize(pixels, 20, 30))
    assert not slot[:, 1::2].any()
