"""Streams that repeat another stream, or shuffle it in a window."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.core.source import AbstractStream, StreamReader
from forebay.core.spec import Array
from forebay.errors import SourceError
from forebay.order.permutation import derive_key
from forebay.sources.streams.wrapping import ReplayingReader, WrappingStream, empty_rows

__all__ = ["RepeatedStream", "ShuffledStream", "is_repeated_without_end", "window_nbytes_of"]

_MAX_DRAWN_ROWS = 256  # rows that one draw takes at most; more rows need less time per row, but more memory


class RepeatedStream(WrappingStream):
    """The rows of `count` passes over a stream; endless if `count` is None."""

    def __init__(self, inner: AbstractStream, count: int | None) -> None:
        super().__init__(inner)
        self.count = count

    def start(self, epoch: int, state: dict[str, Any] | None = None) -> StreamReader:
        # Number the passes of all epochs, so that no two passes start with the same epoch number. An endless epoch
        # reserves 2**32 numbers.
        return _RepeatedReader(self, epoch * (self.count or 1 << 32))

    def describe(self) -> tuple[Any, ...]:
        return ("repeated", self.count, *self.inner.describe())


class ShuffledStream(WrappingStream):
    """A stream that yields random rows from a window, a buffer of `window_nbytes`.

    The next rows of the wrapped stream take the places of the yielded rows in the window.
    """

    def __init__(self, inner: AbstractStream, seed: int, window_nbytes: int) -> None:
        super().__init__(inner)
        self.seed, self.window_nbytes = seed, window_nbytes

    @property
    def window_rows(self) -> int:
        return max(1, self.window_nbytes // max(1, sum(spec.nbytes for spec in self.specs)))

    def start(self, epoch: int, state: dict[str, Any] | None = None) -> StreamReader:
        if any(spec.ragged for spec in self.specs):
            raise SourceError("rows differ in shape, so a window cannot shuffle them. Shuffle them in the generator.")
        return _ShuffledReader(self, self.inner.start(epoch), derive_key(self.seed, epoch))

    def describe(self) -> tuple[Any, ...]:
        return ("window-shuffled", self.seed, self.window_nbytes, *self.inner.describe())


def is_repeated_without_end(stream: Any) -> bool:
    """Return whether a stream repeats without end.

    It does if it contains a `RepeatedStream` without a count, unless a stream that wraps the repeated one ends early.
    """
    while isinstance(stream, WrappingStream) and not stream.ends_early:
        if isinstance(stream, RepeatedStream) and stream.count is None:
            return True
        stream = stream.inner
    return False


def window_nbytes_of(stream: AbstractStream | None) -> int:
    """Return the bytes of the shuffle windows in a stream and its wrapped streams."""
    nbytes = 0
    while stream is not None:
        nbytes += stream.window_nbytes if isinstance(stream, ShuffledStream) else 0
        stream = stream.inner
    return nbytes


class _RepeatedReader(ReplayingReader):
    """Starts the wrapped stream again after each pass, with the next epoch number."""

    def __init__(self, stream: RepeatedStream, epoch: int) -> None:
        self._stream, self._epoch, self.specs = stream, epoch, stream.specs
        self._passes_left = stream.count  # passes not started yet; None: endless
        self._inner: StreamReader | None = None
        self._pass_rows = 0  # rows read in the current pass

    def read(self, out: Sequence[Array]) -> int:
        rows_done, wanted = 0, len(out[0])
        while rows_done < wanted and (self._inner or self._passes_left != 0):
            inner = self._inner or self._start_pass()
            count = inner.read([leaf[rows_done:] for leaf in out])
            rows_done, self._pass_rows = rows_done + count, self._pass_rows + count
            if rows_done < wanted:  # a reader returns fewer rows than requested only at its end
                self._end_pass()
        return rows_done

    def _start_pass(self) -> StreamReader:
        self._inner = self._stream.inner.start(self._epoch)
        self._epoch, self._pass_rows = self._epoch + 1, 0
        self._passes_left = None if self._passes_left is None else self._passes_left - 1
        return self._inner

    def _end_pass(self) -> None:
        if self._pass_rows == 0 and self._passes_left is None:
            raise SourceError(
                "repeat() would never end: the generator yielded no row in a complete pass. Yield rows, or set a count."
            )
        self.close()

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()
            self._inner = None


class _ShuffledReader(ReplayingReader):
    """Draws a fixed number of rows at a time from the window.

    The order therefore does not depend on how many rows each `read` requests.
    """

    def __init__(self, stream: ShuffledStream, inner: StreamReader, key: int) -> None:
        self._inner, self.specs = inner, stream.specs
        self._window = empty_rows(stream.specs, stream.window_rows)  # one array for each leaf
        self._draw_rows = max(1, min(_MAX_DRAWN_ROWS, stream.window_rows // 4))
        self._drawn = empty_rows(stream.specs, self._draw_rows)
        # `_drawn[_next_drawn:_drawn_count]` are the rows that `read` has not returned yet.
        self._next_drawn, self._drawn_count = 0, 0
        self._random = np.random.Philox(key=key)
        self._window_count = -1  # rows in the window; -1 before the first `read`

    def read(self, out: Sequence[Array]) -> int:
        if self._window_count < 0:
            self._window_count = self._inner.read(self._window)
        rows_done, wanted = 0, len(out[0])
        while rows_done < wanted and (self._next_drawn < self._drawn_count or self._draw_from_window()):
            count = min(wanted - rows_done, self._drawn_count - self._next_drawn)
            for leaf, drawn in zip(out, self._drawn, strict=True):
                leaf[rows_done : rows_done + count] = drawn[self._next_drawn : self._next_drawn + count]
            rows_done, self._next_drawn = rows_done + count, self._next_drawn + count
        return rows_done

    def _draw_from_window(self) -> bool:
        """Move random rows from the window to `_drawn`, and refill the window.

        Return False if the window is empty.
        """
        count = min(self._draw_rows, self._window_count)
        if count == 0:
            return False
        chosen = self._choose_positions(count)
        for window, drawn in zip(self._window, self._drawn, strict=True):
            # All positions are valid. With the default mode "raise", NumPy would write to a temporary buffer first.
            window.take(chosen, axis=0, out=drawn[:count], mode="clip")
        new_rows = empty_rows(self.specs, count)
        has_ended = self._window_count < len(self._window[0])  # the stream had too few rows to fill the window
        new_count = 0 if has_ended else self._inner.read(new_rows)
        for window, leaf in zip(self._window, new_rows, strict=True):
            window[chosen[:new_count]] = leaf[:new_count]
        self._remove_rows(chosen[new_count:])
        self._next_drawn, self._drawn_count = 0, count
        return True

    def _choose_positions(self, count: int) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Return `count` distinct random positions in the window.

        If `count` is at most a quarter of the window, draw positions and replace the few duplicates. Otherwise sort
        random keys of the whole window.
        """
        if count * 4 > self._window_count:
            return np.argsort(self._random.random_raw(self._window_count), kind="stable")[:count]
        chosen = np.empty(0, dtype=np.intp)
        while len(chosen) < count:
            drawn = (self._random.random_raw(count - len(chosen)) % np.uint64(self._window_count)).astype(np.intp)
            candidates = np.concatenate([chosen, drawn])
            _, first_indices = np.unique(candidates, return_index=True)
            chosen = candidates[np.sort(first_indices)]  # without duplicates, in the order drawn
        return chosen

    def _remove_rows(self, positions: np.ndarray[Any, np.dtype[np.intp]]) -> None:
        """Remove the rows at `positions` from the window, because the stream has ended."""
        if positions.size == 0:
            return
        keep = np.ones(self._window_count, dtype=bool)
        keep[positions] = False
        for window in self._window:
            window[: self._window_count - positions.size] = window[: self._window_count][keep]
        self._window_count -= positions.size

    def close(self) -> None:
        self._inner.close()
