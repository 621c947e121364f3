"""What the disk gives: a temporary file without a name, read with and without the page cache.

A file without a name needs no tidying up: it is gone with the process, however that ends.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from forebay.core.ceilings import DiskFigures
from forebay.core.spec import Array
from forebay.measure.probe.timing import SLOT_NBYTES, median
from forebay.sources.direct.page_cache import cached_share

__all__ = ["filesystem_of", "measure_disk"]

FILE_NBYTES = 256 << 20
WRITE_SECONDS = 2.0
READ_SECONDS = 1.0  # of one pass; a slow disk is not read to the end
PASSES_SECONDS = 1.5
FREE_SHARE = 4  # a file no larger than this part of what is free
IN_MEMORY = ("tmpfs", "ramfs")
_STILL_CACHED = 0.05  # of the pages: more of them, and it is the cache that would be measured


def measure_disk(folders: Sequence[Path], buffer: Array) -> tuple[DiskFigures, list[str]]:
    """In the first folder that is on a disk; and what could not be measured."""
    folder = next((folder for folder in folders if filesystem_of(folder) not in IN_MEMORY), folders[0])
    with tempfile.TemporaryFile(dir=folder) as temporary:
        file = temporary.fileno()
        _write(file, min(FILE_NBYTES, shutil.disk_usage(folder).free // FREE_SHARE))
        cached = median(lambda: _read(file, buffer))
        uncached = _from_disk(file, buffer)
    figures = DiskFigures(str(folder), filesystem_of(folder), uncached, cached)
    return figures, [] if uncached else [_why_not_the_disk(figures)]


def filesystem_of(folder: Path) -> str:
    """Its kind, as the list of mounts tells it; empty where there is no such list."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return ""
    real = folder.resolve()
    above = [
        (len(point), order, kind) for order, (_, point, kind, *_) in enumerate(mounts) if real.is_relative_to(point)
    ]
    return max(above)[2] if above else ""


def _write(file: int, nbytes: int) -> None:
    """Onto the disk, piece by piece: what has not been written there yet stays in the page cache."""
    piece = np.random.default_rng(0).bytes(SLOT_NBYTES)  # nothing for a filesystem to compress
    written, deadline = 0, time.perf_counter() + WRITE_SECONDS
    while written == 0 or (written + len(piece) <= nbytes and time.perf_counter() < deadline):
        written += os.write(file, piece)
        os.fsync(file)


def _from_disk(file: int, buffer: Array) -> float | None:
    if not _drop(file):
        return None

    def sample() -> float:
        _drop(file)
        return _read(file, buffer)

    return median(sample, seconds=PASSES_SECONDS, warm_up=False)


def _drop(file: int) -> bool:
    """Let the page cache forget the file; whether it did."""
    if not hasattr(os, "posix_fadvise"):
        return False
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    return cached_share(file) < _STILL_CACHED


def _read(file: int, buffer: Array) -> float:
    """Bytes a second from the front on, to the end or until the time is up."""
    piece, total = buffer[:SLOT_NBYTES].data, 0
    began = time.perf_counter()
    while time.perf_counter() - began < READ_SECONDS and (read := os.preadv(file, [piece], total)):
        total += read
    return total / (time.perf_counter() - began)


def _why_not_the_disk(figures: DiskFigures) -> str:
    if figures.filesystem in IN_MEMORY:
        return f"disk: {figures.folder} is in memory. Set TMPDIR to a folder on the disk."
    return f"disk: the page cache of {figures.folder} could not be emptied, so only reads from it were measured."
