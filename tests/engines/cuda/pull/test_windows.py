"""Windows on the CUDA engine with a fake driver. Windows share the memory of the series on host and device."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engines.cuda.pull.host_comparison import KINDS, assert_same_as_host, feed_of, random_rows
from tests.support.fake_cuda import PACES, fake_cuda, wait_until_located

import forebay as fb


@pytest.fixture
def framework(every_framework):
    return every_framework


@settings(derandomize=True)
@given(
    st.integers(30, 400), st.integers(1, 30), st.integers(1, 12), st.integers(1, 60),
    st.sampled_from(["u1", "i2", "f4"]), st.booleans(), st.sampled_from(["never", "always", "auto"]),
    st.sampled_from(KINDS), st.sampled_from(PACES),
)  # fmt: skip
def test_every_batch_of_windows_equals_the_host_batch(
    rows, length, stride, row_length, dtype, shuffled, resident, kind, pace
):
    data = {"x": random_rows(rows, row_length, dtype), "y": random_rows(rows, 1, "i8")}
    pipeline = fb.from_arrays(data).window(length, stride=stride)
    pipeline = (pipeline.shuffle(seed=3) if shuffled else pipeline).batch(7)
    with fake_cuda(kind=kind, pace=pace) as framework:
        assert_same_as_host(pipeline, framework, epochs=2, resident=resident)


def test_resident_windows_need_the_memory_of_the_series_once(framework):
    series = np.arange(400_000, dtype=np.float32)
    pipeline = fb.from_arrays(series).window(100).batch(8)
    with feed_of(pipeline, framework, resident="always") as feed:
        next(iter(feed))
        wait_until_located()
        assert feed.plan.transport.resident_nbytes == series.nbytes
        assert feed.plan.transport.resident_rows == len(series) - 99


def test_windows_of_a_mapped_file_are_pulled(framework, tmp_path):
    tokens = np.random.default_rng(0).integers(0, 60_000, 50_000).astype(np.uint16)
    tokens.tofile(tmp_path / "train.bin")
    pipeline = fb.from_files(tmp_path / "train.bin", spec="uint16").window(128, stride=128, horizon=1)
    assert_same_as_host(pipeline.shuffle(seed=1).batch(16), framework, resident="never")


def test_large_windows_that_overlap_are_pulled_by_a_kernel(framework):
    pipeline = fb.from_arrays(random_rows(300, 3000, "u1")).window(40).shuffle(seed=1).batch(4)
    assert "do not overlap" in assert_same_as_host(pipeline, framework, resident="never")
