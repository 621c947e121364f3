"""One file mapped read-only, and arrays that lie in it.

A mapped file that somebody else shortens kills the process that reads past its new end (SIGBUS). So the size is asked
for, which costs less than a microsecond, before anything is read. The window that is left: a file that is shortened
after that question and before its answer is used, that is while one batch is being copied. A file that is deleted or
replaced by renaming stays whole for as long as it is mapped.
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
from forebay.sources.arrays import extents_of, gather_leaf, memory_region

__all__ = ["MappedFile", "MappedSource", "PathName", "changed", "check_is_file"]

PathName: TypeAlias = str | os.PathLike[str]


class MappedFile:
    """A whole file, read-only in memory; nothing is read before it is used."""

    def __init__(self, path: PathName) -> None:
        self.path = Path(path)
        check_is_file(self.path)
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                self.nbytes, self.stamp = status.st_size, (status.st_ino, status.st_size, status.st_mtime_ns)
                # An empty file cannot be mapped; whoever needs bytes of it will find that there are none.
                self._map = mmap.mmap(file.fileno(), self.nbytes, access=mmap.ACCESS_READ) if self.nbytes else None
        except (OSError, ValueError) as error:
            raise SourceError(f"could not map {self.path}: {error}.") from error

    def check(self) -> None:
        """Refuse to go on with a file that has been shortened since it was opened."""
        found = self._map.size() if self._map is not None else 0
        if found < self.nbytes:
            raise changed(self.path, self.nbytes, found)

    def read(self, start: int, nbytes: int) -> bytes:
        """A copy of some bytes; fewer where the file ends."""
        self.check()
        return b"" if self._map is None else self._map[start : start + nbytes]

    def view(self) -> "mmap.mmap | bytes":
        """The whole file, to copy many pieces of bytes from after one look at its size."""
        self.check()
        return b"" if self._map is None else self._map

    def file_extents(self, extents: Sequence[Sequence[MemoryExtent]]) -> list[list[FileExtent]]:
        """Where in the file those rows lie that are in its mapping."""
        if self._map is None:
            return []
        base = np.frombuffer(self._map, np.uint8).__array_interface__["data"][0]
        return [
            [FileExtent(one.first, one.rows, self.path, self.stamp, one.address - base, one.stride) for one in leaf]
            for leaf in extents
        ]

    def array(
        self, shape: Sequence[int], dtype: np.dtype[Any], *, offset: int, order: Literal["C", "F"] = "C"
    ) -> Array:
        """An array in the file itself. What the shape claims is compared with what is there; nothing is allocated."""
        claimed = math.prod(shape) * dtype.itemsize
        if offset + claimed > self.nbytes:
            raise SourceError(
                f"{self.path} is cut short: {dtype} rows of shape {tuple(shape)} need {offset + claimed} bytes, "
                f"the file has {self.nbytes}. Write or download it again."
            )
        return np.ndarray(shape, dtype, buffer=self._map, offset=offset, order=order)


class MappedSource(AbstractSource):
    """Rows that lie in one mapped file, gathered from there."""

    immutable = True  # what lies in a file stays as it is

    def __init__(self, file: MappedFile, arrays: Sequence[Array], structure: Structure) -> None:
        self.structure = structure
        self.specs = tuple(ArraySpec(array.shape[1:], array.dtype) for array in arrays)
        self._length = len(arrays[0])
        self._file = file
        self._arrays = list(arrays)
        self._gathers = [gather_leaf(array) for array in arrays]

    def __len__(self) -> int:
        return self._length

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        gathers = self._gathers
        if not gathers:
            raise SourceError(f"{self._file.path} was closed: open it again to read from it.")
        self._file.check()
        for gather, leaf in zip(gathers, out, strict=True):
            gather(rows, leaf)

    def memory(self) -> list[MemoryRegion]:
        return [memory_region(array) for array in self._arrays]

    def memory_extents(self) -> list[list[MemoryExtent]]:
        return extents_of(self._arrays, own_pages=True)

    def file_extents(self) -> list[list[FileExtent]]:
        return self._file.file_extents(self.memory_extents())

    def close(self) -> None:
        """Let go of the file; it is unmapped when the last gather under way is done with it."""
        self._arrays, self._gathers = [], []


def check_is_file(path: Path) -> None:
    """Refuse what is not there or is no plain file: opening a pipe would wait for ever."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise SourceError(f"cannot read {str(path)!r}: {told}.") from error
    if stat.S_ISDIR(mode):
        raise SourceError(f"{path} is a directory: pass a glob of its files, for example {str(path / '*.npy')!r}.")
    if not stat.S_ISREG(mode):
        raise SourceError(f"{path} is not a plain file: for a pipe or a device use from_generator.")


def changed(path: Path, expected: int, found: int) -> SourceChangedError:
    """The error for a file that somebody has shortened."""
    return SourceChangedError(
        f"{path} shrank while it was being read: it had {expected} bytes when it was opened and has {found} now. "
        "Leave files alone while they are fed, or replace them by renaming."
    )
