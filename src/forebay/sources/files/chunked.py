"""Rows stored by chunk: a chunk is unpacked once, to its place in one array, and rows are gathered from there.

A chunk is the least that a compressed format can read. The array has room for all chunks where they may all be held:
each is then unpacked once. Otherwise the chunks used least recently make room (`shelf.py`).
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np

from forebay.core.rows import Rows
from forebay.core.source import MemoryRegion
from forebay.core.spec import Array, ArraySpec
from forebay.sources.arrays import GatherLeaf, gather_leaf
from forebay.sources.files.chunk_cache import ChunkCache

__all__ = ["ChunkedLeaf", "Unpack"]

Unpack: TypeAlias = Callable[[int, Array], None]  # writes the rows of a chunk, by its number; called in several threads
Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

_FEWEST_CHUNKS = 4  # held at once, however large they are: less would unpack the same ones over and over


class ChunkedLeaf:
    """One leaf whose rows lie in chunks; `starts` says where each begins, and after the last where it ends.

    `note` is what `explain()` should say of how it is unpacked.
    """

    def __init__(self, spec: ArraySpec, starts: Numbers, unpack: Unpack, note: str = "") -> None:
        self.spec, self.length, self.note = spec, int(starts[-1]), note
        lengths = np.diff(starts)
        self.chunk_rows = int(lengths.max(initial=1))
        self._starts, self._unpack = starts, unpack
        self._even = bool((lengths[:-1] == self.chunk_rows).all())
        self._shelf: ChunkCache | None = None
        self._array: Array | None = None

    @property
    def nbytes(self) -> int:
        """Of all rows, unpacked."""
        return self.length * self.spec.nbytes

    @property
    def held_nbytes(self) -> int:
        """Memory that unpacked chunks take now."""
        return 0 if self._shelf is None else self._shelf.used * self.chunk_rows * self.spec.nbytes

    def hold(self, nbytes: int) -> int:
        """Say how much may be held unpacked; how many chunks that is."""
        chunks = len(self._starts) - 1
        fit = nbytes // max(1, self.chunk_rows * self.spec.nbytes)
        places = chunks if self.nbytes <= nbytes else min(chunks, max(_FEWEST_CHUNKS, fit))
        # Where all are held, each lies at its own rows, and a row is found by its own number.
        firsts = self._starts[:-1] if places == chunks else np.arange(places, dtype=np.int64) * self.chunk_rows
        rows = self.length if places == chunks else places * self.chunk_rows
        self._array = np.empty((rows, *self.spec.batch_shape(0)[1:]), self.spec.dtype)  # takes memory as it is written
        self._shelf, self._gather = ChunkCache(chunks, firsts), gather_leaf(self._array)
        return places

    def gather(self, rows: Rows, out: Array) -> None:
        shelf, gather = self._shelf, self._gather
        assert shelf is not None
        if shelf.complete:
            gather(rows, out)
        elif isinstance(rows, slice):
            self._gather_run(shelf, gather, rows, out)
        elif len(rows):
            self._gather_scattered(shelf, gather, rows, out)

    def memory(self) -> list[MemoryRegion]:
        """Nothing: the rows lie in no memory until they are unpacked."""
        return []

    _gather: GatherLeaf

    def _gather_run(self, shelf: ChunkCache, gather: GatherLeaf, rows: slice, out: Array) -> None:
        start = rows.start
        while start < rows.stop:
            chunk = int(np.searchsorted(self._starts, start, side="right")) - 1
            first, stop = int(self._starts[chunk]), min(rows.stop, int(self._starts[chunk + 1]))
            with shelf.pin(np.asarray([chunk]), self._fill):
                place = int(shelf.first_rows(chunk)) + start - first
                gather(slice(place, place + stop - start), out[start - rows.start : stop - rows.start])
            start = stop

    def _gather_scattered(self, shelf: ChunkCache, gather: GatherLeaf, rows: Array, out: Array) -> None:
        chunks = self._chunks_of(rows)
        wanted = np.unique(chunks)
        if len(wanted) <= shelf.max_claim:
            self._gather_held(shelf, gather, wanted, chunks, rows, out)
            return
        order = np.argsort(chunks, kind="stable")
        for part, places in _parts(wanted, chunks, order, shelf.max_claim):
            found = np.empty((len(places), *out.shape[1:]), out.dtype)
            self._gather_held(shelf, gather, part, chunks[places], rows[places], found)
            out[places] = found

    def _gather_held(
        self, shelf: ChunkCache, gather: GatherLeaf, wanted: Array, chunks: Array, rows: Array, out: Array
    ) -> None:
        with shelf.pin(wanted, self._fill):
            gather(shelf.first_rows(chunks) + (rows - self._starts[chunks]), out)

    def _chunks_of(self, rows: Array) -> Array:
        return rows // self.chunk_rows if self._even else np.searchsorted(self._starts, rows, side="right") - 1

    def _fill(self, chunk: int, first_row: int) -> None:
        assert self._array is not None
        rows = int(self._starts[chunk + 1] - self._starts[chunk])
        if rows:
            self._unpack(chunk, self._array[first_row : first_row + rows])


def _parts(wanted: Array, chunks: Array, order: Array, most: int) -> Iterator[tuple[Array, Array]]:
    """Some chunks at a time, and the places of their rows."""
    sorted_chunks = chunks[order]
    for start, stop in pairwise([*range(0, len(wanted), most), len(wanted)]):
        begin, end = np.searchsorted(sorted_chunks, [wanted[start], wanted[stop - 1] + 1])
        yield wanted[start:stop], order[begin:end]
