"""Threads that read from files, with io_uring or with positioned reads (`preadv`).

A job is a list of reads that one thread makes.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeAlias

import numpy as np

from forebay.core.spec import Array
from forebay.errors import SourceError
from forebay.sources.direct.address_space import AddressSpace
from forebay.sources.direct.io_uring import IoUring
from forebay.sources.direct.open_files import OpenFiles
from forebay.sources.direct.read_ranges import DiskReads
from forebay.sources.files.mapped import shrunk_file_error
from forebay.sources.lookahead import ReadStoppedError

__all__ = ["IoUringThreads", "PreadThreads", "ReadFunction", "pread_each", "read_fully", "wait_for_reads"]

# Parameters: file descriptors, file offsets, lengths, memory, memory offsets. Returns the byte count or the negative
# errno of each read. No read is in progress when the function returns or raises.
ReadFunction: TypeAlias = Callable[[Array, Array, Array, Array, Array], Array]

IO_URING_THREADS = 8  # while some threads wait for a core or for their last reads, other threads keep the disk busy
PREAD_THREADS = 16  # each has one read in progress; more threads only wait for the GIL

_RETRY_RESULTS = (-errno.EINTR, -errno.EAGAIN)  # results of reads that may succeed if they are repeated
_MAX_ATTEMPTS = 64  # attempts to complete a read that returns too few bytes; after them, `read_fully` raises an error

_thread_state = threading.local()


class IoUringThreads:
    """A few threads that each keep many reads in progress."""

    job_nbytes = 16 << 20  # bytes per job; large enough to keep the disk busy, small enough to end soon

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(IO_URING_THREADS, thread_name_prefix="forebay-reader")

    def start(self, files: OpenFiles, reads: DiskReads, memory: Array) -> "list[Future[None]]":
        """Start the reads in the pool; return one future for each job."""
        jobs = _split_into_jobs(reads, self.job_nbytes)
        return [self._pool.submit(_read_by_io_uring, files, job, memory) for job in jobs]

    def close(self) -> None:
        """Cancel jobs that have not begun, wait for running jobs, and end the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class PreadThreads:
    """Many threads that each make one read at a time."""

    job_nbytes = 1 << 20  # bytes per job; about one read of `READ_NBYTES`, so that all threads share the reads

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(PREAD_THREADS, thread_name_prefix="forebay-reader")

    def start(self, files: OpenFiles, reads: DiskReads, memory: Array) -> "list[Future[None]]":
        """Start the reads in the pool; return one future for each job."""
        jobs = _split_into_jobs(reads, self.job_nbytes)
        return [self._pool.submit(read_fully, pread_each, files, job, memory) for job in jobs]

    def close(self) -> None:
        """Cancel jobs that have not begun, wait for running jobs, and end the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def wait_for_reads(reads: "Iterable[Future[None]]") -> None:
    """Wait for all reads, then raise an error if a read was cancelled or failed.

    The caller reuses the buffer of the reads. So this function waits for all reads, even if one of them has failed.
    """
    ended = wait(list(reads)).done
    if any(read.cancelled() for read in ended):
        raise ReadStoppedError
    for read in ended:
        read.result()


def _split_into_jobs(reads: DiskReads, nbytes: int) -> list[DiskReads]:
    """Split reads into jobs of about `nbytes`."""
    job_numbers = (np.cumsum(reads.nbytes) - 1) // nbytes
    boundaries = np.flatnonzero(np.diff(job_numbers)) + 1
    return [reads.select(positions) for positions in np.split(np.arange(len(job_numbers)), boundaries)]


def _read_by_io_uring(files: OpenFiles, reads: DiskReads, memory: Array) -> None:
    read_fully(_io_uring_of_thread(), files, reads, memory)


def _io_uring_of_thread() -> ReadFunction:
    """Return the read function of this thread's `IoUring`.

    The first call in a thread makes the `IoUring`. It is released when the thread ends.
    """
    if not hasattr(_thread_state, "io_uring"):
        _thread_state.io_uring = IoUring()
    read: ReadFunction = _thread_state.io_uring.read
    return read


def read_fully(read: ReadFunction, files: OpenFiles, reads: DiskReads, memory: Array) -> None:
    """Read all bytes into memory. Repeat reads that return too few bytes."""
    for _ in range(_MAX_ATTEMPTS):
        numbers, offsets = AddressSpace.file_numbers(reads.starts), AddressSpace.file_offsets(reads.starts)
        results = read(files.descriptors[numbers], offsets, reads.nbytes, memory, reads.buffer_offsets)
        # An aligned read may extend past the end of its file. It then returns only the bytes up to the end.
        wanted = np.minimum(reads.nbytes, files.nbytes[numbers] - offsets)
        if (results >= wanted).all():
            files.check_unchanged(numbers)
            return
        incomplete = np.flatnonzero(results < wanted)
        _raise_if_not_retryable(files, reads, results, incomplete)
        # Direct I/O must start at an aligned offset, so read the bytes after the last aligned offset again.
        done_nbytes = np.maximum(results, 0) // files.alignment * files.alignment
        reads = reads.skip_first(done_nbytes).select(incomplete)
    short = int(incomplete[0])
    raise SourceError(
        f"could not complete the read at byte {int(offsets[short])} of {files.path(int(numbers[short]))} in "
        f"{_MAX_ATTEMPTS} attempts; the last attempt returned {max(0, int(results[short]))} bytes. Read the file with "
        "another program to see whether it is damaged."
    )


def pread_each(files: Array, offsets: Array, nbytes: Array, memory: Array, memory_offsets: Array) -> Array:
    """Make each read by one `preadv` call, and return the byte counts or negative errnos."""
    view = memory.data
    results = np.zeros(len(offsets), np.int64)
    reads = zip(files, offsets, nbytes, memory_offsets, strict=True)
    for number, (file, offset, length, start) in enumerate(reads):
        try:
            results[number] = os.preadv(int(file), [view[start : start + length]], int(offset))
        except OSError as error:
            results[number] = -(error.errno or errno.EIO)
    return results


def _raise_if_not_retryable(files: OpenFiles, reads: DiskReads, results: Array, incomplete: Array) -> None:
    """Raise an error if a retry of an incomplete read cannot help.

    This is the case if the read failed with an error that lasts, or if its file was shortened.
    """
    for number in incomplete.tolist():
        result, start = int(results[number]), reads.starts[number]
        file, offset = int(AddressSpace.file_numbers(start)), int(AddressSpace.file_offsets(start))
        if result < 0 and result not in _RETRY_RESULTS:
            raise SourceError(
                f"could not read {int(reads.nbytes[number])} bytes at byte {offset} of {files.path(file)}: "
                f"{os.strerror(-result)}. Check the disk and the connection to it."
            ) from OSError(-result, os.strerror(-result))
        current_nbytes = files.current_nbytes(file)
        if current_nbytes < files.nbytes[file]:
            raise shrunk_file_error(files.path(file), int(files.nbytes[file]), current_nbytes)
