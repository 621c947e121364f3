"""What the kernels of one slot read besides the rows: row numbers, where rows lie, and an order to read them in."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from forebay.core.spec import align
from forebay.engines.cuda.driver import Device, Stream
from forebay.engines.cuda.memory import LockedMemory

__all__ = ["MOST_STRETCHES", "Workspace"]

MOST_STRETCHES = 4096  # as in gather.cu


class Workspace:
    """What the kernels of one slot read besides the rows: row numbers, extents of each leaf, an order."""

    def __init__(
        self, device: Device, pointer: int, owner: Any, *, rows: int, extents: Sequence[int], wide_rows: bool
    ) -> None:
        self._owner, self._pointer, self.wide_rows = owner, pointer, wide_rows
        self._tables = [0, *accumulate(align(count * 24, 256) for count in extents)]
        self._rows_nbytes = align(rows * 8, 256)
        self._host = LockedMemory(device, self._tables[-1] + self._rows_nbytes)
        self._loaded: dict[int, Any] = {}
        self.rows = pointer + self._tables[-1]
        self.order = self.rows + self._rows_nbytes
        self.starts = self.order + align(rows * 4, 256)

    @staticmethod
    def nbytes(rows: int, extents: Sequence[int]) -> int:
        tables = sum(align(count * 24, 256) for count in extents)
        return tables + align(rows * 8, 256) + align(rows * 4, 256) + MOST_STRETCHES * 4

    def table(self, leaf: int) -> int:
        return self._pointer + self._tables[leaf]

    def load_tables(self, stream: Stream, tables: Mapping[int, Any]) -> None:
        """Bring the extents of leaves to the device, unless they are there; the slot's last fill is over."""
        if tables.keys() == self._loaded.keys() and all(tables[leaf] is self._loaded[leaf] for leaf in tables):
            return
        for leaf, table in tables.items():
            np.ndarray(table.shape, np.int64, buffer=self._host.buffer, offset=self._tables[leaf])[...] = table
        stream.upload(self._pointer, self._host.address, self._tables[-1])
        self._loaded = dict(tables)

    def load_rows(self, stream: Stream, rows: Any) -> None:
        """Bring row numbers to the device."""
        if isinstance(rows, slice):
            rows = np.arange(rows.start, rows.stop)
        dtype = np.int64 if self.wide_rows else np.int32
        held = np.ndarray(len(rows), dtype, buffer=self._host.buffer, offset=self._tables[-1])
        held[...] = rows
        stream.upload(self.rows, self._host.address + self._tables[-1], held.nbytes)

    def close(self) -> None:
        self._host.close()
        self._owner = None
