"""A file mapped read-only into memory, and a source of arrays in it.

If another process shortens a mapped file, a read past the new end kills the reading process (SIGBUS). So the file size
is checked before each read, which takes less than a microsecond. One gap remains: the file may shrink between the
check and the end of the copy of one batch. A file that is deleted, or replaced by renaming, stays complete while it is
mapped.
"""

import math
import mmap
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from forebay.core.rows import Rows
from forebay.core.source import AbstractSource, FileExtent, MemoryExtent, MemoryRegion
from forebay.core.spec import Array, ArraySpec, Structure
from forebay.errors import SourceChangedError, SourceError
from forebay.sources.arrays import locate_extents, make_gather, memory_region

__all__ = ["MappedFile", "MappedSource", "PathName", "shrunk_file_error", "validate_file"]

PathName: TypeAlias = str | os.PathLike[str]


class MappedFile:
    """A complete file, mapped read-only. The operating system reads pages on first use."""

    def __init__(self, path: PathName) -> None:
        self.path = Path(path)
        validate_file(self.path)
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                # Inode, size and modification time identify the file's content.
                self.nbytes, self.stamp = status.st_size, (status.st_ino, status.st_size, status.st_mtime_ns)
                # The operating system refuses to map an empty file.
                self._map = mmap.mmap(file.fileno(), self.nbytes, access=mmap.ACCESS_READ) if self.nbytes else None
        except (OSError, ValueError) as error:
            raise SourceError(f"{self.path} cannot be mapped: {error}. Check the file and its permissions.") from error

    @property
    def held_nbytes(self) -> int:
        """Memory that the file takes: 0, because the page cache holds it."""
        return 0

    def check_size(self) -> None:
        """Raise an error if the file was shortened after it was opened."""
        found = self._map.size() if self._map is not None else 0
        if found < self.nbytes:
            raise shrunk_file_error(self.path, self.nbytes, found)

    def read(self, start: int, nbytes: int) -> bytes:
        """Return a copy of some bytes; fewer at the end of the file."""
        self.check_size()
        return b"" if self._map is None else self._map[start : start + nbytes]

    def view(self) -> "mmap.mmap | bytes":
        """Return the file as a buffer.

        Many copies from it need only this one size check.
        """
        self.check_size()
        return b"" if self._map is None else self._map

    def file_extents(self, extents: Sequence[Sequence[MemoryExtent]]) -> list[list[FileExtent]]:
        """Convert extents in the mapping to extents in the file."""
        if self._map is None:
            return []
        base = np.frombuffer(self._map, np.uint8).__array_interface__["data"][0]
        return [
            [
                FileExtent(extent.first, extent.rows, self.path, self.stamp, extent.address - base, extent.stride)
                for extent in leaf
            ]
            for leaf in extents
        ]

    def array(
        self, shape: Sequence[int], dtype: np.dtype[Any], *, offset: int, order: Literal["C", "F"] = "C"
    ) -> Array:
        """Return an array over the mapping, without a copy.

        The file must have all bytes of that shape.
        """
        end = offset + math.prod(shape) * dtype.itemsize
        if end > self.nbytes:
            raise SourceError(
                f"{self.path} is truncated: {dtype} rows of shape {tuple(shape)} need {end} bytes, "
                f"the file has {self.nbytes}. Write or download it again."
            )
        return np.ndarray(shape, dtype, buffer=self._map, offset=offset, order=order)


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

    def __len__(self) -> int:
        return self._length

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        gathers = self._gathers
        if not gathers:
            raise SourceError(f"{self._file.path} is closed. Open it again to read from it.")
        self._file.check_size()
        for gather, leaf in zip(gathers, out, strict=True):
            gather(rows, leaf)

    def memory(self) -> list[MemoryRegion]:
        return [memory_region(array) for array in self._arrays]

    def memory_extents(self) -> list[list[MemoryExtent]]:
        return locate_extents(self._arrays, own_pages=True)

    def file_extents(self) -> list[list[FileExtent]]:
        return self._file.file_extents(self.memory_extents())

    def close(self) -> None:
        """Release the file. It is unmapped after the last gather that still runs."""
        self._arrays, self._gathers = [], []


def validate_file(path: Path) -> None:
    """Raise an error unless the path is a regular file.

    Opening a pipe would block forever.
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


def shrunk_file_error(path: Path, expected: int, found: int) -> SourceChangedError:
    """Return the error for a file that another process shortened."""
    return SourceChangedError(
        f"{path} shrank while it was read: it had {expected} bytes when it was opened and has {found} now. "
        "Do not change files while a feed reads them, or replace them by renaming."
    )
