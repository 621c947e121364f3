"""One leaf that a format stores in chunks.

Each chunk is decompressed into a cache, and rows are gathered from the cache.

A chunk is the smallest unit that a compressed format can read. If the budget allows, the cache holds all chunks and
each is decompressed once. Otherwise the cache evicts the least recently used chunk (`chunk_cache.py`).
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

__all__ = ["ChunkedColumn", "DecompressChunk", "chunk_policy_of", "share_budget"]

# Called as `decompress(chunk, out)`: writes the rows of a chunk to `out`. Several threads call it at the same time.
DecompressChunk: TypeAlias = Callable[[int, Array], None]
ChunkBoundaries: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

_MIN_CHUNKS = 4  # held even above the budget: with fewer, shuffled reads would decompress the same chunks repeatedly
_MAIN_COLUMN_SHARE = 8  # a column with less than 1/8 of the bytes of the largest does not set the chunk length


class ChunkedColumn:
    """One leaf in chunks: chunk `i` holds the rows from `boundaries[i]` to `boundaries[i + 1]`.

    `explain()` shows `note`.
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
        """Decompressed size of all rows."""
        return self.length * self.spec.nbytes

    @property
    def held_nbytes(self) -> int:
        """Memory that decompressed chunks take now."""
        return self._cache.used * self.chunk_rows * self.spec.nbytes

    def set_budget(self, nbytes: int) -> int:
        """Set the memory for decompressed chunks and return how many fit.

        This drops the chunks that are held now.
        """
        chunks = len(self._boundaries) - 1
        fitting = nbytes // max(1, self.chunk_rows * self.spec.nbytes)
        held = chunks if self.nbytes <= nbytes else min(chunks, max(_MIN_CHUNKS, fitting))
        # If all chunks fit, row i of the leaf is row i of the array, and no lookup is needed.
        first_rows = self._boundaries[:-1] if held == chunks else np.arange(held, dtype=np.int64) * self.chunk_rows
        rows = self.length if held == chunks else held * self.chunk_rows
        # The operating system assigns memory to this array only when a chunk is written.
        self._array: Array = np.empty((rows, *self.spec.batch_shape(0)[1:]), self.spec.dtype)
        self._cache, self._gather = ChunkCache(chunks, first_rows), make_gather(self._array)
        return held

    def gather(self, rows: Rows, out: Array) -> None:
        if self._cache.is_complete:
            self._gather(rows, out)
        elif isinstance(rows, slice):
            self._gather_slice(rows, out)
        elif len(rows):
            self._gather_scattered(rows, out)

    def memory(self) -> list[MemoryRegion]:
        """Return no region: the file holds compressed rows."""
        return []

    def memory_extents(self) -> list[MemoryExtent]:
        return []

    def _gather_slice(self, rows: slice, out: Array) -> None:
        for chunk, part in split_slice(rows, self._boundaries):
            with self._cache.pin(np.asarray([chunk]), self._fill):
                shift = int(self._cache.first_rows(chunk)) - int(self._boundaries[chunk])
                held = slice(part.start + shift, part.stop + shift)
                self._gather(held, out[part.start - rows.start : part.stop - rows.start])

    def _gather_scattered(self, rows: Array, out: Array) -> None:
        chunks = self._chunks_of(rows)
        needed = np.unique(chunks)
        if len(needed) <= self._cache.max_claim:
            self._gather_pinned(needed, chunks, rows, out)
            return
        for some_chunks, positions in _claims(needed, chunks, self._cache.max_claim):
            found = np.empty((len(positions), *out.shape[1:]), out.dtype)
            self._gather_pinned(some_chunks, chunks[positions], rows[positions], found)
            out[positions] = found

    def _gather_pinned(self, needed: Array, chunks: Array, rows: Array, out: Array) -> None:
        with self._cache.pin(needed, self._fill):
            self._gather(self._cache.first_rows(chunks) + (rows - self._boundaries[chunks]), out)

    def _chunks_of(self, rows: Array) -> Array:
        return rows // self.chunk_rows if self._has_equal_chunks else find_parts(rows, self._boundaries)

    def _fill(self, chunk: int, first_row: int) -> None:
        rows = int(self._boundaries[chunk + 1] - self._boundaries[chunk])
        if rows:
            self._decompress(chunk, self._array[first_row : first_row + rows])


def chunk_policy_of(columns: Sequence[ChunkedColumn]) -> ChunkPolicy:
    """Return the chunk policy, from the longest chunk of the large columns.

    Small columns, such as labels, often have one chunk for the whole file, so they are ignored.
    """
    largest = max((column.nbytes for column in columns), default=0)
    rows = max((column.chunk_rows for column in columns if column.nbytes * _MAIN_COLUMN_SHARE >= largest), default=1)
    notes = tuple(column.note for column in columns if column.note)
    return ChunkPolicy(rows, sum(column.spec.nbytes for column in columns), notes)


def share_budget(columns: Sequence[ChunkedColumn], max_held_nbytes: int) -> None:
    """Divide the memory budget among columns.

    Small columns are held completely. The others share the rest by row size.
    """
    left, remaining = max_held_nbytes, sorted(columns, key=lambda column: column.nbytes)
    while remaining and remaining[0].nbytes <= left // len(remaining):
        column = remaining.pop(0)
        column.set_budget(column.nbytes)
        left -= column.nbytes
    row_nbytes = sum(column.spec.nbytes for column in remaining)
    for column in remaining:
        column.set_budget(left * column.spec.nbytes // row_nbytes)


def _claims(needed: Array, chunks: Array, max_claim: int) -> Iterator[tuple[Array, Array]]:
    """Yield at most `max_claim` needed chunks at a time, with their row positions."""
    order = np.argsort(chunks, kind="stable")
    sorted_chunks = chunks[order]
    for start, stop in pairwise([*range(0, len(needed), max_claim), len(needed)]):
        first, last = np.searchsorted(sorted_chunks, [needed[start], needed[stop - 1] + 1])
        yield needed[start:stop], order[first:last]
