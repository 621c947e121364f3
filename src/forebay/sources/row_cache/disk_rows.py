"""Rows of a cache in a folder that several processes fill and read together.

A cache has three files, whose names begin with its key:

    KEY.json    the header: format, key, rows, and the spec of each field
    KEY.rows    the bytes of all rows, field after field. It has its full length from the start, with holes (parts of a
                sparse file without disk space)
    KEY.checks  a CRC-32 for each row, or 0 if the row is not stored. Its part for rows within the budget has no holes

A process writes the bytes of a row, and then its checksum. So a process that ends early leaves complete rows only. Two
processes may write the same row; both write the same bytes. After a loss of power, the disk may have the checksum
without the bytes. Therefore each process compares the checksum when it reads a row for the first time, and treats a row
with another checksum as missing. `open_safely` refuses symbolic links and files of other users.
"""

import errno
import json
import logging
import mmap
import os
import threading
import weakref
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from forebay.core.rows import Rows
from forebay.core.source import MemoryExtent, MemoryRegion
from forebay.core.spec import Array, ArraySpec, align
from forebay.errors import SourceChangedError, SourceError
from forebay.sources.arrays import GatherFunction, locate_extents, make_gather, memory_region
from forebay.sources.objects.locked_files import open_safely, release_and_close, wait_for_lock
from forebay.sources.row_cache.stored_rows import StoredRows

__all__ = ["DiskRows", "DiskRowsLayout"]

FORMAT = 1  # increase it if a decoder or transform of Forebay returns other values for the same arguments
_PAGE_NBYTES = 4096  # each field begins at a multiple of it, so Forebay can page-lock the field without other data
_CHECK = np.dtype("<u4")
_MISSING = 0  # in KEY.checks, if a row is not stored; so a CRC-32 of 0 is stored as 1

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DiskRowsLayout:
    """The files of a cache. Processes with an equal key have an equal layout."""

    folder: Path
    key: str  # hexadecimal
    specs: tuple[ArraySpec, ...]
    names: tuple[str, ...]  # of the fields
    rows: int  # number of rows of the source

    @property
    def header(self) -> bytes:
        fields = [
            {"name": name, "shape": spec.shape, "dtype": str(spec.dtype)}
            for name, spec in zip(self.names, self.specs, strict=True)
        ]
        header = {"format": FORMAT, "key": self.key, "rows": self.rows, "fields": fields, "made_by": "forebay cache()"}
        return json.dumps(header, indent=1).encode()

    @property
    def offsets(self) -> list[int]:
        """The first byte of each field in KEY.rows, and the length of this file."""
        offsets = [0]
        for spec in self.specs:
            offsets.append(offsets[-1] + align(spec.nbytes * self.rows, _PAGE_NBYTES))
        return offsets

    def path(self, suffix: str) -> Path:
        return self.folder / f"{self.key}.{suffix}"


class DiskRows(StoredRows):
    """Rows in the files of a cache folder. The files stay when the process ends."""

    def __init__(self, layout: DiskRowsLayout, stop: int, capacity: int) -> None:
        """Store rows with numbers below `stop`, of which the pipeline uses `capacity` rows.

        Raise SourceError if the folder or a file cannot be used.
        """
        self._layout, self._stop, self.capacity = layout, stop, capacity
        self.place = f"in {layout.folder}"
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._is_verified = np.zeros(self._layout.rows, bool)
        self._count = 0
        self._rows_file = self._checks_file = -1
        self._descriptors: list[int] = []
        self._finalizer = weakref.finalize(self, _close_files, self._descriptors)
        self._finalizer.atexit = False  # the system closes the files when the process ends
        try:
            self._open()
        except OSError as error:
            self.close()
            raise SourceError(
                f"cache({str(self._layout.folder)!r}) cannot use the folder: {error.strerror or error}. Pass a folder "
                "with free space that only you can write to."
            ) from error

    def _open(self) -> None:
        layout = self._layout
        layout.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = open_safely(layout.folder / "lock", os.O_RDWR | os.O_CREAT)
        try:
            wait_for_lock(lock)
            is_new = self._lacks_header()
            lengths = {"rows": layout.offsets[-1], "checks": layout.rows * _CHECK.itemsize}
            self._rows_file = self._open_file("rows", lengths["rows"], is_new=is_new)
            self._checks_file = self._open_file("checks", lengths["checks"], is_new=is_new)
            _fill_holes(self._checks_file, self._stop * _CHECK.itemsize)
            if is_new:
                self._publish_header()
        finally:
            release_and_close(lock)
        self._bytes = _map_file(self._rows_file, lengths["rows"])
        self._checks = np.ndarray((layout.rows,), _CHECK, buffer=_map_file(self._checks_file, lengths["checks"]))
        self._arrays = [
            np.ndarray(spec.batch_shape(layout.rows), spec.dtype, buffer=self._bytes, offset=offset)
            for spec, offset in zip(layout.specs, layout.offsets, strict=False)
        ]
        self._gathers: list[GatherFunction] = [make_gather(array) for array in self._arrays]

    def _lacks_header(self) -> bool:
        """Return whether the cache is new, because it has no header.

        Raise SourceError if the header has other content than this process would write.
        """
        path, expected = self._layout.path("json"), self._layout.header
        try:
            descriptor = open_safely(path, os.O_RDONLY)
        except FileNotFoundError:
            return True
        with os.fdopen(descriptor, "rb") as file:
            if file.read(len(expected) + 1) != expected:
                raise SourceError(f"{path} is damaged, or another program wrote it. Delete the files {path.stem}.*.")
        return False

    def _publish_header(self) -> None:
        """Write a temporary file and rename it, so that no process reads half a header."""
        temporary = self._layout.path("json.part")
        with os.fdopen(_open_to_write(temporary, os.O_CREAT), "r+b") as file:
            file.truncate(0)  # a process that died in this method may have left content
            file.write(self._layout.header)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(self._layout.path("json"))

    def _open_file(self, suffix: str, nbytes: int, *, is_new: bool) -> int:
        path = self._layout.path(suffix)
        descriptor = _open_to_write(path, os.O_CREAT if is_new else 0)
        self._descriptors.append(descriptor)
        if is_new:
            os.ftruncate(descriptor, 0)  # a process that died before it wrote the header left the content
            os.ftruncate(descriptor, max(1, nbytes))  # an empty file cannot be mapped
        found_nbytes = os.fstat(descriptor).st_size
        if found_nbytes != max(1, nbytes):
            raise SourceError(
                f"{path} has {found_nbytes} bytes instead of {nbytes}: it is damaged. Delete the files {path.stem}.*."
            )
        return descriptor

    @property
    def count(self) -> int:
        return self._count

    def find(self, numbers: Array) -> Array:
        self._check_length()
        # Read no checksum beyond `stop`: it may be in a hole of the file.
        is_stored = (self._checks[np.minimum(numbers, self._stop - 1)] != _MISSING) & (numbers < self._stop)
        unverified = np.unique(numbers[is_stored & ~self._is_verified[numbers]])
        if len(unverified) == 0:
            return np.asarray(is_stored)
        found = self._checksums(unverified, self._arrays)
        self._mark_verified(unverified[found == self._checks[unverified]])
        return np.asarray(is_stored & self._is_verified[numbers])

    def count_new(self, numbers: Array) -> int:
        numbers = np.unique(numbers)
        return int(np.count_nonzero((numbers < self._stop) & ~self._is_verified[numbers]))

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        self._check_length()
        for gather, leaf in zip(self._gathers, out, strict=True):
            gather(rows, leaf)

    def put(self, numbers: Array, leaves: Sequence[Array]) -> None:
        if self.problem:
            return
        is_new = (numbers < self._stop) & ~self._is_verified[numbers]
        if not is_new.any():
            return
        positions = np.flatnonzero(is_new)
        new_leaves = [np.ascontiguousarray(leaf[positions]) for leaf in leaves]
        checksums = _checksum_rows(new_leaves)
        try:
            for index, number in enumerate(numbers[positions].tolist()):
                self._write_row(number, [leaf[index] for leaf in new_leaves], checksums[index])
        except OSError as error:
            self.problem = f"{self._layout.folder}: {error.strerror or error}"
            _log.warning("cache() stores no more rows and computes them instead: %s", self.problem)
            return
        self._mark_verified(np.unique(numbers[positions]))

    def memory(self) -> list[MemoryRegion]:
        return [memory_region(array) for array in self._arrays] if self._count == self._layout.rows else []

    def memory_extents(self) -> list[list[MemoryExtent]]:
        return locate_extents(self._arrays, own_pages=True) if self._count == self._layout.rows else []

    def close(self) -> None:
        """Close the files. Rows in memory stay mapped while an array uses them."""
        self._rows_file = self._checks_file = -1
        self._finalizer()

    def _write_row(self, number: int, leaves: Sequence[Array], checksum: int) -> None:
        for leaf, spec, offset in zip(leaves, self._layout.specs, self._layout.offsets, strict=False):
            _write_all(self._rows_file, leaf.tobytes(), offset + number * spec.nbytes)
        _write_all(self._checks_file, np.array(checksum, _CHECK).tobytes(), number * _CHECK.itemsize)

    def _checksums(self, numbers: Array, arrays: Sequence[Array]) -> Array:
        return _checksum_rows([array[numbers] for array in arrays])

    def _mark_verified(self, numbers: Array) -> None:
        with self._lock:
            count = self._count + int(np.count_nonzero(~self._is_verified[numbers]))
            # Python raises KeyboardInterrupt at calls and jumps, so never between these two lines.
            self._is_verified[numbers] = True
            self._count = count

    def _check_length(self) -> None:
        """Raise SourceChangedError if a file became shorter: reading beyond its end would end this process."""
        if self._rows_file < 0:
            raise SourceError(f"the cache {self.place} is closed. Make the pipeline again.")
        has_rows = os.fstat(self._rows_file).st_size >= len(self._bytes)
        if not has_rows or os.fstat(self._checks_file).st_size < self._checks.nbytes:
            raise SourceChangedError(
                f"a file of the cache {self.place} became shorter while it was read. Make the pipeline again, and "
                "delete cache folders only while no feed uses them."
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the files. The process that unpickles it opens them again."""
        return {name: getattr(self, name) for name in ("_layout", "_stop", "capacity", "place")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()


def _open_to_write(path: Path, flags: int) -> int:
    """Open a file for writing. Raise OSError if it has several hard links.

    Through such a link, Forebay could overwrite any file of this user.
    """
    descriptor = open_safely(path, os.O_RDWR | flags)
    if os.fstat(descriptor).st_nlink != 1:
        os.close(descriptor)
        raise OSError(errno.EMLINK, f"{path.name!r} has several hard links. Delete it")
    return descriptor


def _close_files(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())


def _fill_holes(descriptor: int, nbytes: int) -> None:
    """Reserve disk space for the first `nbytes` bytes of a file.

    If a tmpfs is full, reading a hole of a mapped file ends the process.
    """
    if hasattr(os, "posix_fallocate"):  # systems without this function have no tmpfs
        os.posix_fallocate(descriptor, 0, max(1, nbytes))


def _map_file(descriptor: int, nbytes: int) -> mmap.mmap:
    return mmap.mmap(descriptor, max(1, nbytes), prot=mmap.PROT_READ)


def _checksum_rows(leaves: Sequence[Array]) -> Array:
    """Return a CRC-32 of each row, never 0."""
    rows = len(leaves[0])
    flat_rows = [leaf.reshape(rows, -1).view(np.uint8) for leaf in leaves if leaf.nbytes]
    checksums = np.zeros(rows, _CHECK)
    for row in range(rows):
        checksum = 0
        for leaf in flat_rows:
            checksum = zlib.crc32(leaf[row], checksum)
        checksums[row] = checksum or 1
    return checksums


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    remaining = memoryview(data)
    while remaining:
        written = os.pwrite(descriptor, remaining, offset)
        remaining, offset = remaining[written:], offset + written
