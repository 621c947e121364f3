"""Augmentations of pulled and resident rows, on the CUDA engine with a fake driver."""

from types import MethodType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.cuda.pull.host_comparison import KINDS, assert_same_as_host, feed_of, read_all
from tests.support.fake_cuda import PACES, fake_cuda, wait_until_located

import forebay as fb
from forebay.core.array_ops import NumpyArrayOps


class ReadingOps(NumpyArrayOps):
    """Operations of NumPy, on images that the framework reads from the device first."""

    def __init__(self, framework):
        super().__init__()
        self._framework = framework

    def compile(self, function):
        return lambda images, parameters: function(self._framework.read(images), parameters)


def with_array_ops(framework):
    framework.array_ops = MethodType(ReadingOps, framework)
    return framework


def make_augmented(rows, *, shuffled=True):
    images = np.random.default_rng(1).integers(0, 256, (rows, 5, 6, 3), np.uint8)
    pipeline = fb.from_arrays({"x": images, "row": np.arange(rows, dtype="i4")})
    pipeline = pipeline.shuffle(seed=3) if shuffled else pipeline
    return pipeline.map(fb.random_resized_crop((4, 4))).map(fb.flip(0.5, 0.5)).map(fb.color_jitter(0.3, hue=0.2))


@pytest.mark.slow
@settings(derandomize=True)
@given(
    st.integers(3, 300), st.booleans(), st.integers(1, 20), st.integers(0, 2),
    st.sampled_from(["never", "always"]), st.sampled_from(KINDS), st.sampled_from(PACES),
)  # fmt: skip
def test_every_augmented_batch_equals_the_host_batch(rows, shuffled, batch, shard, resident, kind, pace):
    pipeline = make_augmented(rows, shuffled=shuffled).shard(shard, 3).batch(batch)
    with fake_cuda(kind=kind, pace=pace) as framework:
        text = assert_same_as_host(pipeline, with_array_ops(framework), epochs=2, resident=resident)
    assert text.count("the device computes pixels faster than the CPU; random numbers belong to the row") == 3


@pytest.mark.slow
@pytest.mark.parametrize("resident", ["never", "always"])
def test_rows_whose_numbers_the_device_computes_have_the_same_pixels(framework, resident):
    pipeline = make_augmented(9000).batch(500)  # too many rows for a table, so the device computes the shuffle
    assert_same_as_host(pipeline, with_array_ops(framework), epochs=1, resident=resident)


def test_a_resume_in_mid_epoch_has_the_same_pixels(framework):
    pipeline = make_augmented(200).batch(8)
    with feed_of(pipeline, with_array_ops(framework)) as feed:
        batches = iter(feed)
        read_all(framework, [next(batches) for _ in range(5)])
        wait_until_located()
        state, rest = feed.state_dict(), read_all(framework, batches)
    with make_augmented(200).batch(160).feed("numpy", device="cpu") as host:
        host.load_state_dict(state)
        (expected,) = list(host)
    assert np.concatenate([batch["row"] for batch in rest]).tolist() == expected["row"].tolist()
    np.testing.assert_array_equal(np.concatenate([batch["x"] for batch in rest]), expected["x"])


def test_a_framework_without_array_operations_gets_pixels_of_the_host(framework):
    with feed_of(make_augmented(50).batch(8), framework) as feed:
        assert feed.plan.transport is None
        assert "random_resized_crop(4 x 4) runs on the host" in feed.explain()
