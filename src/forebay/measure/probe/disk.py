"""Read speed of a temporary file on the disk, with and without the page cache.

The file has no name, so the kernel deletes it when the process ends, even if the process is killed.
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
from forebay.sources.direct.page_cache import drop_cached_pages

__all__ = ["filesystem_of", "measure_disk"]

FILE_NBYTES = 256 << 20  # 256 MiB, the largest size of the test file
# These time limits keep `forebay probe` short on a slow disk.
WRITE_SECONDS = 2.0  # no further block of the file is written after this time
READ_SECONDS = 1.0  # time limit of one pass over the file; on a slow disk, a pass stops before the end of the file
PASSES_SECONDS = 1.5  # no further pass without the page cache starts after this time
FREE_SPACE_DIVISOR = 4  # the file takes at most a quarter of the free space, but at least one block
MEMORY_FILESYSTEMS = ("tmpfs", "ramfs")


def measure_disk(folders: Sequence[Path], buffer: Array) -> tuple[DiskCeilings, list[str]]:
    """Measure the read speed of a file, in the first folder on a disk.

    If no folder is on a disk, measure the first folder. Return the ceilings, and a list of messages. The list has one
    message if the speed without the page cache could not be measured; otherwise, it is empty.
    """
    folder = next((folder for folder in folders if filesystem_of(folder) not in MEMORY_FILESYSTEMS), folders[0])
    with tempfile.TemporaryFile(dir=folder) as temporary:
        file = temporary.fileno()
        _write(file, min(FILE_NBYTES, shutil.disk_usage(folder).free // FREE_SPACE_DIVISOR))
        cached = measure_median(lambda: _read(file, buffer))
        uncached = _measure_uncached(file, buffer)
    ceilings = DiskCeilings(str(folder), filesystem_of(folder), uncached, cached)
    return ceilings, [] if uncached else [_missing_speed_message(ceilings)]


def filesystem_of(folder: Path) -> str:
    """Return the folder's file system type, or an empty string if it is unknown."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return ""
    resolved = folder.resolve()
    matches = [
        (len(point), position, filesystem)
        for position, (_, point, filesystem, *_) in enumerate(mounts)
        if resolved.is_relative_to(point)
    ]
    # The longest mount point is the nearest one. Of two mounts on one point, the later one hides the earlier one.
    return max(matches)[2] if matches else ""


def _write(file: int, nbytes: int) -> None:
    """Write blocks of random bytes until the file has `nbytes`, and flush each block.

    After `WRITE_SECONDS` no further block starts, but one block is always written. The kernel can drop a page from the
    page cache only after it has written the page to the disk.
    """
    block = np.random.default_rng(0).bytes(SLOT_NBYTES)  # random, so that no file system can compress it
    written, deadline = 0, time.perf_counter() + WRITE_SECONDS
    while written == 0 or (written + len(block) <= nbytes and time.perf_counter() < deadline):
        written += os.write(file, block)
        os.fsync(file)


def _measure_uncached(file: int, buffer: Array) -> float | None:
    """Return bytes per second of the disk.

    Return None if the kernel does not drop the file from the page cache.
    """
    if not drop_cached_pages(file):
        return None

    def sample() -> float:
        drop_cached_pages(file)
        return _read(file, buffer)

    return measure_median(sample, seconds=PASSES_SECONDS, warm_up=False)


def _read(file: int, buffer: Array) -> float:
    """Read the file sequentially for at most `READ_SECONDS`, and return bytes per second."""
    block, total = buffer[:SLOT_NBYTES].data, 0
    start = time.perf_counter()
    while time.perf_counter() - start < READ_SECONDS and (read := os.preadv(file, [block], total)):
        total += read
    return total / (time.perf_counter() - start)


def _missing_speed_message(ceilings: DiskCeilings) -> str:
    if ceilings.filesystem in MEMORY_FILESYSTEMS:
        return f"disk: {ceilings.folder} is in memory. Set TMPDIR to a folder on a disk."
    return (
        f"disk: the test file in {ceilings.folder} stayed in the page cache, so only the page cache was measured. "
        "Set TMPDIR to a folder on another disk."
    )
