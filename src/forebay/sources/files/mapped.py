"""A file mapped read-only into memory, and a source of its arrays.

If another process shortens a mapped file, a read past the new end kills the reading process (SIGBUS). So each read
first checks the file size, which takes less than a microsecond, and a large gather checks it again for every few MiB.
One risk remains: the file may shrink after the check, while bytes are copied. `pread` does not have this risk, but it
reached only 0.04 to 0.90 of the speed of the mapping (docs/measurements.md#mapped-rows).

A file that was changed in place, or that shrank and grew again, has a new modification time. Forebay compares this time
every `CHECK_SECONDS`. A file that is deleted, or replaced by renaming, stays readable while it is mapped.
"""

import errno
import math
import mmap
import os
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from forebay.core.rows import Rows, select_rows
from forebay.core.source import AbstractSource, FileExtent, MemoryExtent, MemoryRegion, find_overlap
from forebay.core.spec import Array, ArraySpec, Structure
from forebay.errors import SourceChangedError, SourceError
from forebay.sources.arrays import locate_extents, make_gather, memory_region, window_view

__all__ = [
    "ChangeCheck",
    "MappedFile",
    "MappedSource",
    "PathName",
    "Stamp",
    "closed_error",
    "make_stamp",
    "shrunk_file_error",
    "validate_file",
]

PathName: TypeAlias = str | os.PathLike[str]
Stamp: TypeAlias = tuple[int, int, int]  # inode, size and modification time (ns); they identify the content of a file

CHECK_SECONDS = 0.1  # between two checks of a stamp; a check takes 2 us, too much for every gather from many files
PIECE_NBYTES = 8 << 20  # bytes that a gather copies between two checks of the file size, in about a millisecond


class MappedFile:
    """A complete file, mapped read-only. The operating system reads a page on its first use."""

    def __init__(self, path: PathName) -> None:
        self.path = Path(path)
        validate_file(self.path)
        try:
            with self.path.open("rb") as file:
                self.stamp = make_stamp(os.fstat(file.fileno()))
                self.nbytes = self.stamp[1]
                # The operating system refuses to map an empty file.
                self._mapping = mmap.mmap(file.fileno(), self.nbytes, access=mmap.ACCESS_READ) if self.nbytes else None
        except (OSError, ValueError) as error:
            is_limit = isinstance(error, OSError) and error.errno == errno.EMFILE
            advice = "Allow more open files: ulimit -n 65536" if is_limit else "Check the file and its permissions"
            raise SourceError(f"{self.path} cannot be mapped: {error}. {advice}.") from error
        self._check_change = ChangeCheck(self.path, self.stamp)

    @property
    def held_nbytes(self) -> int:
        """Bytes of process memory: 0, because the page cache holds the file."""
        return 0

    def check_unchanged(self) -> None:
        """Raise SourceChangedError if the file was shortened or changed in place.

        Each call compares the length with that at the time of opening, but the stamp only every `CHECK_SECONDS`.
        """
        current_nbytes = self._mapping.size() if self._mapping is not None else 0
        if current_nbytes < self.nbytes:
            raise shrunk_file_error(self.path, self.nbytes, current_nbytes)
        if time.monotonic() >= self._check_change.due_at:
            self._check_change()

    def read(self, start: int, nbytes: int) -> bytes:
        """Return a copy of up to `nbytes` bytes, from byte `start` on."""
        self.check_unchanged()
        return b"" if self._mapping is None else self._mapping[start : start + nbytes]

    def view(self) -> "mmap.mmap | bytes":
        """Check for changes, and return the mapping. The caller may copy from it many times."""
        self.check_unchanged()
        return b"" if self._mapping is None else self._mapping

    def file_extents(self, extents: Sequence[Sequence[MemoryExtent]]) -> list[list[FileExtent]]:
        """Convert memory extents of the mapping to file extents."""
        if self._mapping is None:
            return []
        first_address = np.frombuffer(self._mapping, np.uint8).__array_interface__["data"][0]
        return [
            [
                FileExtent(
                    extent.first, extent.rows, self.path, self.stamp, extent.address - first_address, extent.stride
                )
                for extent in leaf
            ]
            for leaf in extents
        ]

    def array(
        self, shape: Sequence[int], dtype: np.dtype[Any], *, offset: int, order: Literal["C", "F"] = "C"
    ) -> Array:
        """Return an array that shares the memory of the mapping.

        Raise SourceError if the file is too short for this shape.
        """
        end = offset + math.prod(shape) * dtype.itemsize
        if end > self.nbytes:
            raise SourceError(
                f"{self.path} is truncated: {dtype} rows of shape {tuple(shape)} need {end} bytes, "
                f"the file has {self.nbytes}. Write or download it again."
            )
        return np.ndarray(shape, dtype, buffer=self._mapping, offset=offset, order=order)


class MappedSource(AbstractSource):
    """Rows of arrays in one mapped file."""

    immutable = True

    def __init__(self, file: MappedFile, arrays: Sequence[Array], structure: Structure) -> None:
        self.structure = structure
        self.specs = tuple(ArraySpec(array.shape[1:], array.dtype) for array in arrays)
        self._length = len(arrays[0])
        self._file = file
        self._arrays = list(arrays)
        self._gathers = [make_gather(array) for array in arrays]
        self._piece_rows = max(1, PIECE_NBYTES // max(1, sum(spec.nbytes for spec in self.specs)))

    def __len__(self) -> int:
        return self._length

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        count, piece_rows = len(out[0]), self._piece_rows
        if count > piece_rows:
            for start in range(0, count, piece_rows):
                stop = min(start + piece_rows, count)
                self.gather(select_rows(rows, start, stop), [leaf[start:stop] for leaf in out])
            return
        gathers = self._gathers
        if not gathers:
            raise closed_error(self._file.path)
        self._file.check_unchanged()
        for gather, leaf in zip(gathers, out, strict=True):
            gather(rows, leaf)

    def windows(self, rows: slice, length: int, stride: int) -> "MappedSource":
        views = [window_view(array[rows], length, stride) for array in self._arrays]
        return MappedSource(self._file, views, self.structure)

    def memory(self) -> list[MemoryRegion]:
        return [memory_region(array) for array in self._arrays]

    def memory_extents(self) -> list[list[MemoryExtent]]:
        return locate_extents(self._arrays, own_pages=True)

    def file_extents(self) -> list[list[FileExtent]]:
        extents = self.memory_extents()
        # If windows overlap, return no extents, so that the feed reads the windows through the page cache. The page
        # cache holds bytes of several windows only once.
        overlap = any(find_overlap(leaf, spec.nbytes) for leaf, spec in zip(extents, self.specs, strict=False))
        return [] if overlap else self._file.file_extents(extents)

    def close(self) -> None:
        """Release the arrays. The file is unmapped when the source itself is freed."""
        self._arrays, self._gathers = [], []


class ChangeCheck:
    """Raises an error if a file was changed in place after it was opened.

    The owner calls it when it is due, which is `CHECK_SECONDS` after the last call.
    """

    __slots__ = ("_descriptor", "_path", "_stamp", "due_at")

    def __init__(self, path: Path, stamp: Stamp, descriptor: int | None = None) -> None:
        """Check the file with this descriptor; without a descriptor, the file at the path."""
        self._path, self._stamp, self._descriptor = path, stamp, descriptor
        self.due_at = 0.0  # seconds of the monotonic clock

    def __call__(self) -> None:
        self.due_at = time.monotonic() + CHECK_SECONDS
        try:
            stamp = make_stamp(self._path.stat() if self._descriptor is None else os.fstat(self._descriptor))
        except OSError:  # a deleted file stays readable
            return
        # If the inode differs, another file was renamed to this path. The opened file is unchanged.
        if stamp[0] == self._stamp[0] and stamp != self._stamp:
            raise SourceChangedError(
                f"{self._path} was changed while it was read: it had {self._stamp[1]} bytes when it was opened and has "
                f"{stamp[1]} now, or its bytes were written again. {_REPLACE_HINT}"
            )


def closed_error(path: Path) -> SourceError:
    """Return the error about a read from a source that was closed."""
    return SourceError(f"{path} is closed. Open it again to read from it.")


def make_stamp(status: os.stat_result) -> Stamp:
    """Return the stamp of a file."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def validate_file(path: Path) -> None:
    """Raise SourceError unless the path is a regular file.

    Other files are refused because opening a pipe could block forever.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise SourceError(f"cannot read {str(path)!r}: {reason}. Check the path.") from error
    if stat.S_ISDIR(mode):
        raise SourceError(f"{path} is a directory. Pass a glob of its files, for example {str(path / '*.npy')!r}.")
    if not stat.S_ISREG(mode):
        raise SourceError(f"{path} is not a regular file. Use from_generator() for a pipe or a device.")


_REPLACE_HINT = (
    "Do not change a file in place while a feed reads it. To replace it, write another file and rename it to this name."
)


def shrunk_file_error(path: Path, opened_nbytes: int, current_nbytes: int) -> SourceChangedError:
    """Return the error for a file that another process shortened."""
    return SourceChangedError(
        f"{path} shrank while it was read: it had {opened_nbytes} bytes when it was opened and has {current_nbytes} "
        f"now. {_REPLACE_HINT}"
    )
