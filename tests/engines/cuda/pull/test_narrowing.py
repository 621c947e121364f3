"""Numbers that a framework holds in half the bytes: fetched as they lie, and narrowed on the device."""

from types import MethodType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.cuda.pull.test_fetcher import (
    KINDS,
    assert_same,
    feed_of,
    host_epoch,
    random_rows,
    read_all,
)
from tests.support.plain_cuda import PACES, Holding, plain_cuda, prepared

import forebay as fb
from forebay.errors import PipelineError

HELD = {"i8": "i4", "u8": "u4", "f8": "f4", "c16": "c8"}


def narrowing(side):
    """Like JAX, whatever else it is like."""
    side.held_dtype = MethodType(lambda _, dtype: np.dtype(HELD.get(dtype.str[1:], dtype)), side)
    return side


def held(batches):
    with np.errstate(over="ignore"):
        return [
            {name: leaf.astype(HELD.get(leaf.dtype.str[1:], leaf.dtype)) for name, leaf in batch.items()}
            for batch in batches
        ]


def assert_feeds_the_hosts_narrowed(pipeline, side, **options):
    with feed_of(pipeline, narrowing(side), **options) as feed:
        assert feed.plan.transport is not None
        for number in range(3):
            found = read_all(side, feed)  # the first of them staged
            prepared()
            assert_same(found, held(host_epoch(pipeline, number)))
        return feed


leaves = st.tuples(
    st.integers(1, 200), st.sampled_from([*HELD, *HELD, "u1", "f4"]), st.sampled_from([0, 3]), st.sampled_from([0, 1])
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.integers(3, 150), st.lists(leaves, min_size=1, max_size=3), st.integers(1, 20),
    st.sampled_from(["never", "always"]), st.sampled_from(KINDS), st.sampled_from(PACES), st.booleans(), st.booleans(),
)  # fmt: skip
def test_every_batch_is_the_hosts_narrowed(rows, leaves, batch, resident, kind, pace, at_once, shuffled):
    data = {
        f"leaf{number}": random_rows(rows, length, dtype, apart=apart, offset=offset)
        for number, (length, dtype, apart, offset) in enumerate(leaves)
    }
    pipeline = fb.from_arrays(data).shuffle(seed=3) if shuffled else fb.from_arrays(data)
    with plain_cuda(kind=kind, pace=pace, at_once=at_once) as side:
        assert_feeds_the_hosts_narrowed(pipeline.batch(batch), side, resident=resident)


@pytest.fixture
def side():
    with plain_cuda(kind=Holding, pace="any") as made:
        yield made


@pytest.mark.parametrize(("dtype", "row_nbytes"), [("i8", 8), ("f8", 4000)])
@pytest.mark.parametrize("resident", ["never", "always"])
def test_it_is_the_device_that_narrows_and_feeds_tell_what_they_give(side, dtype, row_nbytes, resident):
    data = {"x": random_rows(200, row_nbytes // 8, dtype), "y": np.arange(200)}
    pipeline = fb.from_arrays(data).shuffle(seed=1).batch(16)
    feed = assert_feeds_the_hosts_narrowed(pipeline, side, resident=resident)
    assert "narrow_numbers" in side.machine.launched
    assert [str(spec.dtype) for spec in feed.specs] == [str(np.dtype(HELD[dtype])), "int32"]
    assert "narrowed" in feed.explain()


def test_what_large_numbers_become_is_what_numpy_makes_of_them(side):
    whole = np.array([0, -1, 2**31, 2**32 + 7, -(2**63), 2**63 - 1] * 30)
    real = np.array([0.0, -0.0, 1e-46, 1e300, -np.inf, np.nan] * 30)
    assert_feeds_the_hosts_narrowed(fb.from_arrays({"whole": whole, "real": real}).batch(7), side, resident="never")


def test_rows_that_the_host_transforms_are_narrowed_there_and_fewer_bytes_cross(side):
    data = {"x": np.arange(60.0)}
    pipeline = fb.from_arrays(data).batch(6).map(lambda batch: {"x": batch["x"] * 2})
    with feed_of(pipeline, narrowing(side)) as feed:
        assert feed.plan.transport is None
        assert feed.plan.layout.specs[0].dtype == np.float32
        assert_same(read_all(side, feed), held(host_epoch(pipeline, 0)))


def test_what_the_device_scales_is_told_as_the_framework_holds_it(side):
    pipeline = fb.from_arrays({"x": np.arange(60)}).batch(6).map(fb.scale({"x": 0.5}))
    with feed_of(pipeline, narrowing(side)) as feed:
        assert all(spec.dtype.itemsize == 4 for spec in feed.specs)


@pytest.mark.parametrize("made", [fb.scale({"x": 1 / 255, "y": 1e-3}), fb.cast("float32"), fb.cast({"y": "float64"})])
def test_large_whole_numbers_are_not_cut_in_half_before_they_are_scaled_or_cast(side, made):
    data = {"x": random_rows(60, 28, "u1"), "y": 1_700_000_000_000 + np.arange(60)}
    pipeline = fb.from_arrays(data).batch(6).map(made)
    with feed_of(pipeline, narrowing(side)) as feed:
        assert_same(read_all(side, feed), held(host_epoch(pipeline, 0)))


def test_two_fields_of_one_name_are_refused_as_one_of_them_would_be_taken_for_the_other(side):
    data = {"a.b": np.arange(60), "a": {"b": np.arange(60.0)}}
    with pytest.raises(PipelineError, match="two fields have one name"):
        feed_of(fb.from_arrays(data).batch(6), narrowing(side))


def test_why_rows_are_staged_is_told_of_the_rows_not_of_their_narrowing(side):
    pipeline = fb.from_arrays({"x": np.arange(60.0).astype(">f8")}).batch(6)
    with feed_of(pipeline, narrowing(side)) as feed:
        assert "in native byte order" in feed.explain()
    with pytest.raises(PipelineError, match="in native byte order"):
        feed_of(pipeline, narrowing(side), resident="always")


def test_without_room_for_what_arrives_rows_are_staged_and_it_is_told(side):
    side.refuse = lambda nbytes: nbytes == 2 * 8 * 100 * 8  # two leaves of a group of one batch
    data = {"x": random_rows(60, 100, "f8"), "y": random_rows(60, 100, "i8")}
    pipeline = fb.from_arrays(data).shuffle(seed=1).batch(8)
    feed = assert_feeds_the_hosts_narrowed(pipeline, side, resident="never")
    assert feed.plan.group_batches == 1
    assert "narrow_numbers" not in side.machine.launched
    assert "rows are staged, by the CPU, as they cannot arrive first" in feed.explain()


def test_room_for_what_arrives_is_counted_with_the_slots(side):
    pipeline = fb.from_arrays({"x": np.zeros((400, 100))}).batch(8)
    with feed_of(pipeline, narrowing(side), resident="never") as feed:
        assert feed.plan.transport.slot_nbytes >= feed.plan.group_batches * 8 * 100 * (8 + 4)
