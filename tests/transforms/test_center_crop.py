"""Centre crops: the box, the fields and the errors. Other tests compare the pixels of frameworks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.transforms.image_batches import host_batch, image_batches

import forebay as fb
from forebay.errors import PipelineError, SpecError

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 11, 3), np.uint8)


@given(images=image_batches(channels=(1, 3, 4)), data=st.data())
def test_the_margins_differ_by_at_most_one_pixel(images, data):
    height, width = (data.draw(st.integers(1, side)) for side in images.shape[1:3])
    found = host_batch(fb.center_crop((height, width)), images)
    top, left = (images.shape[1] - height) // 2, (images.shape[2] - width) // 2
    bottom, right = images.shape[1] - height - top, images.shape[2] - width - left
    assert (bottom - top, right - left) in {(0, 0), (0, 1), (1, 0), (1, 1)}
    np.testing.assert_array_equal(found, images[:, top : top + height, left : left + width])


@pytest.mark.parametrize("size", [4, (4, 4), [4, 4]])
def test_a_number_is_the_side_of_a_square(size):
    pipeline = fb.from_arrays({"image": IMAGES, "label": np.arange(6)}).map(fb.center_crop(size)).batch(6)
    batch = next(iter(pipeline.feed("numpy")))
    np.testing.assert_array_equal(batch["image"], IMAGES[:, 2:6, 3:7])
    assert batch["label"].tolist() == list(range(6))


def test_masks_of_any_dtype_are_cropped_if_they_are_named():
    rows = {"image": IMAGES, "mask": IMAGES[..., 0].astype("int64")}
    pipeline = fb.from_arrays(rows).map(fb.center_crop(5, fields=["image", "mask"])).batch(6)
    batch = next(iter(pipeline.feed("numpy")))
    np.testing.assert_array_equal(batch["mask"], batch["image"][..., 0])
    assert batch["mask"].dtype == np.int64


def test_a_crop_before_batch_equals_one_after_batch():
    crop = fb.center_crop((3, 6))
    before, after = fb.from_arrays(IMAGES).map(crop).batch(4), fb.from_arrays(IMAGES).batch(4).map(crop)
    for left, right in zip(before.feed("numpy"), after.feed("numpy"), strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("size", [(9, 8), (8, 12), 9])
def test_a_crop_larger_than_the_image_is_refused(size):
    with pytest.raises(SpecError, match=r"center_crop\(\d+ x \d+\) is larger than the images of 'image'"):
        fb.from_arrays({"image": IMAGES}).map(fb.center_crop(size)).batch(2).feed("numpy")


@pytest.mark.parametrize("size", [0, -1, (3,), (3, 4, 3), "3", 2.5, True, None])
def test_an_invalid_size_is_refused(size):
    with pytest.raises(PipelineError, match="pass a number of pixels"):
        fb.center_crop(size)


def test_a_size_may_have_numpy_integers():
    assert fb.center_crop(np.int64(5)) == fb.center_crop(5)
    assert fb.center_crop((np.uint8(3), 4)) == fb.center_crop((3, 4))
    assert fb.random_resized_crop(np.int32(5)) == fb.random_resized_crop(5)


def test_explain_names_the_crop():
    with fb.from_arrays({"image": IMAGES}).map(fb.center_crop(4)).batch(2).feed("numpy") as feed:
        assert "center_crop(4 x 4)" in feed.explain()
