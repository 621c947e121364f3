"""Random resized crops: the boxes, and the filter compared with exact arithmetic."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.transforms.image_batches import host_batch, image_batches, parameters_of

import forebay as fb
from forebay.errors import PipelineError, SpecError

SIZES = st.tuples(st.integers(1, 40), st.integers(1, 40))


def exact_weights(length, size):
    """Return the exact weights of the triangle filter: the weight of each source pixel for each output pixel."""
    support = max(Fraction(length, size), 1)
    rows = []
    for pixel in range(size):
        centre = (pixel + Fraction(1, 2)) * Fraction(length, size)
        overlaps = [max(support - abs(source + Fraction(1, 2) - centre), 0) for source in range(length)]
        rows.append([float(overlap / sum(overlaps)) for overlap in overlaps])
    return np.array(rows)


def exact_crop(image, box, size):
    top, left, height, width = box
    pixels = image[top : top + height, left : left + width].astype(np.float64)
    return np.einsum("ij,jkc,lk->ilc", exact_weights(height, size[0]), pixels, exact_weights(width, size[1]))


@given(images=image_batches(channels=(1, 3, 4)), size=SIZES, seed=st.integers(0, 100))
def test_pixels_are_those_of_the_exact_filter(images, size, seed):
    crop = fb.random_resized_crop(size, scale=(0.01, 1), ratio=(0.3, 3))
    limit = 0.7 if images.dtype == np.uint8 else 2e-3  # rounding to a byte accounts for 0.5 of the 0.7
    found = host_batch(crop, images, seed)
    for image, box, pixels in zip(images, parameters_of(crop, images, seed).tolist(), found, strict=True):
        np.testing.assert_allclose(pixels, exact_crop(image, box, size), rtol=0, atol=limit)


@given(images=image_batches(), size=SIZES, seed=st.integers(0, 100))
def test_boxes_are_inside_the_image(images, size, seed):
    boxes = parameters_of(fb.random_resized_crop(size, scale=(0.001, 1), ratio=(0.01, 100)), images, seed)
    tops, lefts, heights, widths = boxes.T
    assert (boxes[:, 2:] >= 1).all()
    assert (boxes[:, :2] >= 0).all()
    assert (tops + heights <= images.shape[1]).all()
    assert (lefts + widths <= images.shape[2]).all()


def test_boxes_have_the_areas_and_ratios_of_the_options():
    images = np.zeros((2000, 300, 400, 1), np.uint8)
    boxes = parameters_of(fb.random_resized_crop(8, scale=(0.2, 0.6), ratio=(0.5, 2)), images).astype(float)
    areas, ratios = boxes[:, 2] * boxes[:, 3] / (300 * 400), np.log(boxes[:, 3] / boxes[:, 2])
    assert 0.19 < areas.min() < 0.21
    assert 0.59 < areas.max() < 0.61
    assert abs(areas.mean() - 0.4) < 0.02
    assert abs(ratios.max() - math.log(2)) < 0.03
    assert abs(ratios.min() + math.log(2)) < 0.03
    tops = boxes[:, 0] / (301 - boxes[:, 2])
    assert abs(tops.mean() - 0.5) < 0.03


@pytest.mark.parametrize(
    ("shape", "box"), [((100, 4), (47, 0, 5, 4)), ((4, 100), (0, 47, 4, 5)), ((10, 10), (0, 0, 10, 10))]
)
def test_an_image_without_a_fitting_box_gives_the_largest_box_in_the_centre(shape, box):
    images = np.zeros((3, *shape, 1), np.uint8)
    assert parameters_of(fb.random_resized_crop(8, scale=(1, 1)), images).tolist() == [list(box)] * 3


def test_the_description_has_the_options_that_differ_from_the_defaults():
    assert str(fb.random_resized_crop(8)) == "random_resized_crop(8 x 8)"
    assert str(fb.random_resized_crop((8, 9), (0.5, 1))) == "random_resized_crop(8 x 9, scale=(0.5, 1))"


def test_the_whole_image_in_its_own_size_is_unchanged():
    images = np.random.default_rng(0).integers(0, 256, (2, 20, 20, 3), np.uint8)
    np.testing.assert_array_equal(host_batch(fb.random_resized_crop(20, (1, 1), (1, 1)), images), images)


@pytest.mark.parametrize("value", [0, 1, 127, 255])
def test_images_of_one_color_keep_their_color(value):
    images = np.full((3, 33, 47, 3), value, np.uint8)
    assert (host_batch(fb.random_resized_crop((21, 60)), images) == value).all()


@pytest.mark.parametrize("size", [0, -1, (3,), (3, 0), (3, 4, 5), "big", 2.5, None, True])
def test_invalid_sizes_are_refused(size):
    with pytest.raises(PipelineError, match=r"random_resized_crop\(size="):
        fb.random_resized_crop(size)


@pytest.mark.parametrize("limits", [(1, 0.5), (0, 1), (-1, 1), (0.1,), 0.5, "ab", (0.1, float("inf")), None])
@pytest.mark.parametrize("name", ["scale", "ratio"])
def test_an_invalid_scale_or_ratio_is_refused(name, limits):
    with pytest.raises(PipelineError, match=rf"random_resized_crop\({name}=.*with the smaller number first"):
        fb.random_resized_crop(8, **{name: limits})


def test_a_box_cannot_be_larger_than_the_image():
    with pytest.raises(PipelineError, match="up to 1"):
        fb.random_resized_crop(8, scale=(0.5, 1.5))


def test_images_that_would_shrink_too_much_for_the_integers_of_a_device_are_refused():
    rows = np.zeros((1, 8000, 4, 1), np.uint8)
    with pytest.raises(SpecError, match="would shrink 'image' of 8000 x 4 pixels too much"):
        fb.from_arrays({"image": rows}).map(fb.random_resized_crop(100)).batch(1).feed("numpy")
