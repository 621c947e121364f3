"""Open files to read from by position, past the page cache where the file system allows it."""

import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from forebay.core.spec import Array
from forebay.errors import SourceChangedError, SourceError
from forebay.sources.direct.address_space import Space

__all__ = ["OpenFiles", "aligned_memory", "direct_alignment"]

_DIRECT = getattr(os, "O_DIRECT", 0)
_ALIGNMENTS = (512, 4096)  # what file systems ask of direct reads


class OpenFiles:
    """The files of a space, open for as long as rows are read from them."""

    def __init__(self, space: Space, *, alignment: int) -> None:
        self._paths = space.paths
        self._numbers: list[int] = []
        self.alignment = alignment
        try:
            for path, stamp in zip(space.paths, space.stamps, strict=True):
                self._numbers.append(_open(path, _DIRECT if alignment > 1 else 0))
                _check_stamp(path, stamp, self._numbers[-1])
        except BaseException:
            self.close()
            raise
        self.numbers: Array = np.array(self._numbers, np.int32)
        self.nbytes: Array = np.array([stamp[1] for stamp in space.stamps], np.int64)

    def path(self, file: int) -> Path:
        return self._paths[file]

    def found_nbytes(self, file: int) -> int:
        """How long a file is now."""
        return os.fstat(self._numbers[file]).st_size

    def close(self) -> None:
        """Close them; nobody may be reading any more."""
        numbers, self._numbers = self._numbers, []
        for number in numbers:
            os.close(number)


def direct_alignment(paths: Sequence[Path]) -> int | None:
    """What the offsets, lengths and addresses of direct reads must be multiples of; None where one file refuses them.

    Some file systems refuse as a file is opened, others as it is read: so a little of each is read.
    """
    if not _DIRECT:
        return None
    needed = [_alignment(path) for path in paths]
    return None if None in needed else max((one for one in needed if one), default=None)


def aligned_memory(nbytes: int) -> Array:
    """Fresh memory that begins at a page; it goes when nobody refers to it any more.

    In huge pages where the kernel gives them: a direct read names every page to the disk, and with pages of 4 KiB that
    alone makes it slower by a third.
    """
    if not hasattr(mmap, "MAP_PRIVATE"):
        return np.frombuffer(mmap.mmap(-1, max(nbytes, 1)), np.uint8)
    memory = mmap.mmap(-1, max(nbytes, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel built without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def _alignment(path: Path) -> int | None:
    try:
        file = _open(path, _DIRECT)
    except SourceError:
        return None
    try:
        return next(_accepted(file), None)
    finally:
        os.close(file)


def _accepted(file: int) -> Iterator[int]:
    memory = aligned_memory(2 * max(_ALIGNMENTS)).data
    for alignment in _ALIGNMENTS:
        try:
            os.preadv(file, [memory[alignment : 2 * alignment]], 0)
        except OSError:
            continue
        yield alignment


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, os.O_RDONLY | flags)
    except FileNotFoundError as error:
        raise SourceChangedError(
            f"{path} was there when it was opened and is gone now. Make the pipeline again."
        ) from error
    except OSError as error:
        raise SourceError(f"could not open {path} to read it: {error.strerror}.") from error


def _check_stamp(path: Path, stamp: tuple[int, int, int], file: int) -> None:
    found = os.fstat(file)
    if (found.st_ino, found.st_size, found.st_mtime_ns) != stamp:
        raise SourceChangedError(
            f"{path} was changed or replaced after it was opened: it had {stamp[1]} bytes then and has "
            f"{found.st_size} now. Make the pipeline again."
        )
