"""Threads that read: each by a ring of its own, or by plain positioned reads where io_uring cannot be had."""

import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np

from forebay.reading.files import OpenFiles
from forebay.reading.reads import Read, read_all, read_one_by_one
from forebay.reading.runs import Requests
from forebay.reading.uring import Ring
from forebay.spec import Array

__all__ = ["PlainThreads", "RingThreads", "ring_of_thread"]

RINGS = 2  # while one waits for the last of its reads, the other's keep the disk busy
PLAIN_THREADS = 16  # each waits for one read at a time; from here on the interpreter's lock is the limit

_rings = threading.local()


def ring_of_thread() -> Read:
    """This thread's own ring, made when it first reads; it goes with the thread."""
    if not hasattr(_rings, "ring"):
        _rings.ring = Ring()
    read: Read = _rings.ring.read
    return read


class RingThreads:
    """A few threads, each of which reads many requests at once."""

    share_nbytes = 16 << 20  # given to a thread at a time: enough to keep the disk busy, little enough to be waited for

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(RINGS, thread_name_prefix="forebay-reader")

    def start(self, files: OpenFiles, requests: Requests, memory: Array) -> "Future[None]":
        """Begin to read, in another thread."""
        return self._pool.submit(lambda: read_all(ring_of_thread(), files, requests, memory))

    def close(self) -> None:
        """End the threads; what they are reading is read to its end, into memory they keep alive."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class PlainThreads:
    """Many threads, each of which reads one request after the other."""

    share_nbytes = 1 << 20

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(PLAIN_THREADS, thread_name_prefix="forebay-reader")

    def start(self, files: OpenFiles, requests: Requests, memory: Array) -> "Future[None]":
        """Begin to read, in another thread."""
        return self._pool.submit(read_all, read_one_by_one, files, requests, memory)

    def read(self, files: Array, offsets: Array, nbytes: Array, memory: Array, places: Array) -> Array:
        """Read each piece to its place in the memory, shared out among the threads; results as of any `Read`."""
        shares = np.array_split(np.arange(len(offsets)), min(PLAIN_THREADS, len(offsets)))
        parts: list[Future[Any]] = []
        try:
            for share in shares:
                asked = (files[share], offsets[share], nbytes[share], memory, places[share])
                parts.append(self._pool.submit(read_one_by_one, *asked))
            return np.concatenate([part.result() for part in parts])
        finally:
            wait(parts)  # whatever was raised: the memory is the caller's again only now

    def close(self) -> None:
        """End the threads; what they are reading is read to its end, into memory they keep alive."""
        self._pool.shutdown(wait=True, cancel_futures=True)
