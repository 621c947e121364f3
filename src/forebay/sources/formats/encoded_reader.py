"""`EncodedReader`: reads the encoded images of a group for a device that decodes them."""

import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from forebay.sources.decoder_threads import decode_rows

__all__ = ["EncodedReader", "read_small_file"]

ReadBytes: TypeAlias = Callable[[int], bytes | None]  # row number -> content

MAX_CONTENT_NBYTES = 256 * 2**20  # bytes; Pillow decodes longer files on the host without reading them as a whole
# Seconds per image. If one thread takes longer, the files are probably not in the page cache, and several threads read
# them faster. A file in the page cache takes one thread 7 us. For files in the page cache, 16 threads take 9 times as
# long as one thread, because they wait for the GIL (docs/measurements.md#jpeg-decoding-on-a-gpu).
SLOW_READ_SECONDS = 100e-6
# Without O_NONBLOCK, opening a FIFO would block. Only Windows has O_BINARY.
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
PARALLEL_GROUPS = 16  # groups that the decoder threads read after a slow group; then one thread is tried again


class EncodedReader:
    """Reads the images of a group in the calling thread, or in all decoder threads.

    After a group that the calling thread read slowly, the decoder threads read the next `PARALLEL_GROUPS` groups.
    Several threads may call `read`. They may overwrite each other's counts, which changes only how groups are read.
    """

    def __init__(self, read_bytes: ReadBytes) -> None:
        self._read_bytes = read_bytes
        self._parallel_groups = 0  # number of the next groups that the decoder threads read

    def read(self, numbers: Sequence[int]) -> list[bytes | None]:
        """Return the encoded image of each row; None where only the host may decode."""
        if self._parallel_groups:
            self._parallel_groups -= 1
            return self._read_in_parallel(numbers)
        began = time.perf_counter()
        contents = list(map(self._read_bytes, numbers))
        if len(numbers) > 0 and time.perf_counter() - began > SLOW_READ_SECONDS * len(numbers):
            self._parallel_groups = PARALLEL_GROUPS
        return contents

    def _read_in_parallel(self, numbers: Sequence[int]) -> list[bytes | None]:
        contents: list[bytes | None] = [None] * len(numbers)

        def read(position: int, number: int) -> None:
            contents[position] = self._read_bytes(number)

        decode_rows(read, numbers)
        return contents


def read_small_file(path: Path) -> bytes | None:
    """Return the content of a file; None if it is huge, not regular, unreadable or shortened.

    This function calls the operating system directly, because `open` takes twice as long.
    """
    try:
        descriptor = os.open(path, _OPEN_FLAGS)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_CONTENT_NBYTES:
            return None
        return _read_all(descriptor, status.st_size)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _read_all(descriptor: int, nbytes: int) -> bytes | None:
    """Return `nbytes` bytes, or None if the file has become shorter.

    One read of a network file system may return fewer bytes.
    """
    content = os.read(descriptor, nbytes)
    while len(content) < nbytes:
        rest = os.read(descriptor, nbytes - len(content))
        if not rest:
            return None
        content += rest
    return content
