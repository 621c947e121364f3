"""What of a file is in the page cache, by the kernel's own account, and how much memory it could have."""

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np

from forebay.machine import Machine

__all__ = ["available_nbytes", "cached_share", "uncached_nbytes"]

_STRETCHES = 64  # of a large file only so many are looked at
_STRETCH_NBYTES = 1 << 20


def uncached_nbytes(path: Path) -> int:
    """About how many bytes of a file a disk would have to be asked for; holes in it are nowhere and cost nothing."""
    file = os.open(path, os.O_RDONLY)
    try:
        status = os.fstat(file)
        on_disk = min(status.st_size, status.st_blocks * 512)
        return round(on_disk * (1 - cached_share(file))) if on_disk else 0
    finally:
        os.close(file)


def cached_share(file: int) -> float:
    """The share of a file's pages that are in memory; all of them where nobody can tell."""
    nbytes = os.fstat(file).st_size
    step = max(_STRETCH_NBYTES, nbytes // _STRETCHES // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY)
    shares = [_stretch_share(file, start, min(_STRETCH_NBYTES, nbytes - start)) for start in range(0, nbytes, step)]
    return float(np.mean(shares)) if shares else 1.0


def available_nbytes() -> int:
    """Memory that could be had without anybody having to give up what it uses; no more than a container may have."""
    try:
        told = Path("/proc/meminfo").read_text()
    except OSError:
        return 0
    found = [int(line.split()[1]) for line in told.splitlines() if line.startswith("MemAvailable:")]
    return min(found[0] * 1024, Machine.here().memory_nbytes) if found else 0


def _stretch_share(file: int, start: int, nbytes: int) -> float:
    with mmap.mmap(file, nbytes, access=mmap.ACCESS_READ, offset=start) as mapped:
        pages = np.zeros(-(-nbytes // mmap.PAGESIZE), np.uint8)
        view = np.frombuffer(mapped, np.uint8)
        address = ctypes.c_void_p(view.ctypes.data)
        del view  # a mapping that is still looked at cannot be closed
        refused = ctypes.CDLL(None).mincore(address, ctypes.c_size_t(nbytes), ctypes.c_void_p(pages.ctypes.data))
    return 1.0 if refused else float((pages & 1).mean())
