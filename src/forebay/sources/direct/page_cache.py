"""Files brought into the page cache from front to back, by a thread of its own.

A disk reads a file in order many times faster than page by page, as a mapping would have it read.
"""

import ctypes
import logging
import mmap
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from forebay.core.machine import Machine

__all__ = ["Warmer", "available_nbytes", "cached_share", "uncached_nbytes"]

_STEP_NBYTES = 8 << 20  # asked for at a time: closing waits for no more than this
_WARM_SHARE = 0.95

_log = logging.getLogger(__name__)


class Warmer:
    """Asks the kernel for all of the files, once it is started; `warm` says whether they have all been kept."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.warm = False

    def start(self) -> None:
        """Begin, if nobody has yet."""
        with self._lock:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._run, name="forebay-warming", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def close(self) -> None:
        """End the thread."""
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            shares = [self._warm(path) for path in self._paths]
        except OSError as error:  # rows go on to be read as before, and whatever is wrong with the file shows there
            _log.info("could not bring %s into the page cache: %s", error.filename, error)
            return
        self.warm = not self._stopped.is_set() and min(shares) >= _WARM_SHARE

    def _warm(self, path: Path) -> float:
        """Read one file ahead; the share of it that is in memory then."""
        file = os.open(path, os.O_RDONLY)
        try:
            for start in range(0, os.fstat(file).st_size, _STEP_NBYTES):
                if self._stopped.is_set():
                    break
                os.posix_fadvise(file, start, _STEP_NBYTES, os.POSIX_FADV_WILLNEED)
            return cached_share(file)
        finally:
            os.close(file)


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
