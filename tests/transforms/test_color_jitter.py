"""Color jitter, compared with the formulas of torchvision and the hue of the standard library."""

import colorsys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.transforms.image_batches import host_batch, image_batches, parameters_of

import forebay as fb
from forebay.errors import PipelineError, SpecError

GRAY = np.array([0.2989, 0.587, 0.114])


def blend(image, other, factor):
    return np.clip(image * factor + other * (1 - factor), 0, 1)


def shift_hue(image, shift):
    pixels = [colorsys.rgb_to_hsv(*pixel) for pixel in image.reshape(-1, 3)]
    return np.array([colorsys.hsv_to_rgb((h + shift) % 1, s, v) for h, s, v in pixels]).reshape(image.shape)


CHANGES = (
    lambda image, factor: blend(image, 0, factor),
    lambda image, factor: blend(image, (image @ GRAY).mean(), factor),
    lambda image, factor: blend(image, (image @ GRAY)[..., None], factor),
    shift_hue,
)


def exact_jitter(image, parameters):
    """Apply the changes of one row to an image with values from 0 to 1."""
    order, factors = np.split(parameters.astype(np.float64), 2)
    for change, factor in zip(order.astype(int), factors, strict=True):
        image = CHANGES[change](image, factor)
    return image


@given(
    images=image_batches(channels=(3,)),
    amounts=st.tuples(*[st.sampled_from([0, 0.3, 0.9])] * 3, st.sampled_from([0, 0.1, 0.5])).filter(any),
    seed=st.integers(0, 100),
)
def test_pixels_are_those_of_the_formulas(images, amounts, seed):
    jitter = fb.color_jitter(*amounts)
    brightest = 255 if images.dtype == np.uint8 else 1
    expected = [
        exact_jitter(image.astype(np.float64) / brightest, parameters) * brightest
        for image, parameters in zip(images, parameters_of(jitter, images, seed), strict=True)
    ]
    limit = 0.51 if brightest == 255 else 1e-4
    np.testing.assert_allclose(host_batch(jitter, images, seed), expected, rtol=0, atol=limit)


@given(images=image_batches(channels=(1,)), seed=st.integers(0, 100))
def test_hue_and_saturation_of_gray_images_do_not_change(images, seed):
    np.testing.assert_allclose(host_batch(fb.color_jitter(saturation=0.9, hue=0.5), images, seed), images, atol=1e-6)


def test_all_orders_of_the_changes_occur():
    images = np.zeros((2000, 1, 1, 3), np.uint8)
    orders = parameters_of(fb.color_jitter(0.1, 0.1, 0.1, 0.1), images)[:, :4]
    found, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(found) == 24
    assert counts.min() > 40


def test_factors_are_in_their_ranges():
    images = np.zeros((2000, 1, 1, 3), np.uint8)
    parameters = parameters_of(fb.color_jitter(brightness=0.4, contrast=2.0, hue=(-0.1, 0.2)), images)
    for change, (low, high) in {0: (0.6, 1.4), 1: (0, 3), 3: (-0.1, 0.2)}.items():
        factors = parameters[:, 3:][parameters[:, :3] == change]
        assert len(factors) == 2000
        assert low <= factors.min() < low + 0.02
        assert high - 0.02 < factors.max() <= np.float32(high)


@pytest.mark.parametrize("value", [-0.1, (0.5, 0.1), (-1, 1), "much", (1,), None, float("nan"), True])
@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation"])
def test_invalid_factors_are_refused(name, value):
    with pytest.raises(PipelineError, match=rf"color_jitter\({name}="):
        fb.color_jitter(**{name: value})


@pytest.mark.parametrize("value", [-0.1, 0.6, (0.1, -0.1), (-0.6, 0), "red", float("nan")])
def test_an_invalid_hue_is_refused(value):
    with pytest.raises(PipelineError, match=r"color_jitter\(hue="):
        fb.color_jitter(hue=value)


def test_a_jitter_that_changes_nothing_is_refused():
    with pytest.raises(PipelineError, match="would change nothing"):
        fb.color_jitter(brightness=(1, 1))


def test_images_with_an_alpha_channel_are_refused():
    with pytest.raises(SpecError, match="has 4 channels"):
        fb.from_arrays(np.zeros((2, 4, 4, 4), np.uint8)).map(fb.color_jitter(0.1)).batch(2).feed("numpy")
