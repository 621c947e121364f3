"""The fields, the random numbers and the errors of augmentations; flips and normalization."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.transforms.image_batches import AUGMENTATIONS, augmentations, host_batch, image_batches, parameters_of

import forebay as fb
from forebay.core.array_ops import NumpyArrayOps
from forebay.errors import PipelineError, SpecError
from forebay.transforms.batch_context import BatchContext
from forebay.transforms.random_keys import draw_uniform

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 10, 3), np.uint8)


def first_batch(pipeline):
    with pipeline.batch(6).feed("numpy") as feed:
        return next(iter(feed))


def error_message(augmentation, rows):
    """Return the message of the error for rows that an augmentation cannot transform."""
    with pytest.raises(SpecError) as error:
        fb.from_arrays(rows).map(augmentation).batch(2).feed("numpy")
    return str(error.value)


@given(augmentation=augmentations, images=image_batches())
def test_host_pixels_equal_those_of_the_pixel_function(augmentation, images):
    parameters = parameters_of(augmentation, images)
    found, plain = (
        augmentation.host_pixels(images, parameters),
        augmentation.pixels(NumpyArrayOps(), images, parameters),
    )
    assert (found.dtype, found.shape) == (plain.dtype, plain.shape)
    np.testing.assert_allclose(found, plain, rtol=0, atol=0 if found.dtype == np.uint8 else 1e-5)


@given(augmentation=augmentations, images=image_batches())
def test_the_images_of_the_source_do_not_change(augmentation, images):
    before = images.copy()
    host_batch(augmentation, images)
    np.testing.assert_array_equal(images, before)


# Fields


def test_by_default_all_images_are_transformed():
    rows = {
        "a": IMAGES,
        "b": IMAGES[..., :1],
        "gray": IMAGES[..., 0],
        "label": np.arange(6),
        "wide": IMAGES[..., [0] * 5],
    }
    batch = first_batch(fb.from_arrays(rows).map(fb.random_resized_crop(4)))
    shapes = {name: leaf.shape[1:] for name, leaf in batch.items()}
    assert shapes == {"a": (4, 4, 3), "b": (4, 4, 1), "gray": (8, 10), "label": (), "wide": (8, 10, 5)}


def test_fields_of_one_augmentation_have_the_same_random_numbers():
    rows = {"image": IMAGES, "mask": IMAGES[..., 0]}
    batch = first_batch(fb.from_arrays(rows).map(fb.random_resized_crop((5, 7), fields=["image", "mask"])))
    np.testing.assert_array_equal(batch["image"][..., 0], batch["mask"])


def test_rows_may_be_a_single_array():
    np.testing.assert_array_equal(first_batch(fb.from_arrays(IMAGES).map(fb.flip(1, 1))), IMAGES[:, ::-1, ::-1])


def test_a_crop_before_batch_equals_one_after_batch():
    pipeline, crop = fb.from_arrays(IMAGES).shuffle(seed=2), fb.random_resized_crop(5)
    with pipeline.batch(4).map(crop).feed("numpy") as after, pipeline.map(crop).batch(4).feed("numpy") as before:
        for _ in range(2):
            for left, right in zip(after, before, strict=True):
                np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_rows_without_images_are_refused(name):
    assert "finds no images: the fields are 'x' uint8(8,)" in error_message(
        AUGMENTATIONS[name], {"x": np.zeros((4, 8), "u1")}
    )


@pytest.mark.parametrize("augmentation", [fb.random_resized_crop(4, fields="x"), fb.flip(fields="x")])
@pytest.mark.parametrize("shape", [(4, 3, 8, 8), (4, 8), (4, 8, 8, 2), (4, 0, 8, 3)])
def test_fields_of_another_shape_are_refused(augmentation, shape):
    assert f"rows of 'x' have the shape {shape[1:]}" in error_message(augmentation, {"x": np.zeros(shape, np.uint8)})


@pytest.mark.parametrize("fields", [None, "x"])
def test_channels_that_a_map_moved_to_the_front_are_refused_with_the_right_order_of_the_maps(fields):
    message = error_message(fb.normalize(0.5, 0.5, fields=fields), {"x": np.zeros((4, 3, 8, 8), np.uint8)})
    assert message.endswith(
        "If a map moves the channels first, call it after this transform, or permute batches in the loop."
    )


def test_unknown_fields_are_refused():
    assert "names 'y', but the fields are 'x' uint8(8, 10, 3)" in error_message(fb.flip(fields="y"), {"x": IMAGES})


@pytest.mark.parametrize("augmentation", [fb.random_resized_crop(4, fields="x"), fb.color_jitter(0.1, fields=("x",))])
@pytest.mark.parametrize("dtype", ["int64", "float64", "uint16", "bool"])
def test_unsupported_dtypes_are_refused(augmentation, dtype):
    assert f"'x' is {dtype}. Convert it with fb.cast before" in error_message(augmentation, {"x": IMAGES.astype(dtype)})


@pytest.mark.parametrize("fields", [(), 3, [1], {"x": 1}])
def test_fields_must_be_names(fields):
    with pytest.raises(PipelineError, match=r"flip\(fields=.*pass the name of a field"):
        fb.flip(fields=fields)


def test_padded_batches_are_refused_because_the_padding_depends_on_other_rows():
    for augmentation in (fb.random_resized_crop(4), fb.flip(), fb.color_jitter(0.1)):
        with pytest.raises(PipelineError, match="needs images of the same size"):
            fb.from_arrays(IMAGES).map(augmentation).batch(2, pad=0).feed("numpy")
    with fb.from_arrays(IMAGES).map(fb.normalize(0, 1)).batch(6, pad=0).feed("numpy") as feed:
        np.testing.assert_allclose(next(iter(feed)), IMAGES / 255, rtol=1e-6)


def test_ragged_images_are_refused_with_the_remedy():
    images = fb.from_ragged(np.zeros((9, 4, 3), np.uint8), [0, 4, 9])
    with pytest.raises(SpecError, match=r"needs images of one size, but 'array' is ragged\. Pass pad="):
        images.map(fb.normalize(0, 1)).batch(2, ragged=True).feed("numpy")
    with pytest.raises(PipelineError, match=r"flip.*leave out pad= and ragged="):
        images.map(fb.flip()).batch(2, ragged=True).feed("numpy")


def test_images_beside_a_ragged_field_are_normalized():
    texts = fb.Ragged(np.arange(12), np.arange(0, 14, 2))
    rows = fb.from_arrays({"image": IMAGES, "text": texts}).map(fb.normalize(0, 1))
    with rows.batch(6, ragged=True).feed("numpy") as feed:
        np.testing.assert_allclose(next(feed)["image"], IMAGES / 255, rtol=1e-6)


@pytest.mark.parametrize(
    "augmentation", [fb.random_resized_crop(4), fb.flip(), fb.color_jitter(0.1, hue=0.1), fb.normalize(0, 1)]
)
def test_a_ready_made_batch_may_have_no_rows(augmentation):
    batches = fb.from_batches(lambda: iter([IMAGES[:2], IMAGES[:0], IMAGES[:3]])).map(augmentation)
    with batches.feed("numpy") as feed:
        assert [len(batch) for batch in feed] == [2, 0, 3]


# Random numbers


def test_random_numbers_are_uniform_and_differ_between_rows_epochs_passes_transforms_and_seeds():
    contexts = [BatchContext(epoch, n, 0, slice(0, 500), transform) for epoch, n, transform in np.ndindex(3, 2, 2)]
    drawn = np.stack([draw_uniform(seed, context, 4) for context in contexts for seed in (0, 1, -1)])
    assert len(np.unique(drawn)) == drawn.size
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts = np.histogram(drawn, bins=16, range=(0, 1))[0]
    assert np.abs(counts - drawn.size / 16).max() < 6 * np.sqrt(drawn.size / 16)


@given(rows=st.lists(st.integers(0, 2**40), min_size=1, max_size=20), count=st.integers(0, 9))
def test_the_numbers_of_a_row_do_not_depend_on_its_batch(rows, count):
    together = draw_uniform(7, BatchContext(2, 0, 0, np.array(rows)), count)
    for row, numbers in zip(rows, together, strict=True):
        np.testing.assert_array_equal(draw_uniform(7, BatchContext(2, 0, 0, slice(row, row + 1)), count)[0], numbers)


def test_the_seed_of_the_shuffle_is_the_default_for_the_seed_of_the_map():
    shuffled, flip = fb.from_arrays(IMAGES).shuffle(seed=3), fb.flip()
    assert [pipeline.transforms[0].seed for pipeline in (shuffled.map(flip), shuffled.map(flip, seed=9))] == [3, 9]
    with pytest.raises(PipelineError, match="seed"):
        shuffled.map(flip, seed="nine")


# Flips


@pytest.mark.parametrize(("horizontal", "vertical"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_a_flip_with_probability_0_or_1_is_certain(horizontal, vertical):
    expected = IMAGES[:, :: -1 if vertical else 1, :: -1 if horizontal else 1]
    np.testing.assert_array_equal(host_batch(fb.flip(horizontal, vertical), IMAGES), expected)


def test_flips_keep_the_dtype_of_a_field_that_the_user_names():
    rows = {"mask": IMAGES[..., 0].astype(np.int64)}
    found = first_batch(fb.from_arrays(rows).map(fb.flip(1, fields="mask")))["mask"]
    np.testing.assert_array_equal(found, rows["mask"][:, :, ::-1])


def test_a_flip_with_probability_a_quarter_flips_a_quarter_of_the_images():
    images = np.arange(2, dtype=np.uint8).reshape(1, 1, 2, 1).repeat(4000, axis=0)
    assert 900 < host_batch(fb.flip(0.25), images)[:, 0, 0, 0].sum() < 1100


@pytest.mark.parametrize("probability", [-0.1, 1.1, "half", None, True, float("nan")])
def test_invalid_probabilities_are_refused(probability):
    with pytest.raises(PipelineError, match=r"flip\(horizontal=.*between 0 and 1"):
        fb.flip(probability)


# Normalization


def test_bytes_are_divided_by_255_and_floats_are_not():
    mean, std = np.array([0.1, 0.2, 0.3]), np.array([0.5, 0.6, 0.7])
    augmentation = fb.normalize(mean, std)
    np.testing.assert_allclose(host_batch(augmentation, IMAGES), (IMAGES / 255 - mean) / std, atol=1e-6)
    floats = IMAGES.astype(np.float32) / 100
    np.testing.assert_allclose(host_batch(augmentation, floats), (floats - mean) / std, atol=1e-5)


def test_the_dtype_of_the_result_can_be_chosen():
    assert host_batch(fb.normalize(0, 1), IMAGES).dtype == np.float32
    assert host_batch(fb.normalize(0, 1, dtype="float16"), IMAGES).dtype == np.float16
    with pytest.raises(PipelineError, match="would lose fractions"):
        fb.normalize(0, 1, dtype="uint8")
    with pytest.raises(SpecError, match="is not a dtype"):
        fb.normalize(0, 1, dtype="float33")


def test_a_wrong_number_of_means_or_stds_is_refused():
    assert "has 2 values, but 'x' has 3 channels" in error_message(fb.normalize((0, 1), 1), {"x": IMAGES})
    assert "has 4 values, but 'x' has 3 channels" in error_message(fb.normalize(0, (1, 1, 1, 1)), {"x": IMAGES})


@pytest.mark.parametrize(
    ("mean", "std", "fixed"),
    [
        ((123.0, 117, 104), (0.2, 0.2, 0.2), "mean=(0.482, 0.459, 0.408), std=(0.2, 0.2, 0.2)"),
        (0, 255, "mean=(0), std=(1)"),
        ((1.5,), (1.0,), "mean=(0.00588), std=(1)"),
    ],
)
def test_normalize_refuses_the_scale_of_0_to_255_for_uint8(mean, std, fixed):
    message = error_message(fb.normalize(mean, std), {"x": IMAGES})
    assert "has values of the scale 0 to 255, but it divides the uint8 images of 'x' by 255 first" in message
    assert fixed in message


def test_normalize_takes_any_scale_for_other_dtypes():
    assert host_batch(fb.normalize(127.5, 127.5), np.full((1, 4, 4, 3), 255.0, np.float32)).max() == 1.0


@pytest.mark.parametrize(("mean", "std"), [(0, 0), (0, -1), ("a", 1), ((), 1), (None, 1), (float("inf"), 1)])
def test_an_invalid_mean_or_std_is_refused(mean, std):
    with pytest.raises(PipelineError, match=r"normalize\((mean|std)="):
        fb.normalize(mean, std)
