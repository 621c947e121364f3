"""Device memory for the kernels of one slot, such as extent tables and row numbers."""

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from forebay.core.rows import Rows, row_array
from forebay.core.spec import align
from forebay.engines.cuda.driver import Device, Stream
from forebay.engines.cuda.memory import PageLockedMemory
from forebay.engines.cuda.order_program import PROGRAM_NBYTES

__all__ = ["MAX_BUCKETS", "KernelWorkspace"]

MAX_BUCKETS = 4096  # buckets into which kernels sort rows by address; the same number as in sort.cu
EXTENT_NBYTES = 24  # bytes of one entry of an extent table: three int64


class KernelWorkspace:
    """Device memory for the kernels of one slot, and a page-locked buffer for uploads.

    The device memory contains these arrays one after the other: the extent table of each leaf; `program`, the order
    program; `rows`, the row numbers; `order`, the order in which a kernel reads the rows; `starts`, the counters of the
    sort kernels. Row numbers are int64 with `needs_int64`, else int32.
    """

    def __init__(
        self, device: Device, pointer: int, owner: Any, *, rows: int, extents: Sequence[int], needs_int64: bool
    ) -> None:
        self._owner, self._pointer, self.needs_int64 = owner, pointer, needs_int64
        self._table_offsets = [0, *accumulate(align(count * EXTENT_NBYTES, 256) for count in extents)]
        self._tables_nbytes = self._table_offsets[-1]
        self._rows_nbytes = align(rows * 8, 256)
        self._rows_offset = self._tables_nbytes + align(PROGRAM_NBYTES, 256)
        self._host = PageLockedMemory(device, self._rows_offset + self._rows_nbytes)
        self._loaded_tables: dict[int, Any] = {}  # leaf: its extent table on the device
        self._loaded_program: Any = None  # the order program on the device
        # Device pointers.
        self.program = pointer + self._tables_nbytes
        self.rows = pointer + self._rows_offset
        self.order = self.rows + self._rows_nbytes
        self.starts = self.order + align(rows * 4, 256)

    @staticmethod
    def nbytes(rows: int, extents: Sequence[int]) -> int:
        """Return the bytes of device memory for groups of `rows` rows.

        `extents` is the maximum number of extents of each leaf.
        """
        tables_nbytes = sum(align(count * EXTENT_NBYTES, 256) for count in extents)
        numbers_nbytes = align(rows * 8, 256) + align(rows * 4, 256)
        return tables_nbytes + align(PROGRAM_NBYTES, 256) + numbers_nbytes + MAX_BUCKETS * 4

    def table(self, leaf: int) -> int:
        """Return the device pointer to the extent table of a leaf."""
        return self._pointer + self._table_offsets[leaf]

    def load_tables(self, stream: Stream, tables: Mapping[int, Any]) -> None:
        """Upload the extent tables, unless the same tables are on the device already.

        The previous fill of the slot must be done.
        """
        loaded = self._loaded_tables
        if tables.keys() == loaded.keys() and all(tables[leaf] is loaded[leaf] for leaf in tables):
            return
        for leaf, table in tables.items():
            np.ndarray(table.shape, np.int64, buffer=self._host.buffer, offset=self._table_offsets[leaf])[...] = table
        stream.upload(self._pointer, self._host.address, self._tables_nbytes)
        self._loaded_tables = dict(tables)

    def load_program(self, stream: Stream, program: Any) -> None:
        """Upload an order program, unless it is on the device already.

        The previous fill of the slot must be done.
        """
        if program is self._loaded_program:
            return
        offset = self._tables_nbytes
        np.ndarray(program.shape, np.uint64, buffer=self._host.buffer, offset=offset)[...] = program
        stream.upload(self.program, self._host.address + offset, program.nbytes)
        self._loaded_program = program

    def load_rows(self, stream: Stream, rows: Rows) -> None:
        """Upload row numbers. The previous fill of the slot must be done."""
        rows = row_array(rows)
        dtype = np.int64 if self.needs_int64 else np.int32
        numbers = np.ndarray(len(rows), dtype, buffer=self._host.buffer, offset=self._rows_offset)
        numbers[...] = rows
        stream.upload(self.rows, self._host.address + self._rows_offset, numbers.nbytes)

    def close(self) -> None:
        self._host.close()
        self._owner = None
