"""A large file for the disk cases, and how the page cache is made to forget it."""

import os
import shutil
import time
from pathlib import Path

import numpy as np

from forebay.measure.bench.model import Skip, Work
from forebay.sources.direct.page_cache import cached_share

__all__ = ["cached_nbytes", "check_there", "forget", "write_large"]

_PIECE_NBYTES = 64 << 20
_STILL_CACHED = 0.05  # of the file: with more of it in memory, it is not the disk that is measured
_LEFT_FREE = 2  # times the file
_TRIES, _PAUSE_SECONDS = 10, 0.1


def write_large(work: Work, path: Path) -> None:
    """Write random rows piece by piece and onto the disk; nothing where it would fill the disk up."""
    row_nbytes = np.dtype(work.dtype).itemsize * int(np.prod(work.shape, dtype=np.int64))
    if shutil.disk_usage(path.parent).free < _LEFT_FREE * work.rows * row_nbytes:
        return
    header = {"descr": np.dtype(work.dtype).str, "fortran_order": False, "shape": (work.rows, *work.shape)}
    piece = np.random.default_rng(0).bytes(_PIECE_NBYTES)  # nothing for a file system to compress
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        left = work.rows * row_nbytes
        while left:
            left -= file.write(memoryview(piece)[:left])
            os.fsync(file.fileno())  # what is not on the disk yet, the page cache cannot forget


def check_there(work: Work) -> Path:
    """The file, if there was room for it."""
    path = Path(work.path)
    if not path.exists():
        raise Skip(f"the disk of {path.parent} has no room for the file: set TMPDIR to a larger one")
    return path


def forget(path: Path) -> None:
    """Let the page cache forget the file, or say that it does not."""
    file = os.open(path, os.O_RDONLY)
    try:
        if not any(_forgotten(file) for _ in range(_TRIES)):
            raise Skip(f"the page cache keeps {path.parent}: it is in memory. Set TMPDIR to a folder on a disk")
    finally:
        os.close(file)


def _forgotten(file: int) -> bool:
    """Ask once; pages that somebody is busy with stay for a moment."""
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    if cached_share(file) <= _STILL_CACHED:
        return True
    time.sleep(_PAUSE_SECONDS)
    return False


def cached_nbytes(path: Path) -> float:
    """How much of the file is in the page cache."""
    file = os.open(path, os.O_RDONLY)
    try:
        return cached_share(file) * path.stat().st_size
    finally:
        os.close(file)
