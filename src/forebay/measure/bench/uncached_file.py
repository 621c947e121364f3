"""The large file of the disk cases, and its removal from the page cache."""

import os
import shutil
import time
from pathlib import Path

import numpy as np

from forebay.measure.bench.model import Skip, Workload
from forebay.sources.direct.page_cache import cached_share, drop_cached_pages

__all__ = ["cached_nbytes", "drop_from_page_cache", "require_file", "write_uncached_file"]

_WRITE_NBYTES = 64 << 20  # 64 MiB, which one call writes
_FREE_SPACE_FACTOR = 2  # the disk must have this many times the size of the file as free space
_ATTEMPTS = 10  # to drop the file from the page cache
_RETRY_DELAY_SECONDS = 0.1  # wait after a failed attempt


def write_uncached_file(work: Workload, path: Path) -> None:
    """Write random rows to a file, unless the disk has too little free space."""
    row_nbytes = np.dtype(work.dtype).itemsize * int(np.prod(work.shape, dtype=np.int64))
    if shutil.disk_usage(path.parent).free < _FREE_SPACE_FACTOR * work.rows * row_nbytes:
        return
    header = {"descr": np.dtype(work.dtype).str, "fortran_order": False, "shape": (work.rows, *work.shape)}
    block = np.random.default_rng(0).bytes(_WRITE_NBYTES)  # random, so that no file system can compress it
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        remaining_nbytes = work.rows * row_nbytes
        while remaining_nbytes:
            remaining_nbytes -= file.write(memoryview(block)[:remaining_nbytes])
            os.fsync(file.fileno())  # the kernel can drop a page from the page cache only after it is on the disk


def require_file(work: Workload) -> Path:
    """Return the path of the file; raise `Skip` if it was not written."""
    path = Path(work.path)
    if not path.exists():
        raise Skip(f"the disk of {path.parent} has no space for the file. Set TMPDIR to a folder on a larger disk")
    return path


def drop_from_page_cache(path: Path) -> None:
    """Drop the file from the page cache; raise `Skip` if the kernel keeps it."""
    if not hasattr(os, "posix_fadvise"):
        raise Skip("this system cannot drop files from the page cache. Measure disks on Linux")
    file = os.open(path, os.O_RDONLY)
    try:
        if not any(_try_to_drop(file) for _ in range(_ATTEMPTS)):
            raise Skip(f"the files of {path.parent} stay in memory. Set TMPDIR to a folder on a disk")
    finally:
        os.close(file)


def _try_to_drop(file: int) -> bool:
    """Ask the kernel to drop the file, and return whether the kernel did so.

    If the kernel keeps the file, wait a little: it may drop pages in use when they are no longer in use.
    """
    if drop_cached_pages(file):
        return True
    time.sleep(_RETRY_DELAY_SECONDS)
    return False


def cached_nbytes(path: Path) -> float:
    """Return how many bytes of the file are in the page cache."""
    file = os.open(path, os.O_RDONLY)
    try:
        return cached_share(file) * path.stat().st_size
    finally:
        os.close(file)
