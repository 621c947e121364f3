"""The page cache: how much of a file it holds, how to fill it, and how to drop a file from it."""

import ctypes
import logging
import mmap
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from forebay.core.machine import Machine

__all__ = ["PageCacheWarmer", "available_nbytes", "cached_share", "drop_cached_pages", "uncached_nbytes"]

_ADVISE_NBYTES = 8 << 20  # bytes per request to the kernel; `close` waits for at most one request
_POLL_SECONDS = 0.05  # between two queries of the page cache; the kernel reads requested bytes in the background
_STALLED_POLLS = 100  # after this number of polls without a new page, the kernel has probably no memory for the file
_WARM_SHARE = 0.95  # of a file's pages; a file with this share in memory counts as cached
_DROPPED_SHARE = 0.05  # of a file's pages; with more pages in memory, a read would measure memory instead of the disk
_SAMPLES = 64  # approximate number of samples of a file; files of up to 64 MiB are examined completely
_SAMPLE_NBYTES = 1 << 20  # bytes of one sample

_log = logging.getLogger(__name__)


class PageCacheWarmer:
    """A thread that lets the kernel read files sequentially into the page cache.

    Sequential reads are many times faster than the page faults of a mapped file, which read page by page.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.is_warm = False  # True once each file has at least `_WARM_SHARE` of its pages in memory

    def start(self) -> None:
        """Start the thread, unless it was started or stopped before."""
        with self._lock:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._run, name="forebay-page-cache", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Tell the thread to end, without waiting for it."""
        self._stopped.set()

    def close(self) -> None:
        """End the thread and wait for it."""
        self.stop()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            for path in self._paths:
                self._request(path)
            self.is_warm = all(self._wait_until_cached(path) for path in self._paths)
        except OSError as error:  # warming is optional; the reader raises the error when it needs the file
            _log.info("could not read %s into the page cache: %s", error.filename, error)

    def _request(self, path: Path) -> None:
        """Tell the kernel to read a file into the page cache."""
        with path.open("rb", buffering=0) as file:
            for start in range(0, os.fstat(file.fileno()).st_size, _ADVISE_NBYTES):
                if self._stopped.is_set():
                    return
                os.posix_fadvise(file.fileno(), start, _ADVISE_NBYTES, os.POSIX_FADV_WILLNEED)

    def _wait_until_cached(self, path: Path) -> bool:
        """Wait while the kernel reads a file, and return whether the page cache holds it."""
        with path.open("rb", buffering=0) as file:
            share, polls = cached_share(file.fileno()), 0
            while share < _WARM_SHARE and polls < _STALLED_POLLS and not self._stopped.wait(_POLL_SECONDS):
                previous, share = share, cached_share(file.fileno())
                polls = 0 if share > previous else polls + 1
        return share >= _WARM_SHARE and not self._stopped.is_set()


def uncached_nbytes(path: Path) -> int:
    """Return an estimate of the bytes of a file that are only on disk.

    The holes of a sparse file count as cached, because they are not on disk.
    """
    file = os.open(path, os.O_RDONLY)
    try:
        status = os.fstat(file)
        on_disk = min(status.st_size, status.st_blocks * 512)
        return round(on_disk * (1 - cached_share(file))) if on_disk else 0
    finally:
        os.close(file)


def cached_share(file: int) -> float:
    """Return the estimated share of a file's pages that are in memory.

    The share is between 0.0 and 1.0. It is 1.0 for an empty file, and if the kernel does not report which pages are in
    memory.
    """
    nbytes = os.fstat(file).st_size
    step = max(_SAMPLE_NBYTES, nbytes // _SAMPLES // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY)
    shares = [_sample_share(file, start, min(_SAMPLE_NBYTES, nbytes - start)) for start in range(0, nbytes, step)]
    return float(np.mean(shares)) if shares else 1.0


def drop_cached_pages(file: int) -> bool:
    """Drop a file from the page cache, and return whether the kernel did so."""
    if not hasattr(os, "posix_fadvise"):  # macOS does not have it
        return False
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return cached_share(file) <= _DROPPED_SHARE


def available_nbytes() -> int:
    """Return the bytes of memory available without swapping; 0 if unknown.

    The result never exceeds the memory limit of the container.
    """
    try:
        text = Path("/proc/meminfo").read_text()
    except OSError:
        return 0
    kibibytes = [int(line.split()[1]) for line in text.splitlines() if line.startswith("MemAvailable:")]
    return min(kibibytes[0] * 1024, Machine.detect().memory_nbytes) if kibibytes else 0


def _sample_share(file: int, start: int, nbytes: int) -> float:
    """Return the share of pages in memory for one part of a file."""
    with mmap.mmap(file, nbytes, access=mmap.ACCESS_READ, offset=start) as mapped:
        pages = np.zeros(-(-nbytes // mmap.PAGESIZE), np.uint8)
        view = np.frombuffer(mapped, np.uint8)
        address = ctypes.c_void_p(view.ctypes.data)
        del view  # a mapping with a view cannot be closed
        failed = ctypes.CDLL(None).mincore(address, ctypes.c_size_t(nbytes), ctypes.c_void_p(pages.ctypes.data))
    return 1.0 if failed else float((pages & 1).mean())  # mincore sets bit 0 for a page in memory
