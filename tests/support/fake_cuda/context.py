"""The context manager that replaces the driver of the CUDA engine, and helpers for tests inside it."""

import gc
import threading
import time
from contextlib import contextmanager

import pytest
from tests.support.fake_cuda.driver import (
    BatchCopy,
    Device,
    Event,
    SingleCopies,
    Stream,
    is_capturing,
    make_stream_wait,
)
from tests.support.fake_cuda.frameworks import MarkerFramework, StreamFramework
from tests.support.fake_cuda.gpu import FakeGpu

from forebay.engines.cuda import engine, memory, row_mover
from forebay.engines.cuda.decode import device_decoder
from forebay.engines.cuda.page_locks import PageLocks
from forebay.engines.cuda.pull import resident, row_locations, row_puller, staged_rows
from forebay.order import block_shuffle, permutation
from forebay.pipeline import transport

__all__ = ["clear_order_caches", "fake_cuda", "fake_gpus", "feed_threads", "wait_until_located"]

_THREADS_BEFORE = []  # threads that other tests left running


@contextmanager
def fake_cuda(
    *,
    kind=StreamFramework,
    pace="late",
    seed=0,
    is_single_call=True,
    available=1 << 28,
    capability=(9, 0),
    min_dma_cores=1,
):
    """Yield a framework whose engine uses the fake driver. At the end, no memory and no page-lock may be left.

    All size limits are small, so that small data takes every path.
    """
    with fake_gpus(
        1,
        kind=kind,
        pace=pace,
        seed=seed,
        is_single_call=is_single_call,
        available=available,
        capability=capability,
        min_dma_cores=min_dma_cores,
    ) as (framework,):
        yield framework


@contextmanager
def fake_gpus(
    count,
    *,
    kind=StreamFramework,
    pace="late",
    seed=0,
    is_single_call=True,
    available=1 << 28,
    capability=(9, 0),
    min_dma_cores=1,
):
    """Yield the framework of each of several devices. All devices share the page-locks of the process."""
    gpus = [FakeGpu(pace, seed, capability)]
    gpus += [FakeGpu(pace, seed + number, capability, gpus[0].locked) for number in range(1, count)]
    devices = [Device(gpu, index) for index, gpu in enumerate(gpus)]
    locks = PageLocks(devices[0])
    _THREADS_BEFORE[:] = threading.enumerate()
    with pytest.MonkeyPatch.context() as patch:
        for module in (engine, memory, staged_rows, device_decoder):
            patch.setattr(module, "Event", Event)
        patch.setattr(engine, "Stream", Stream)
        patch.setattr(engine, "device_at", devices.__getitem__)
        patch.setattr(row_locations, "process_page_locks", lambda device: locks)
        patch.setattr(engine, "is_capturing", is_capturing)
        patch.setattr(memory, "make_stream_wait", make_stream_wait)
        patch.setattr(row_mover, "BatchCopy", BatchCopy if is_single_call else SingleCopies)
        # The device computes the rows of longer permutations.
        patch.setattr(permutation.Permutation, "TABLE_LENGTH", 100)
        patch.setattr(transport, "DMA_ROW_NBYTES", 1024)
        patch.setattr(transport, "MIN_DMA_CORES", min_dma_cores)
        patch.setattr(row_locations, "LOCK_STEP_NBYTES", 8192)
        patch.setattr(row_puller, "MIN_SORTED_ROWS", 16)
        patch.setattr(row_mover, "BUCKET_NBYTES", 1024)
        patch.setattr(row_mover, "MIN_BULK_ROW_NBYTES", 1024)
        patch.setattr(staged_rows, "STAGING_STEP_NBYTES", 8192)
        patch.setattr(resident, "STEP_NBYTES", 16384)
        clear_order_caches()
        frameworks = [kind(gpu, index=index, available=available) for index, gpu in enumerate(gpus)]
        yield frameworks
        for framework in frameworks:
            framework.synchronize()
    clear_order_caches()
    gc.collect()
    for gpu in gpus:
        assert gpu.faults == []
        assert gpu.locked == {}, "page-locks were left behind"
        assert len(gpu.memory) == issubclass(kind, MarkerFramework), "device memory was left behind"


def clear_order_caches():
    """Clear permutations that were computed with another TABLE_LENGTH."""
    permutation.cached_permutation.cache_clear()
    block_shuffle.cached_epoch.cache_clear()


def wait_until_located():
    """Wait until all rows are page-locked and uploaded. Call this after the first batch."""
    while any(thread.name == "forebay-lock" for thread in threading.enumerate()):
        time.sleep(0.0005)


def feed_threads():
    """Return the names of Forebay's threads that started after the last call of `fake_gpus`."""
    started = [thread for thread in threading.enumerate() if thread not in _THREADS_BEFORE]
    return [thread.name for thread in started if thread.name.startswith("forebay")]
