"""Reads with Linux io_uring: one system call starts many reads.

NumPy writes all requests to the submission queue in one assignment. Only the thread that made an `IoUring` uses it.
With the flags of this module, the kernel adds results to the completion queue only while this thread is inside
`io_uring_enter`. So Python never reads the completion queue while the kernel writes to it.

The flags need Linux 6.1, and many containers forbid io_uring. On an older kernel or in such a container, `IoUring()`
raises OSError, and the caller uses threads that call `preadv`. For shuffled rows of 4 KiB, io_uring reads 0.47 GB/s.
`preadv` threads read 0.26 GB/s and take twice the CPU time (docs/measurements.md).
"""

import ctypes
import mmap
import os
from functools import cache
from typing import Any

import numpy as np

from forebay.core.spec import Array

__all__ = ["IoUring"]

# Reads that fit in the queue. `read` waits for all of them before it fills the queue again. Meanwhile the disk idles,
# so the queue is long.
ENTRIES = 4096
DEPTH = 64  # reads in progress per thread; enough to keep the disk busy while the thread waits for a core
DEPTH_NBYTES = 32 << 20  # bytes of the reads in progress per thread; with many more, disks become slower
# New reads are submitted whenever a quarter of the depth (1 / REFILLS) has completed. With more refills, Python takes
# more time.
REFILLS = 4

# Constants of the Linux interface (include/uapi/linux/io_uring.h).
_SETUP, _ENTER = 425, 426  # system call numbers, the same on x86-64, ARM and most other processors
_SINGLE_ISSUER, _DEFER_TASKRUN = 1 << 12, 1 << 13  # flags of io_uring_setup
_GET_EVENTS = 1  # flag of io_uring_enter: wait for completions
_OP_READ = 22  # IORING_OP_READ
_ENTRIES_OFFSET = 0x10000000  # mmap offset of the submission entries; both queues are at offset 0
# struct io_uring_params: a header, then offsets into the submission and the completion queue.
_PARAMETERS = np.dtype([("header", "u4", 10), ("submission", "u4", 10), ("completion", "u4", 10)])
_SUBMISSION_ENTRIES, _COMPLETION_ENTRIES, _FLAGS = 0, 1, 2  # fields of the header
_ENTRY = np.dtype(
    {
        "names": ["operation", "file", "offset", "address", "nbytes", "number"],
        "formats": ["u1", "i4", "u8", "u8", "u4", "u8"],
        "offsets": [0, 4, 8, 16, 24, 32],
        "itemsize": 64,
    }
)
_COMPLETION = np.dtype([("number", "u8"), ("result", "i4"), ("flags", "u4")])
# Positions in the two tables of offsets, `submission` and `completion`. Both queues have a head and a tail.
_HEAD, _TAIL = 0, 1
_INDEX_ARRAY = 6  # submission queue only
_COMPLETIONS = 5  # completion queue only

_UINT32_MASK = 0xFFFFFFFF  # heads and tails of the queues wrap around at 32 bits


class IoUring:
    """The submission and completion queues of one thread.

    No read is in progress after `read` returns or raises, so the caller may then reuse the memory.
    """

    def __init__(self) -> None:
        parameters = np.zeros(1, _PARAMETERS)
        parameters["header"][0, _FLAGS] = _SINGLE_ISSUER | _DEFER_TASKRUN
        self._ring = _syscall(_SETUP, ENTRIES, parameters.ctypes.data)
        try:
            self._map_queues(parameters[0])
        except BaseException:
            self.close()
            raise

    def _map_queues(self, parameters: Any) -> None:
        """Map the queues that the kernel shares with this process, and view them as arrays."""
        submission, completion = parameters["submission"].tolist(), parameters["completion"].tolist()
        entries = int(parameters["header"][_SUBMISSION_ENTRIES])
        completions = int(parameters["header"][_COMPLETION_ENTRIES])
        nbytes = max(submission[_INDEX_ARRAY] + 4 * entries, completion[_COMPLETIONS] + 16 * completions)
        shared = mmap.mmap(self._ring, nbytes, mmap.MAP_SHARED)
        words = np.frombuffer(shared, np.uint32, nbytes // 4)
        words[submission[_INDEX_ARRAY] // 4 :][:entries] = np.arange(entries)  # position n of the queue uses entry n
        self._submission_head, self._submission_tail = (words[submission[field] // 4 :][:1] for field in (_HEAD, _TAIL))
        self._completion_head, self._completion_tail = (words[completion[field] // 4 :][:1] for field in (_HEAD, _TAIL))
        self._completions = np.frombuffer(shared, _COMPLETION, completions, completion[_COMPLETIONS])
        table = mmap.mmap(self._ring, entries * _ENTRY.itemsize, mmap.MAP_SHARED, offset=_ENTRIES_OFFSET)
        self._entries = np.frombuffer(table, _ENTRY)

    def read(self, files: Array, offsets: Array, nbytes: Array, memory: Array, memory_offsets: Array) -> Array:
        """Read `nbytes[i]` bytes at `offsets[i]` of descriptor `files[i]` to `memory_offsets[i]`.

        Return the number of bytes of each read, or its negative errno.
        """
        if len(memory_offsets) and (memory_offsets.min() < 0 or (memory_offsets + nbytes).max() > memory.nbytes):
            raise ValueError(
                f"a read begins or ends outside its memory of {memory.nbytes} bytes, so the kernel would overwrite "
                "other data. Correct the offsets."
            )
        results = np.zeros(len(offsets), np.int64)
        addresses = memory_offsets + memory.ctypes.data
        for start in range(0, len(offsets), ENTRIES):
            part = slice(start, start + ENTRIES)  # the reads that fit in the queue
            self._write_entries(files[part], offsets[part], nbytes[part], addresses[part])
            self._submit_and_wait(len(results[part]), _depth(nbytes[part]))
            self._collect_results(results[part])
        return results

    def _write_entries(self, files: Array, offsets: Array, nbytes: Array, addresses: Array) -> None:
        """Write one entry per read to the submission queue."""
        tail = int(self._submission_tail[0])
        entries = np.zeros(len(files), _ENTRY)
        entries["operation"], entries["number"] = _OP_READ, np.arange(len(files))
        entries["file"], entries["offset"] = files, offsets
        entries["nbytes"], entries["address"] = nbytes, addresses
        self._entries[np.arange(tail, tail + len(files)) % len(self._entries)] = entries
        self._submission_tail[0] = (tail + len(files)) & _UINT32_MASK

    def _submit_and_wait(self, count: int, depth: int) -> None:
        """Submit `count` entries and wait for them, with at most `depth` reads in progress."""
        submitted = completed = 0
        refill = max(1, depth // REFILLS)
        try:
            while completed < count:
                new = min(count, completed + depth) - submitted
                # The kernel compares `min_completions` with all completions in the queue, also those of earlier calls.
                submitted += self._enter(new, min(submitted + new, completed + refill))
                completed = self._count_completions()
        finally:
            if completed < count:  # after an exception, the caller may reuse the memory, so no read may go on
                self._cancel_reads(count)

    def _enter(self, new: int, min_completions: int) -> int:
        """Submit `new` entries, wait for completions, and return how many entries were accepted."""
        try:
            return _syscall(_ENTER, self._ring, new, min_completions, _GET_EVENTS, 0, 0)
        except InterruptedError:
            return 0

    def _count_completions(self) -> int:
        """Return the number of completions in the queue."""
        return (int(self._completion_tail[0]) - int(self._completion_head[0])) & _UINT32_MASK

    def _collect_results(self, results: Array) -> None:
        """Move the results of all reads from the completion queue to `results`."""
        head = int(self._completion_head[0])
        completions = self._completions[np.arange(head, head + len(results)) % len(self._completions)]
        results[completions["number"].astype(np.intp)] = completions["result"]
        self._completion_head[0] = (head + len(results)) & _UINT32_MASK

    def _cancel_reads(self, count: int) -> None:
        """Drop reads that are not submitted, wait for reads in progress, and drop all results."""
        # Use the kernel's counters: an interrupted call may have submitted entries that the caller did not count.
        unsubmitted = (int(self._submission_tail[0]) - int(self._submission_head[0])) & _UINT32_MASK
        self._submission_tail[0] = self._submission_head[0]
        while self._count_completions() < count - unsubmitted:
            self._enter(0, count - unsubmitted)
        self._completion_head[0] = self._completion_tail[0]

    def close(self) -> None:
        """Close the queues. No thread may be inside `read`."""
        if self._ring >= 0:
            os.close(self._ring)
            self._ring = -1

    def __del__(self) -> None:
        if hasattr(self, "_ring"):
            self.close()


def _depth(nbytes: Array) -> int:
    """Return how many reads of these lengths to keep in progress."""
    return max(1, min(DEPTH, DEPTH_NBYTES * len(nbytes) // max(1, int(nbytes.sum()))))


def _syscall(number: int, *arguments: int) -> int:
    result: int = _libc().syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"io_uring: {os.strerror(code)}")
    return result


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
