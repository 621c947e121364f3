"""Streams that wrap a stream: take, repeat, and shuffle in a window."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.core.source import AbstractStream, StreamReader
from forebay.core.spec import Array, ArraySpec
from forebay.errors import SourceError
from forebay.order.orders import derive_key

__all__ = ["RepeatedStream", "ShuffledStream", "TakenStream"]

_MAX_DRAWN_ROWS = 256  # drawn from the shuffle window at a time
_SKIP_ROWS = 1024  # read at a time to skip rows


class _WrappingStream(AbstractStream):
    """A stream with the specs and the sample of the stream that it wraps."""

    inner: AbstractStream

    def __init__(self, inner: AbstractStream) -> None:
        self.inner, self.specs, self.structure = inner, inner.specs, inner.structure

    def sample(self, rows: int) -> list[list[Array]]:
        return self.inner.sample(rows)

    def close(self) -> None:
        self.inner.close()


class TakenStream(_WrappingStream):
    """The first `count` rows of a stream."""

    def __init__(self, inner: AbstractStream, count: int) -> None:
        super().__init__(inner)
        self.count = count

    def start(self, epoch: int, state: dict[str, Any] | None = None) -> StreamReader:
        return _TakenReader(self.inner.start(epoch), self.count, self.specs)

    def describe(self) -> tuple[Any, ...]:
        return ("taken", self.count, *self.inner.describe())


class RepeatedStream(_WrappingStream):
    """A stream repeated `count` times, or without end if `count` is None."""

    def __init__(self, inner: AbstractStream, count: int | None) -> None:
        super().__init__(inner)
        self.count = count

    def start(self, epoch: int, state: dict[str, Any] | None = None) -> StreamReader:
        return _RepeatedReader(self, epoch * (self.count or 1 << 32))

    def describe(self) -> tuple[Any, ...]:
        return ("repeated", self.count, *self.inner.describe())


class ShuffledStream(_WrappingStream):
    """A stream whose rows leave a window of `window_nbytes` in random order.

    Each row that leaves the window is replaced by the next row of the stream.
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


class _ReplayingReader(ABC):
    """A reader without state: to resume, it reads the rows again and skips them."""

    specs: Sequence[ArraySpec]

    @abstractmethod
    def read(self, out: Sequence[Array]) -> int: ...

    def state_dict(self) -> dict[str, Any] | None:
        return None

    def skip(self, rows: int) -> int:
        # Read the rows in full: the reader must end in the same state as after `read`.
        done = 0
        while done < rows:
            count = self.read(_empty_rows(self.specs, min(_SKIP_ROWS, rows - done)))
            done += count
            if count == 0:
                break
        return done


class _TakenReader(_ReplayingReader):
    def __init__(self, inner: StreamReader, count: int, specs: Sequence[ArraySpec]) -> None:
        self._inner, self._left, self.specs = inner, count, specs

    def read(self, out: Sequence[Array]) -> int:
        wanted = min(self._left, len(out[0]))
        count = self._inner.read([leaf[:wanted] for leaf in out]) if wanted else 0
        self._left -= count
        return count

    def close(self) -> None:
        self._inner.close()


class _RepeatedReader(_ReplayingReader):
    def __init__(self, stream: RepeatedStream, epoch: int) -> None:
        self._stream, self._epoch, self.specs = stream, epoch, stream.specs
        self._passes_left = stream.count
        self._inner: StreamReader | None = None
        self._pass_rows = 0

    def read(self, out: Sequence[Array]) -> int:
        done, wanted = 0, len(out[0])
        while done < wanted and (self._inner or self._passes_left != 0):
            inner = self._inner or self._next_pass()
            count = inner.read([leaf[done:] for leaf in out])
            done, self._pass_rows = done + count, self._pass_rows + count
            if done < wanted:
                self._end_pass()
        return done

    def _next_pass(self) -> StreamReader:
        self._inner = self._stream.inner.start(self._epoch)
        self._epoch, self._pass_rows = self._epoch + 1, 0
        self._passes_left = None if self._passes_left is None else self._passes_left - 1
        return self._inner

    def _end_pass(self) -> None:
        if self._pass_rows == 0 and self._passes_left is None:
            raise SourceError("repeat() would go on for ever: the generator gave no row in a whole pass.")
        self.close()

    def close(self) -> None:
        if self._inner is not None:
            self._inner.close()
            self._inner = None


class _ShuffledReader(_ReplayingReader):
    """Draws a fixed number of rows at a time and deals them out, so that the order never depends on how it is read."""

    def __init__(self, stream: ShuffledStream, inner: StreamReader, key: int) -> None:
        self._inner, self.specs = inner, stream.specs
        self._window = _empty_rows(stream.specs, stream.window_rows)
        self._draw_rows = max(1, min(_MAX_DRAWN_ROWS, stream.window_rows // 4))
        self._drawn, self._given, self._ready = _empty_rows(stream.specs, self._draw_rows), 0, 0
        self._bits = np.random.Philox(key=key)
        self._held = -1  # rows in the window; filled at the first read

    def read(self, out: Sequence[Array]) -> int:
        if self._held < 0:
            self._held = self._inner.read(self._window)
        done, wanted = 0, len(out[0])
        while done < wanted and (self._given < self._ready or self._draw()):
            count = min(wanted - done, self._ready - self._given)
            for leaf, drawn in zip(out, self._drawn, strict=True):
                leaf[done : done + count] = drawn[self._given : self._given + count]
            done, self._given = done + count, self._given + count
        return done

    def _draw(self) -> bool:
        """Take rows out of the window, drawn without repetition, and put the stream's next rows in their places."""
        count = min(self._draw_rows, self._held)
        if count == 0:
            return False
        chosen = self._choose(count)
        for window, drawn in zip(self._window, self._drawn, strict=True):
            window.take(chosen, axis=0, out=drawn[:count], mode="clip")
        fresh = _empty_rows(self.specs, count)
        got = self._inner.read(fresh) if self._held == len(self._window[0]) else 0
        for window, leaf in zip(self._window, fresh, strict=True):
            window[chosen[:got]] = leaf[:got]
        self._close_gaps(chosen[got:])
        self._given, self._ready = 0, count
        return True

    def _choose(self, count: int) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Distinct places in the window, each as likely as any other."""
        if count * 4 > self._held:
            return np.argsort(self._bits.random_raw(self._held), kind="stable")[:count]
        chosen = np.empty(0, dtype=np.intp)
        while len(chosen) < count:
            more = (self._bits.random_raw(count - len(chosen)) % np.uint64(self._held)).astype(np.intp)
            drawn = np.concatenate([chosen, more])
            _, first = np.unique(drawn, return_index=True)
            chosen = drawn[np.sort(first)]
        return chosen

    def _close_gaps(self, empty: np.ndarray[Any, np.dtype[np.intp]]) -> None:
        """The stream has ended: move the last rows of the window into the places that stay empty."""
        kept = np.ones(self._held, dtype=bool)
        kept[empty] = False
        if empty.size:
            for window in self._window:
                window[: self._held - empty.size] = window[: self._held][kept]
            self._held -= empty.size

    def close(self) -> None:
        self._inner.close()


def _empty_rows(specs: Sequence[ArraySpec], rows: int) -> list[Array]:
    return [spec.empty(rows) for spec in specs]
