"""Requests carried out to the last byte: short reads are gone on with, and what cannot be read is an error by name."""

import errno
import os
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from forebay.errors import SourceError
from forebay.reading.files import OpenFiles
from forebay.reading.runs import Requests
from forebay.reading.space import Space
from forebay.sources.mapped import changed
from forebay.spec import Array

__all__ = ["Read", "read_all", "read_one_by_one"]

# Files, offsets, lengths, memory and places in it -> how many bytes each read gave, or below zero what error it met.
# All of them have ended when it returns or raises.
Read: TypeAlias = Callable[[Array, Array, Array, Array, Array], Array]

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
