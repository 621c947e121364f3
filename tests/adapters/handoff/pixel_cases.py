"""Augmentations by the array operations of each framework give the pixels of the host.

`tests/test_framework_cases.py` runs this file once for each framework, in its own process.
"""

import importlib
import os
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.device_like import DeviceLikeEngine
from tests.transforms.image_batches import augmentations, image_batches, parameters_of

import forebay as fb
from forebay.transforms.augmentations import Flip
from forebay.transforms.resized_crop import RandomResizedCrop

FRAMEWORK = os.environ["FOREBAY_FRAMEWORK"]
PREFIX = {"torch": "Torch", "jax": "Jax", "tensorflow": "Tensorflow"}[FRAMEWORK]
MODULE = importlib.import_module(f"forebay.adapters.handoff.{FRAMEWORK}")
HOST_HAND_OFF, DEVICE_HAND_OFF = getattr(MODULE, f"{PREFIX}HandOff"), getattr(MODULE, f"{PREFIX}DeviceHandOff")
OPS = DEVICE_HAND_OFF.array_ops(None)
TO_FRAMEWORK = {"torch": "from_numpy", "jax": "numpy.asarray", "tensorflow": "constant"}[FRAMEWORK]


class CpuDeviceHandOff(HOST_HAND_OFF):
    """A device hand-off of the framework's arrays on the CPU."""

    index = 0
    syncs_on_import = True
    cast, array_ops = DEVICE_HAND_OFF.cast, DEVICE_HAND_OFF.array_ops

    def available(self, free, total):
        return free


def to_framework(array):
    found = importlib.import_module(FRAMEWORK)
    for name in TO_FRAMEWORK.split("."):
        found = getattr(found, name)
    return found(array)


def assert_close(found, expected):
    """Assert that bytes differ by at most 1, and floats by at most 0.01 / 255."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    limit = 1 if expected.dtype == np.uint8 else 0.01 / 255
    assert np.abs(found.astype(np.float64) - expected).max() <= limit


@given(augmentation=augmentations, images=image_batches(), seed=st.integers(0, 100))
def test_pixels_are_those_of_the_host(augmentation, images, seed):
    parameters, arrays = parameters_of(augmentation, images, seed), to_framework(images)
    pixels = OPS.compile(partial(augmentation.pixels, OPS))
    found = np.asarray(pixels(arrays, None if parameters is None else OPS.upload(parameters, arrays)))
    expected = augmentation.host_pixels(images, parameters)
    assert_close(found, expected)
    if isinstance(augmentation, Flip | RandomResizedCrop) and images.dtype == np.uint8:
        np.testing.assert_array_equal(found, expected)


def make_augmented(images):
    """Return a pipeline of images and gray masks, with rows that a device cannot pull."""
    rows = {
        "image": np.asfortranarray(images),
        "mask": np.asfortranarray(images[..., 0]),
        "row": np.arange(len(images)),
    }
    return (
        fb.from_arrays(rows)
        .shuffle(seed=4)
        .map(fb.random_resized_crop((8, 10), fields=["image", "mask"]))
        .map(fb.flip())
        .map(fb.color_jitter(0.4, 0.4, 0.4, 0.1))
        .map(fb.normalize((0.4, 0.5, 0.6), 0.2, fields="image"))
    )


@pytest.mark.parametrize("device", ["cpu", DeviceLikeEngine])
def test_a_feed_has_the_pixels_of_a_feed_to_numpy(device):
    images = np.random.default_rng(0).integers(0, 256, (23, 12, 16, 3), np.uint8)
    engine = device if isinstance(device, str) else device(CpuDeviceHandOff())
    with (
        make_augmented(images).batch(5).feed(FRAMEWORK, device=engine) as fed,
        make_augmented(images).batch(7).feed() as host,
    ):
        for _ in range(2):
            found, expected = (
                [np.concatenate([np.asarray(batch[name]) for batch in batches]) for name in ("row", "mask", "image")]
                for batches in (list(fed), list(host))
            )
            np.testing.assert_array_equal(found[0], expected[0])
            np.testing.assert_array_equal(found[1], expected[1])
            assert np.abs(found[2] - expected[2]).max() < 1.01 / 255 / 0.2
        assert fed.explain().count("the device computes pixels") == (0 if device == "cpu" else 4)
