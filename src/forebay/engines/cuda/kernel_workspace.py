"""Auxiliary device memory for the kernels of one slot: row numbers, extent tables, read order."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from forebay.core.spec import align
from forebay.engines.cuda.driver import Device, Stream
from forebay.engines.cuda.memory import PageLockedMemory

__all__ = ["MAX_BUCKETS", "KernelWorkspace"]

MAX_BUCKETS = 4096  # the same as in gather.cu
EXTENT_NBYTES = 24  # bytes of one line of an extent table: three int64


class KernelWorkspace:
    """Device pointers to these arrays, with a page-locked buffer to fill them."""

    def __init__(
        self, device: Device, pointer: int, owner: Any, *, rows: int, extents: Sequence[int], needs_int64: bool
    ) -> None:
        self._owner, self._pointer, self.needs_int64 = owner, pointer, needs_int64
        self._tables = [0, *accumulate(align(count * EXTENT_NBYTES, 256) for count in extents)]
        self._rows_nbytes = align(rows * 8, 256)
        self._host = PageLockedMemory(device, self._tables[-1] + self._rows_nbytes)
        self._loaded: dict[int, Any] = {}
        self.rows = pointer + self._tables[-1]
        self.order = self.rows + self._rows_nbytes
        self.starts = self.order + align(rows * 4, 256)

    @staticmethod
    def nbytes(rows: int, extents: Sequence[int]) -> int:
        """Return the size for groups of `rows` rows. `extents` is the maximum number of extents of each leaf."""
        tables = sum(align(count * EXTENT_NBYTES, 256) for count in extents)
        return tables + align(rows * 8, 256) + align(rows * 4, 256) + MAX_BUCKETS * 4

    def table(self, leaf: int) -> int:
        """Return the device pointer to the extent table of a leaf."""
        return self._pointer + self._tables[leaf]

    def load_tables(self, stream: Stream, tables: Mapping[int, Any]) -> None:
        """Upload extent tables that are not loaded yet. The last fill of the slot must be done."""
        if tables.keys() == self._loaded.keys() and all(tables[leaf] is self._loaded[leaf] for leaf in tables):
            return
        for leaf, table in tables.items():
            np.ndarray(table.shape, np.int64, buffer=self._host.buffer, offset=self._tables[leaf])[...] = table
        stream.upload(self._pointer, self._host.address, self._tables[-1])
        self._loaded = dict(tables)

    def load_rows(self, stream: Stream, rows: Any) -> None:
        """Upload row numbers."""
        if isinstance(rows, slice):
            rows = np.arange(rows.start, rows.stop)
        dtype = np.int64 if self.needs_int64 else np.int32
        numbers = np.ndarray(len(rows), dtype, buffer=self._host.buffer, offset=self._tables[-1])
        numbers[...] = rows
        stream.upload(self.rows, self._host.address + self._tables[-1], numbers.nbytes)

    def close(self) -> None:
        self._host.close()
        self._owner = None
