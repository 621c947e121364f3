"""Narrowing: the device pulls 64-bit numbers, and converts them to 32 bits."""

from types import MethodType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.cuda.pull.host_comparison import KINDS, assert_same, feed_of, host_epoch, random_rows, read_all
from tests.support.fake_cuda import PACES, ImportSyncFramework, fake_cuda, wait_until_located

import forebay as fb
from forebay.errors import PipelineError

# Random integers of 64 bits do not fit into 32 bits. tests/pipeline/test_narrowing.py has the tests of the warning.
pytestmark = pytest.mark.filterwarnings("ignore:.* cannot hold:UserWarning")

NARROW_DTYPES = {"i8": "i4", "u8": "u4", "f8": "f4", "c16": "c8"}


def hold_32_bit_numbers(framework):
    """Make a framework hold 32-bit numbers, like JAX."""

    def framework_dtype(_, dtype):
        return np.dtype(NARROW_DTYPES.get(dtype.str[1:], dtype))

    framework.framework_dtype = MethodType(framework_dtype, framework)
    return framework


def narrow_batches(batches):
    with np.errstate(over="ignore"):
        return [
            {name: leaf.astype(NARROW_DTYPES.get(leaf.dtype.str[1:], leaf.dtype)) for name, leaf in batch.items()}
            for batch in batches
        ]


def assert_same_as_host_narrowed(pipeline, framework, **options):
    with feed_of(pipeline, hold_32_bit_numbers(framework), **options) as feed:
        assert feed.plan.transport is not None
        for number in range(3):
            actual = read_all(framework, feed)  # the first batches are staged
            wait_until_located()
            assert_same(actual, narrow_batches(host_epoch(pipeline, number)))
        return feed


leaves = st.tuples(  # the arguments length, dtype, apart and offset of `random_rows`
    st.integers(1, 200),
    st.sampled_from([*NARROW_DTYPES, *NARROW_DTYPES, "u1", "f4"]),
    st.sampled_from([0, 3]),
    st.sampled_from([0, 1]),
)


@pytest.mark.slow
@settings(derandomize=True)
@given(
    st.integers(3, 150), st.lists(leaves, min_size=1, max_size=3), st.integers(1, 20),
    st.sampled_from(["never", "always"]), st.sampled_from(KINDS), st.sampled_from(PACES), st.booleans(), st.booleans(),
)  # fmt: skip
def test_every_batch_equals_the_narrowed_host_batch(
    rows, leaves, batch, resident, kind, pace, is_single_call, shuffled
):
    data = {
        f"leaf{number}": random_rows(rows, length, dtype, apart=apart, offset=offset)
        for number, (length, dtype, apart, offset) in enumerate(leaves)
    }
    pipeline = fb.from_arrays(data).shuffle(seed=3) if shuffled else fb.from_arrays(data)
    with fake_cuda(kind=kind, pace=pace, is_single_call=is_single_call) as framework:
        assert_same_as_host_narrowed(pipeline.batch(batch), framework, resident=resident)


@pytest.fixture
def framework():
    with fake_cuda(kind=ImportSyncFramework, pace="any") as made:
        yield made


@pytest.mark.parametrize(("dtype", "row_nbytes"), [("i8", 8), ("f8", 4000)])
@pytest.mark.parametrize("resident", ["never", "always"])
def test_the_device_narrows_and_the_feed_reports_its_specs(framework, dtype, row_nbytes, resident):
    data = {"x": random_rows(200, row_nbytes // 8, dtype), "y": np.arange(200)}
    pipeline = fb.from_arrays(data).shuffle(seed=1).batch(16)
    feed = assert_same_as_host_narrowed(pipeline, framework, resident=resident)
    assert "narrow_numbers" in framework.gpu.launched
    assert [str(spec.dtype) for spec in feed.specs] == [str(np.dtype(NARROW_DTYPES[dtype])), "int32"]
    assert "narrowed" in feed.explain()


def test_large_numbers_narrow_as_in_numpy(framework):
    integers = np.array([0, -1, 2**31, 2**32 + 7, -(2**63), 2**63 - 1] * 30)
    floats = np.array([0.0, -0.0, 1e-46, 1e300, -np.inf, np.nan] * 30)
    pipeline = fb.from_arrays({"integers": integers, "floats": floats}).batch(7)
    assert_same_as_host_narrowed(pipeline, framework, resident="never")


def test_rows_transformed_on_the_host_are_narrowed_on_the_host(framework):
    data = {"x": np.arange(60.0)}
    pipeline = fb.from_arrays(data).batch(6).map(lambda batch: {"x": batch["x"] * 2})
    with feed_of(pipeline, hold_32_bit_numbers(framework)) as feed:
        assert feed.plan.transport is None
        assert feed.plan.layout.specs[0].dtype == np.float32
        assert_same(read_all(framework, feed), narrow_batches(host_epoch(pipeline, 0)))


def test_specs_of_device_transforms_are_those_of_the_framework(framework):
    pipeline = fb.from_arrays({"x": np.arange(60)}).batch(6).map(fb.scale({"x": 0.5}))
    with feed_of(pipeline, hold_32_bit_numbers(framework)) as feed:
        assert all(spec.dtype.itemsize == 4 for spec in feed.specs)


@pytest.mark.parametrize("made", [fb.scale({"x": 1 / 255, "y": 1e-3}), fb.cast("float32"), fb.cast({"y": "float64"})])
def test_large_integers_are_not_narrowed_before_they_are_scaled_or_cast(framework, made):
    data = {"x": random_rows(60, 28, "u1"), "y": 1_700_000_000_000 + np.arange(60)}
    pipeline = fb.from_arrays(data).batch(6).map(made)
    with feed_of(pipeline, hold_32_bit_numbers(framework)) as feed:
        assert_same(read_all(framework, feed), narrow_batches(host_epoch(pipeline, 0)))


def test_two_fields_of_one_name_are_refused(framework):
    data = {"a.b": np.arange(60), "a": {"b": np.arange(60.0)}}
    with pytest.raises(PipelineError, match="two fields have the same name"):
        feed_of(fb.from_arrays(data).batch(6), hold_32_bit_numbers(framework))


def test_the_reason_for_staging_is_about_the_rows_and_not_about_narrowing(framework):
    pipeline = fb.from_arrays({"x": np.arange(60.0).astype(">f8")}).batch(6)
    with feed_of(pipeline, hold_32_bit_numbers(framework)) as feed:
        assert "in native byte order" in feed.explain()
    with pytest.raises(PipelineError, match="in native byte order"):
        feed_of(pipeline, hold_32_bit_numbers(framework), resident="always")


def test_without_memory_for_the_buffers_rows_are_staged_and_reported(framework):
    framework.refuse = lambda nbytes: nbytes == 2 * 8 * 100 * 8  # two leaves of a group of one batch
    data = {"x": random_rows(60, 100, "f8"), "y": random_rows(60, 100, "i8")}
    pipeline = fb.from_arrays(data).shuffle(seed=1).batch(8)
    feed = assert_same_as_host_narrowed(pipeline, framework, resident="never")
    assert feed.plan.group_batches == 1
    assert "narrow_numbers" not in framework.gpu.launched
    assert "no memory for the 64-bit rows, so the CPU stages them" in feed.explain()


def test_narrowing_buffers_count_as_slot_memory(framework):
    pipeline = fb.from_arrays({"x": np.zeros((400, 100))}).batch(8)
    with feed_of(pipeline, hold_32_bit_numbers(framework), resident="never") as feed:
        assert feed.plan.transport.slot_nbytes >= feed.plan.group_batches * 8 * 100 * (8 + 4)
