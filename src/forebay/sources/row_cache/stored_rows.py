"""The storage of a row cache: the interface `StoredRows`, and `RamRows` in RAM."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.core.rows import Rows, row_array, row_count
from forebay.core.source import MemoryExtent, MemoryRegion
from forebay.core.spec import Array, ArraySpec
from forebay.sources.arrays import GatherFunction, locate_extents, make_gather, memory_region

__all__ = ["RamRows", "StoredRows"]


class StoredRows(ABC):
    """Rows by row number. Several threads may call the methods at the same time.

    Only a fixed set of rows is ever stored: the first `capacity` of the rows that the pipeline uses. The set does not
    depend on the order in which rows arrive.
    """

    capacity: int  # rows that may be stored
    place: str  # where the rows are, for `explain()`
    problem: str = ""  # why no more rows are stored; "" while rows are stored

    @property
    @abstractmethod
    def count(self) -> int:
        """The number of stored rows that this process may read."""

    @abstractmethod
    def find(self, numbers: Array) -> Array:
        """Return for each row number whether the row is stored."""

    @abstractmethod
    def count_new(self, numbers: Array) -> int:
        """Return how many of these rows may be stored and are not stored yet."""

    @abstractmethod
    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        """Copy stored rows to `out`."""

    @abstractmethod
    def put(self, numbers: Array, leaves: Sequence[Array]) -> None:
        """Store rows. Leave out rows that may not be stored or are stored already."""

    def memory(self) -> Sequence[MemoryRegion]:
        """Return the memory of the rows; empty unless all rows of the source are stored."""
        return []

    def memory_extents(self) -> Sequence[Sequence[MemoryExtent]]:
        """Return the memory extents of each leaf; empty unless all rows are stored."""
        return []

    def close(self) -> None:
        """Release memory and files."""
        return


class RamRows(StoredRows):
    """Rows in arrays, which the first `put` allocates.

    The operating system provides memory for a page when a row is first written to it.
    """

    def __init__(self, specs: Sequence[ArraySpec], rows: int, used: Array | None, capacity: int) -> None:
        """Store the first `capacity` of the `used` rows.

        `used` has the sorted row numbers that the pipeline uses; None stands for all `rows` of the source.
        """
        self._specs, self._rows, self._used, self.capacity = tuple(specs), rows, used, capacity
        self.place = "in RAM"
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._is_stored = np.zeros(self.capacity + 1, bool)  # the last entry stands for all rows that are never stored
        # A thread claims a row before it writes it. Without a claim, two threads could write different results of a
        # random map to one row while a third thread reads it.
        self._is_claimed = np.zeros(self.capacity + 1, bool)
        self._is_claimed[self.capacity] = True
        self._count = 0
        self._arrays: list[Array] = []
        self._gathers: list[GatherFunction] = []

    @property
    def count(self) -> int:
        return self._count

    def find(self, numbers: Array) -> Array:
        return self._is_stored[self._indices_of(numbers)]

    def count_new(self, numbers: Array) -> int:
        indices = np.unique(self._indices_of(numbers))
        return int(np.count_nonzero((indices < self.capacity) & ~self._is_stored[indices]))

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        if not row_count(rows):
            return
        indices: Rows = rows if self._used is None else self._indices_of(row_array(rows))
        for gather, leaf in zip(self._gathers, out, strict=True):
            gather(indices, leaf)

    def put(self, numbers: Array, leaves: Sequence[Array]) -> None:
        indices = self._indices_of(numbers)
        claimed = indices[:0]
        try:
            with self._lock:
                is_new = ~self._is_claimed[indices]
                claimed = indices[is_new]
                self._is_claimed[claimed] = True
            if len(claimed):
                self._write(claimed, leaves if is_new.all() else [leaf[is_new] for leaf in leaves])
        except BaseException:  # such as KeyboardInterrupt; let a later call store these rows
            with self._lock:
                self._is_claimed[claimed] = self._is_stored[claimed]
            raise

    def _write(self, indices: Array, leaves: Sequence[Array]) -> None:
        for array, leaf in zip(self._allocated(), leaves, strict=True):
            array[indices] = leaf
        with self._lock:
            written = np.unique(indices)
            count = self._count + len(written)
            # Python raises KeyboardInterrupt at calls and jumps, so never between these two lines.
            self._is_stored[written] = True
            self._count = count

    def memory(self) -> list[MemoryRegion]:
        return [memory_region(array) for array in self._arrays] if self._holds_all_rows else []

    def memory_extents(self) -> list[list[MemoryExtent]]:
        return locate_extents(self._arrays) if self._holds_all_rows else []

    @property
    def _holds_all_rows(self) -> bool:
        return self._used is None and self._count == self._rows

    def _indices_of(self, numbers: Array) -> Array:
        """Return the index of each row in the arrays; `capacity` if never stored."""
        if self._used is None:
            return np.minimum(numbers, self.capacity)
        # Search, because a table with all rows of the source could take more memory than the cached rows.
        indices = np.searchsorted(self._used[: self.capacity], numbers)
        return np.where(self._used[np.minimum(indices, self.capacity - 1)] == numbers, indices, self.capacity)

    def _allocated(self) -> list[Array]:
        with self._lock:
            if not self._arrays:
                arrays = [spec.empty(self.capacity) for spec in self._specs]
                self._gathers = [make_gather(array) for array in arrays]
                self._arrays = arrays
        return self._arrays

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the rows: the process that unpickles the cache computes them again."""
        names = ("_specs", "_rows", "_used", "capacity", "place")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()
