"""Read speed of the disk: an unnamed temporary file, read with and without the page cache.

An unnamed file needs no clean-up. It disappears when the process ends, for any reason.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from forebay.core.ceilings import DiskCeilings
from forebay.core.spec import Array
from forebay.measure.probe.timing import SLOT_NBYTES, measure_median
from forebay.sources.direct.page_cache import cached_share

__all__ = ["filesystem_of", "measure_disk"]

FILE_NBYTES = 256 << 20
WRITE_SECONDS = 2.0
READ_SECONDS = 1.0  # limit of one pass over the file; a slow disk is not read to the end
PASSES_SECONDS = 1.5  # limit of all passes
FREE_SPACE_DIVISOR = 4  # the file takes at most a quarter of the free space
MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")
_MAX_CACHED_SHARE = 0.05  # of the pages; with a larger share, the page cache would be measured


def measure_disk(folders: Sequence[Path], buffer: Array) -> tuple[DiskCeilings, list[str]]:
    """Measure in the first folder that is on a disk; also return what could not be measured."""
    folder = next((folder for folder in folders if filesystem_of(folder) not in MEMORY_FILESYSTEMS), folders[0])
    with tempfile.TemporaryFile(dir=folder) as temporary:
        file = temporary.fileno()
        _write(file, min(FILE_NBYTES, shutil.disk_usage(folder).free // FREE_SPACE_DIVISOR))
        cached = measure_median(lambda: _read(file, buffer))
        uncached = _measure_uncached(file, buffer)
    ceilings = DiskCeilings(str(folder), filesystem_of(folder), uncached, cached)
    return ceilings, [] if uncached else [_why_not_uncached(ceilings)]


def filesystem_of(folder: Path) -> str:
    """Return the file system type from the list of mounts, or an empty string without such a list."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return ""
    real = folder.resolve()
    parents = [
        (len(point), order, kind) for order, (_, point, kind, *_) in enumerate(mounts) if real.is_relative_to(point)
    ]
    return max(parents)[2] if parents else ""


def _write(file: int, nbytes: int) -> None:
    """Write and flush block by block: the page cache cannot drop pages that are not on the disk yet."""
    block = np.random.default_rng(0).bytes(SLOT_NBYTES)  # random, so that no file system can compress it
    written, deadline = 0, time.perf_counter() + WRITE_SECONDS
    while written == 0 or (written + len(block) <= nbytes and time.perf_counter() < deadline):
        written += os.write(file, block)
        os.fsync(file)


def _measure_uncached(file: int, buffer: Array) -> float | None:
    if not _drop_from_page_cache(file):
        return None

    def sample() -> float:
        _drop_from_page_cache(file)
        return _read(file, buffer)

    return measure_median(sample, seconds=PASSES_SECONDS, warm_up=False)


def _drop_from_page_cache(file: int) -> bool:
    """Drop the file from the page cache, and return whether that succeeded."""
    if not hasattr(os, "posix_fadvise"):
        return False
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return cached_share(file) < _MAX_CACHED_SHARE


def _read(file: int, buffer: Array) -> float:
    """Read sequentially until the end of the file or of the time, and return bytes per second."""
    block, total = buffer[:SLOT_NBYTES].data, 0
    start = time.perf_counter()
    while time.perf_counter() - start < READ_SECONDS and (read := os.preadv(file, [block], total)):
        total += read
    return total / (time.perf_counter() - start)


def _why_not_uncached(ceilings: DiskCeilings) -> str:
    if ceilings.filesystem in MEMORY_FILESYSTEMS:
        return f"disk: {ceilings.folder} is in memory. Set TMPDIR to a folder on a disk."
    return f"disk: the page cache keeps the files of {ceilings.folder}, so only the page cache was measured."
