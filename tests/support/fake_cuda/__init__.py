"""A fake CUDA driver. Its device memory is memory of this process. It runs queued work at one of three paces.

    late    only when code waits for the work
    early   work of the engine's streams as soon as possible, work of the consumer only when code waits for it
    any     random work of any stream whenever work is queued

It refuses what the real driver refuses: calls without a context, a second page-lock, copies from memory that is not
page-locked or across two page-locks, use of a stream that captures a graph, and writes to freed memory.
"""

from tests.support.fake_cuda.context import clear_order_caches, fake_cuda, fake_gpus, feed_threads, wait_until_located
from tests.support.fake_cuda.frameworks import ImportSyncFramework, MarkerFramework, StreamFramework
from tests.support.fake_cuda.gpu import FIRST_CONSUMER_STREAM, PACES
from tests.support.fake_cuda.kernels import KERNELS

__all__ = [
    "FIRST_CONSUMER_STREAM",
    "KERNELS",
    "PACES",
    "ImportSyncFramework",
    "MarkerFramework",
    "StreamFramework",
    "clear_order_caches",
    "fake_cuda",
    "fake_gpus",
    "feed_threads",
    "wait_until_located",
]
