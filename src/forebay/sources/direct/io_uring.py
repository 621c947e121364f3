"""Reads by io_uring: entries are written into the kernel's ring as one NumPy array, hundreds of reads a system call.

A ring is used by the thread that made it and by no other: completions are then posted only while that thread is inside
`io_uring_enter`, so nothing is read that the kernel may be writing. Linux 6.1 has that; containers often forbid
io_uring altogether. Where it cannot be had, making a ring raises OSError, and the caller takes threads instead.
"""

import ctypes
import mmap
import os
from functools import cache
from typing import Any

import numpy as np

from forebay.core.spec import Array

__all__ = ["Ring"]

ENTRIES = 4096  # written at a time: at the end of each lot the disk has less and less to do
DEPTH = 64  # reads under way at a time, in each of a few threads: enough for the time until a thread gets its turn
DEPTH_NBYTES = 32 << 20  # and no more than this: with many more in all, disks get slower
REFILLS = 4  # times that all under way are waited for in parts: each wait costs some Python

_SETUP, _ENTER = 425, 426  # the same on every processor
_SINGLE_ISSUER, _DEFER_TASKRUN = 1 << 12, 1 << 13
_GET_EVENTS = 1
_OP_READ = 22
_ENTRIES_AT = 0x10000000  # where the entries are mapped from; the rings themselves are at 0
_PARAMETERS = np.dtype([("head", "u4", 10), ("submission", "u4", 10), ("completion", "u4", 10)])
_ENTRY = np.dtype(
    {
        "names": ["operation", "file", "offset", "address", "nbytes", "number"],
        "formats": ["u1", "i4", "u8", "u8", "u4", "u8"],
        "offsets": [0, 4, 8, 16, 24, 32],
        "itemsize": 64,
    }
)
_COMPLETION = np.dtype([("number", "u8"), ("result", "i4"), ("flags", "u4")])
_HEAD, _TAIL = 0, 1
_ARRAY, _COMPLETIONS = 6, 5  # where, among a ring's offsets, its table of entries and of completions is told

_WORD = 0xFFFFFFFF


class Ring:
    """One thread's reads. `read` comes back when none of them is under way any more, whatever happens."""

    def __init__(self) -> None:
        parameters = np.zeros(1, _PARAMETERS)
        parameters["head"][0, 2] = _SINGLE_ISSUER | _DEFER_TASKRUN
        self._ring = _call(_SETUP, ENTRIES, parameters.ctypes.data)
        try:
            self._map(parameters[0])
        except BaseException:
            self.close()
            raise

    def _map(self, parameters: Any) -> None:
        of_entries, of_completions = parameters["submission"].tolist(), parameters["completion"].tolist()
        entries, completions = int(parameters["head"][0]), int(parameters["head"][1])
        nbytes = max(of_entries[_ARRAY] + 4 * entries, of_completions[_COMPLETIONS] + 16 * completions)
        shared = mmap.mmap(self._ring, nbytes, mmap.MAP_SHARED)
        words = np.frombuffer(shared, np.uint32, nbytes // 4)
        words[of_entries[_ARRAY] // 4 :][:entries] = np.arange(entries)  # the n-th place of the ring has the n-th entry
        self._head, self._tail = (words[of_entries[which] // 4 :][:1] for which in (_HEAD, _TAIL))
        self._done_head, self._done_tail = (words[of_completions[which] // 4 :][:1] for which in (_HEAD, _TAIL))
        self._completions = np.frombuffer(shared, _COMPLETION, completions, of_completions[_COMPLETIONS])
        table = mmap.mmap(self._ring, entries * _ENTRY.itemsize, mmap.MAP_SHARED, offset=_ENTRIES_AT)
        self._entries = np.frombuffer(table, _ENTRY)

    def read(self, files: Array, offsets: Array, nbytes: Array, memory: Array, places: Array) -> Array:
        """Read each piece to its place in the memory; how many bytes each gave, or below zero what error it met."""
        if len(places) and (places.min() < 0 or (places + nbytes).max() > memory.nbytes):
            raise ValueError("a read would end outside its memory, where the kernel would write all the same.")
        results = np.zeros(len(offsets), np.int64)
        addresses = places + memory.ctypes.data
        for start in range(0, len(offsets), ENTRIES):
            some = slice(start, start + ENTRIES)
            self._write(files[some], offsets[some], nbytes[some], addresses[some])
            self._run(len(results[some]), _depth(nbytes[some]))
            self._collect(results[some])
        return results

    def _write(self, files: Array, offsets: Array, nbytes: Array, addresses: Array) -> None:
        """Put an entry a read into the ring; the kernel takes them from there as it is told to."""
        tail = int(self._tail[0])
        entries = np.zeros(len(files), _ENTRY)
        entries["operation"], entries["number"] = _OP_READ, np.arange(len(files))
        entries["file"], entries["offset"] = files, offsets
        entries["nbytes"], entries["address"] = nbytes, addresses
        self._entries[np.arange(tail, tail + len(files)) % len(self._entries)] = entries
        self._tail[0] = (tail + len(files)) & _WORD

    def _run(self, count: int, depth: int) -> None:
        """Let the kernel read so many entries, some at a time, until all are done."""
        sent = done = 0
        refill = max(1, depth // REFILLS)
        try:
            while done < count:
                fresh = min(count, done + depth) - sent
                # The kernel counts all completions that were not collected yet, the old ones too.
                sent += self._enter(fresh, min(sent + fresh, done + refill))
                done = self._done()
        finally:
            if done < count:  # interrupted: nothing of the caller's may be written to once he has it back
                self._abandon(count)

    def _enter(self, fresh: int, wanted: int) -> int:
        """Hand entries over and wait for completions; how many were taken."""
        try:
            return _call(_ENTER, self._ring, fresh, wanted, _GET_EVENTS, 0, 0)
        except InterruptedError:
            return 0

    def _done(self) -> int:
        """Completions that wait to be collected."""
        return (int(self._done_tail[0]) - int(self._done_head[0])) & _WORD

    def _collect(self, results: Array) -> None:
        head = int(self._done_head[0])
        done = self._completions[np.arange(head, head + len(results)) % len(self._completions)]
        results[done["number"].astype(np.intp)] = done["result"]
        self._done_head[0] = (head + len(results)) & _WORD

    def _abandon(self, count: int) -> None:
        """Take back what the kernel has not taken, wait for what it has, and forget it all."""
        unsent = (int(self._tail[0]) - int(self._head[0])) & _WORD  # by its own account: ours may be a call behind
        self._tail[0] = self._head[0]
        while self._done() < count - unsent:
            self._enter(0, count - unsent)
        self._done_head[0] = self._done_tail[0]

    def close(self) -> None:
        """Give the ring back; nothing is under way in it between two reads."""
        if self._ring >= 0:
            os.close(self._ring)
            self._ring = -1

    def __del__(self) -> None:
        if hasattr(self, "_ring"):
            self.close()


def _depth(nbytes: Array) -> int:
    """How many reads of such lengths are under way at a time."""
    return max(1, min(DEPTH, DEPTH_NBYTES * len(nbytes) // max(1, int(nbytes.sum()))))


def _call(number: int, *arguments: int) -> int:
    given = [ctypes.c_long(argument) for argument in arguments]
    result: int = _libc().syscall(ctypes.c_long(number), *given)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"io_uring: {os.strerror(code)}")
    return result


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
