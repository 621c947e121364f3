"""Threads that read: each by a ring of its own, or by plain positioned reads where io_uring cannot be had."""

import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait

import numpy as np

from forebay.reading.files import OpenFiles
from forebay.reading.reader import StoppedReadingError
from forebay.reading.reads import Read, read_all, read_one_by_one
from forebay.reading.runs import Requests
from forebay.reading.uring import Ring
from forebay.spec import Array

__all__ = ["STOPPED", "PlainThreads", "RingThreads", "await_reads"]

STOPPED = "reading was stopped: the feed was closed or iterated anew."

RINGS = 8  # while some wait for the last of their reads, or for their turn to run, the others keep the disk busy
PLAIN_THREADS = 16  # each waits for one read at a time; from here on the interpreter's lock is the limit

_rings = threading.local()


def await_reads(reads: "Iterable[Future[None]]") -> None:
    """Wait for all, even when one has failed: memory that is still written to is nobody else's."""
    ended = wait(list(reads)).done
    if any(read.cancelled() for read in ended):
        raise StoppedReadingError(STOPPED)
    for read in ended:
        read.result()


class RingThreads:
    """A few threads, each of which reads many requests at once."""

    share_nbytes = 16 << 20  # given to a thread at a time: enough to keep the disk busy, little enough to be waited for

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(RINGS, thread_name_prefix="forebay-reader")

    def start(self, files: OpenFiles, requests: Requests, memory: Array) -> "list[Future[None]]":
        """Begin to read, in other threads."""
        shares = _shares(requests, self.share_nbytes)
        return [self._pool.submit(_read_by_ring, files, share, memory) for share in shares]

    def close(self) -> None:
        """End the threads; what they are reading is read to its end, into memory they keep alive."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class PlainThreads:
    """Many threads, each of which reads one request after the other."""

    share_nbytes = 1 << 20

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(PLAIN_THREADS, thread_name_prefix="forebay-reader")

    def start(self, files: OpenFiles, requests: Requests, memory: Array) -> "list[Future[None]]":
        """Begin to read, in other threads."""
        shares = _shares(requests, self.share_nbytes)
        return [self._pool.submit(read_all, read_one_by_one, files, share, memory) for share in shares]

    def close(self) -> None:
        """End the threads; what they are reading is read to its end, into memory they keep alive."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _shares(requests: Requests, nbytes: int) -> list[Requests]:
    """Requests, cut where another so many bytes are full."""
    numbers = (np.cumsum(requests.nbytes) - 1) // nbytes
    seams = np.flatnonzero(np.diff(numbers)) + 1
    return [requests.only(which) for which in np.split(np.arange(len(numbers)), seams)]


def _read_by_ring(files: OpenFiles, requests: Requests, memory: Array) -> None:
    read_all(_ring_of_thread(), files, requests, memory)


def _ring_of_thread() -> Read:
    """This thread's own ring, made when it first reads; it goes with the thread."""
    if not hasattr(_rings, "ring"):
        _rings.ring = Ring()
    read: Read = _rings.ring.read
    return read
