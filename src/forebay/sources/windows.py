"""Windows: rows that consist of consecutive rows of a series.

Windows of arrays in memory and of mapped files share the memory of the series (`AbstractSource.windows`). For all other
sources, `WindowSource` reads the rows of each window.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from forebay.core.rows import Rows, row_array
from forebay.core.source import AbstractSource, Closeable
from forebay.core.spec import Array, ArraySpec
from forebay.errors import PipelineError
from forebay.sources.wrapping import WrappingSource

__all__ = ["WindowSource", "find_starts_within", "make_windows", "window_count"]


def window_count(rows: int, length: int, stride: int) -> int:
    """Return how many windows of `length` rows fit in a series of `rows` rows.

    A window begins at every `stride`-th row.
    """
    return max(0, (rows - length) // stride + 1)


def make_windows(source: AbstractSource, rows: slice, length: int, stride: int) -> AbstractSource:
    """Return a source of windows over some consecutive rows of a source.

    Raise PipelineError if `rows` is shorter than one window.
    """
    if window_count(rows.stop - rows.start, length, stride) == 0:
        raise PipelineError(
            f"a window has {length} rows, but the series has only {rows.stop - rows.start}. Choose a shorter window or "
            "horizon."
        )
    ragged = [name for spec, name in zip(source.specs, source.structure.paths, strict=True) if spec.ragged]
    if ragged:
        raise PipelineError(
            f"the rows of {ragged[0]!r} differ in shape, so windows cannot hold them. Pad the rows before window()."
        )
    windows = source.windows(rows, length, stride) or WindowSource(source, rows, length, stride)
    windows.identify = source.identify and partial(_identify_windows, source.identify, rows, length, stride)
    return windows


def _identify_windows(identify_rows: Callable[[], Any], rows: slice, length: int, stride: int) -> tuple[Any, ...]:
    return identify_rows(), rows, length, stride


def find_starts_within(labels: Array, length: int, stride: int) -> Array:
    """Return the first row of each window whose rows all have one label.

    Consecutive rows with one label form a run. The first window of a run begins at the run's first row, and the next
    windows begin at every `stride`-th row after it. Raise PipelineError if no run is long enough for a window.
    """
    run_starts = np.concatenate(([0], np.flatnonzero(labels[1:] != labels[:-1]) + 1))
    run_lengths = np.diff(np.concatenate((run_starts, [len(labels)])))
    counts = np.maximum(0, (run_lengths - length) // stride + 1)
    if not counts.any():
        raise PipelineError(
            f"a window has {length} rows, but at most {run_lengths.max()} consecutive rows have one label. Choose a "
            "shorter window or horizon."
        )
    numbers_in_run = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.asarray(np.repeat(run_starts, counts) + numbers_in_run * stride)


class WindowSource(WrappingSource):
    """Windows of any source. `gather` reads the rows of the windows from it."""

    def __init__(self, inner: AbstractSource, rows: slice, length: int, stride: int) -> None:
        super().__init__(inner, inner_rows=stride)
        self._stride, self._steps = stride, np.arange(rows.start, rows.start + length)
        self._length = window_count(rows.stop - rows.start, length, stride)
        self.specs = tuple(ArraySpec((length, *spec.shape), spec.dtype) for spec in inner.specs)
        self.structure = inner.structure
        self.scratch_row_nbytes = inner.scratch_row_nbytes * length
        self.can_prefetch = inner.can_prefetch

    def __len__(self) -> int:
        return self._length

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        inner_rows = self._rows_of_windows(rows)
        leaves = zip(out, self._inner.specs, strict=True)
        self._inner.gather(inner_rows, [leaf.reshape(len(inner_rows), *spec.shape) for leaf, spec in leaves])

    def prefetch(self, upcoming: Iterator[Rows]) -> Closeable | None:
        """Let the inner source prefetch the rows that `gather` reads from it."""
        return self._inner.prefetch(map(self._rows_of_windows, upcoming))

    def _rows_of_windows(self, rows: Rows) -> Array:
        """Return the row numbers of all rows of these windows in the inner source."""
        return np.asarray((row_array(rows)[:, None] * self._stride + self._steps).reshape(-1))
