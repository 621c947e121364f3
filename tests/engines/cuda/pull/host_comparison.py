"""Feeds on the CUDA engine, and comparisons of their batches with host batches."""

from itertools import islice

import numpy as np
from tests.support.fake_cuda import ImportSyncFramework, MarkerFramework, StreamFramework, wait_until_located

from forebay.engines.cuda.engine import CudaEngine

KINDS = [StreamFramework, MarkerFramework, ImportSyncFramework]
RNG = np.random.default_rng(0)


def feed_of(pipeline, framework, **options):
    return pipeline.feed("numpy", device=CudaEngine(framework), **options)


def host_batches(pipeline, epochs=1):
    return [host_epoch(pipeline, number) for number in range(epochs)]


def host_epoch(pipeline, number):
    with pipeline.feed("numpy", device="cpu") as feed:
        feed.set_epoch(number)
        return [{name: leaf.copy() for name, leaf in as_dict(batch).items()} for batch in feed]


def as_dict(batch):
    return batch if isinstance(batch, dict) else {"": batch}


def read_all(framework, batches):
    return [{name: framework.read(leaf) for name, leaf in as_dict(batch).items()} for batch in batches]


def assert_same(actual, expected):
    assert len(actual) == len(expected) > 0
    for one, other in zip(actual, expected, strict=True):
        assert one.keys() == other.keys()
        assert all(one[name].tobytes() == other[name].tobytes() for name in other)
        assert all(one[name].dtype == other[name].dtype and one[name].shape == other[name].shape for name in other)


def assert_same_as_host(pipeline, framework, *, epochs=3, **options):
    """Compare all batches: the first batches are staged, and later batches are pulled. Return `explain()`."""
    expected = host_batches(pipeline, epochs)
    with feed_of(pipeline, framework, **options) as feed:
        assert feed.plan.transport is not None
        for batches in expected:
            epoch = iter(feed)
            actual = read_all(framework, islice(epoch, 1))
            wait_until_located()
            assert_same(actual + read_all(framework, epoch), batches)
        return feed.explain()


def random_rows(rows, length, dtype, *, apart=0, offset=0):
    """Make random rows, with `apart` bytes after each row and `offset` bytes before the first."""
    row_nbytes = length * np.dtype(dtype).itemsize
    stride = row_nbytes + apart
    raw = RNG.integers(0, 2 if dtype == "?" else 120, rows * stride + offset, dtype=np.uint8)
    return np.ndarray((rows, length), dtype, buffer=raw, offset=offset, strides=(stride, np.dtype(dtype).itemsize))


def aligned_rows(rows, row_nbytes):
    raw = random_rows(rows + 1, row_nbytes, "u1").reshape(-1)
    start = -raw.ctypes.data % 16
    return raw[start : start + rows * row_nbytes].reshape(rows, row_nbytes)
