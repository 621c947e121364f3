"""Threads that read: each by a ring of its own, or by plain positioned reads where io_uring cannot be had."""

import errno
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeAlias

import numpy as np

from forebay.core.spec import Array
from forebay.errors import SourceError
from forebay.sources.direct.address_space import Space
from forebay.sources.direct.io_uring import Ring
from forebay.sources.direct.open_files import OpenFiles
from forebay.sources.direct.read_ranges import Requests
from forebay.sources.direct.reader import StoppedReadingError
from forebay.sources.files.mapped import changed

__all__ = ["STOPPED", "PlainThreads", "Read", "RingThreads", "await_reads", "read_all", "read_one_by_one"]

Read: TypeAlias = Callable[[Array, Array, Array, Array, Array], Array]

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


# Files, offsets, lengths, memory and places in it -> how many bytes each read gave, or below zero what error it met.
# All of them have ended when it returns or raises.

_AGAIN = (-errno.EINTR, -errno.EAGAIN)
_MOST_TRIES = 64  # of a read that gives nothing, or a little, each time


def read_all(read: Read, files: OpenFiles, requests: Requests, memory: Array) -> None:
    """Read everything that is asked for and that the files had when they were opened."""
    for _ in range(_MOST_TRIES):
        numbers, offsets = Space.files(requests.starts), Space.offsets(requests.starts)
        results = read(files.numbers[numbers], offsets, requests.nbytes, memory, requests.places)
        # What was widened for alignment may reach beyond the end of its file.
        wanted = np.minimum(requests.nbytes, files.nbytes[numbers] - offsets)
        if (results >= wanted).all():
            return
        left = np.flatnonzero(results < wanted)
        _check(files, requests, results, left)
        # Direct reads go on from where they may begin.
        done = np.maximum(results, 0) // files.alignment * files.alignment
        requests = requests.after(done).only(left)
    raise SourceError(
        f"{files.path(int(numbers[0]))} gave no more than {int(results[0])} bytes at byte {int(offsets[0])}, "
        f"asked {_MOST_TRIES} times. Read it with another program to see whether it is damaged."
    )


def read_one_by_one(files: Array, offsets: Array, nbytes: Array, memory: Array, places: Array) -> Array:
    """The plain way, in this thread: one positioned read after the other."""
    view = memory.data
    results = np.zeros(len(offsets), np.int64)
    for number, (file, offset, length, place) in enumerate(zip(files, offsets, nbytes, places, strict=True)):
        try:
            results[number] = os.preadv(int(file), [view[place : place + length]], int(offset))
        except OSError as error:
            results[number] = -(error.errno or errno.EIO)
    return results


def _check(files: OpenFiles, requests: Requests, results: Array, left: Array) -> None:
    """Refuse to go on where it would be in vain: an error, or an end of the file that was not there before."""
    for number in left.tolist():
        result, start = int(results[number]), requests.starts[number]
        file, offset = int(Space.files(start)), int(Space.offsets(start))
        if result < 0 and result not in _AGAIN:
            raise SourceError(
                f"could not read {int(requests.nbytes[number])} bytes at byte {offset} of {files.path(file)}: "
                f"{os.strerror(-result)}."
            ) from OSError(-result, os.strerror(-result))
        found = files.found_nbytes(file)
        if found < files.nbytes[file]:
            raise changed(files.path(file), int(files.nbytes[file]), found)
