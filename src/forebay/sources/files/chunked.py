"""One leaf that a file stores in compressed chunks.

`ChunkedColumn` decompresses chunks into a cache and gathers rows from the cache. A chunk is the smallest unit that can
be decompressed. If the memory budget allows, the cache holds all chunks, and each chunk is decompressed only once.
Otherwise the cache evicts the least recently used chunk (`chunk_cache.py`).
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from forebay.core.chunk_policy import ChunkPolicy
from forebay.core.rows import Rows, find_parts, split_slice
from forebay.core.source import MemoryExtent, MemoryRegion
from forebay.core.spec import Array, ArraySpec
from forebay.sources.arrays import make_gather
from forebay.sources.files.chunk_cache import ChunkCache

__all__ = [
    "MIN_CACHED_CHUNKS",
    "ChunkBoundaries",
    "ChunkedColumn",
    "DecompressChunk",
    "chunk_policy_of",
    "share_budget",
]

# `decompress(chunk, out)` writes the rows of chunk number `chunk` to `out`. Several threads may call it at once.
DecompressChunk: TypeAlias = Callable[[int, Array], None]
ChunkBoundaries: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

# The cache holds this many chunks even if they exceed the budget. With fewer cached chunks, shuffled reads would
# decompress the same chunks again and again.
MIN_CACHED_CHUNKS = 4
_SMALL_COLUMN_DIVISOR = 8  # a column with less than 1/8 of the bytes of the largest column is small


class ChunkedColumn:
    """One leaf in chunks: chunk `i` holds rows `boundaries[i]` to `boundaries[i + 1] - 1`.

    `note` is a remark about the file format, which `explain()` shows.
    """

    def __init__(
        self, spec: ArraySpec, boundaries: ChunkBoundaries, decompress: DecompressChunk, note: str = ""
    ) -> None:
        self.spec, self.length, self.note = spec, int(boundaries[-1]), note
        lengths = np.diff(boundaries)
        self.chunk_rows = int(lengths.max(initial=1))
        self._boundaries, self._decompress = boundaries, decompress
        self._has_equal_chunks = bool((lengths[:-1] == self.chunk_rows).all())
        self.set_budget(0)

    @property
    def nbytes(self) -> int:
        """Decompressed size of all rows, in bytes."""
        return self.length * self.spec.nbytes

    @property
    def held_nbytes(self) -> int:
        """Bytes of the buffers that hold chunks now."""
        return self._cache.used_buffers * self.chunk_rows * self.spec.nbytes

    def set_budget(self, nbytes: int) -> int:
        """Replace the cache by an empty one with this budget. Return its capacity in chunks.

        The capacity is at least `MIN_CACHED_CHUNKS`, or all chunks if the file has fewer.
        """
        chunks = len(self._boundaries) - 1
        fitting = nbytes // max(1, self.chunk_rows * self.spec.nbytes)
        cached = chunks if self.nbytes <= nbytes else min(chunks, max(MIN_CACHED_CHUNKS, fitting))
        # If all chunks fit, row i of the leaf is row i of the array, so `gather` needs no lookup of chunks.
        first_rows = self._boundaries[:-1] if cached == chunks else np.arange(cached, dtype=np.int64) * self.chunk_rows
        rows = self.length if cached == chunks else cached * self.chunk_rows
        # The operating system assigns memory to a page of this array only when a chunk is written to it.
        self._array: Array = np.empty((rows, *self.spec.batch_shape(0)[1:]), self.spec.dtype)
        self._cache, self._gather = ChunkCache(chunks, first_rows), make_gather(self._array)
        return cached

    def gather(self, rows: Rows, out: Array) -> None:
        if self._cache.is_complete:
            self._gather(rows, out)
        elif isinstance(rows, slice):
            self._gather_slice(rows, out)
        elif len(rows):
            self._gather_scattered(rows, out)

    def memory(self) -> list[MemoryRegion]:
        """Return no region, because the file stores the rows compressed."""
        return []

    def memory_extents(self) -> list[MemoryExtent]:
        return []

    def _gather_slice(self, rows: slice, out: Array) -> None:
        for chunk, part in split_slice(rows, self._boundaries):
            with self._cache.pin(np.asarray([chunk]), self._fill):
                shift = int(self._cache.first_rows(chunk)) - int(self._boundaries[chunk])
                cached_rows = slice(part.start + shift, part.stop + shift)
                self._gather(cached_rows, out[part.start - rows.start : part.stop - rows.start])

    def _gather_scattered(self, rows: Array, out: Array) -> None:
        chunks = self._find_chunks(rows)
        needed = np.unique(chunks)
        if len(needed) <= self._cache.max_pinned:
            self._pin_and_gather(needed, chunks, rows, out)
            return
        for needed_part, positions in _split_for_pinning(needed, chunks, self._cache.max_pinned):
            gathered = np.empty((len(positions), *out.shape[1:]), out.dtype)
            self._pin_and_gather(needed_part, chunks[positions], rows[positions], gathered)
            out[positions] = gathered

    def _pin_and_gather(self, needed: Array, chunks: Array, rows: Array, out: Array) -> None:
        """Gather rows; `chunks[i]` is the chunk of `rows[i]`, and `needed` has each chunk once."""
        with self._cache.pin(needed, self._fill):
            self._gather(self._cache.first_rows(chunks) + (rows - self._boundaries[chunks]), out)

    def _find_chunks(self, rows: Array) -> Array:
        """Return the number of the chunk of each row."""
        return rows // self.chunk_rows if self._has_equal_chunks else find_parts(rows, self._boundaries)

    def _fill(self, chunk: int, first_row: int) -> None:
        rows = int(self._boundaries[chunk + 1] - self._boundaries[chunk])
        if rows:
            self._decompress(chunk, self._array[first_row : first_row + rows])


def chunk_policy_of(columns: Sequence[ChunkedColumn]) -> ChunkPolicy:
    """Return the chunk policy of a source, from the longest chunk of its large columns.

    Small columns are ignored. Labels, for example, often have one chunk for the whole file, so the blocks of a shuffle
    would be as long as the file.
    """
    largest = max((column.nbytes for column in columns), default=0)
    rows = max((column.chunk_rows for column in columns if column.nbytes * _SMALL_COLUMN_DIVISOR >= largest), default=1)
    notes = tuple(column.note for column in columns if column.note)
    return ChunkPolicy(rows, sum(column.spec.nbytes for column in columns), notes)


def share_budget(columns: Sequence[ChunkedColumn], max_held_nbytes: int) -> None:
    """Set the cache budget of each column, within `max_held_nbytes` for all columns.

    Columns that fit in an equal share are cached completely. Larger columns share the remaining bytes in proportion to
    their row sizes.
    """
    budget_nbytes, remaining = max_held_nbytes, sorted(columns, key=lambda column: column.nbytes)
    while remaining and remaining[0].nbytes <= budget_nbytes // len(remaining):
        column = remaining.pop(0)
        column.set_budget(column.nbytes)
        budget_nbytes -= column.nbytes
    row_nbytes = sum(column.spec.nbytes for column in remaining)
    for column in remaining:
        column.set_budget(budget_nbytes * column.spec.nbytes // row_nbytes)


def _split_for_pinning(needed: Array, chunks: Array, max_pinned: int) -> Iterator[tuple[Array, Array]]:
    """Split the needed chunks into parts of at most `max_pinned` chunks.

    Yield each part, and the positions of its rows. `chunks` has the chunk of the row at each position.
    """
    order = np.argsort(chunks, kind="stable")
    sorted_chunks = chunks[order]
    for start, stop in pairwise([*range(0, len(needed), max_pinned), len(needed)]):
        first, last = np.searchsorted(sorted_chunks, [needed[start], needed[stop - 1] + 1])
        yield needed[start:stop], order[first:last]
