"""Images that are cropped while they are decoded have the same boxes in feeds with Ray workers."""

import numpy as np
import pytest
from PIL import Image
from tests.transforms.workers.on_ray.conftest import assert_same, copy_batches

import forebay as fb

pytestmark = pytest.mark.usefixtures("cluster")


def invert(row):
    return {"image": 255 - row["image"]}


def test_boxes_equal_those_of_threads_in_two_epochs(tmp_path):
    for number in range(9):
        pixels = np.random.default_rng(number).integers(0, 256, (30, 20 + number, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    images = fb.from_images(tmp_path / "*.png", resize=fb.random_resized_crop(8), seed=5).shuffle(seed=3)
    in_threads, on_ray = (images.map(invert, where=where).batch(4).feed("numpy") for where in ("thread", "ray"))
    with in_threads, on_ray:
        for _ in range(2):
            assert_same(copy_batches(on_ray), copy_batches(in_threads))
