"""Verbs on streams: take, repeat and shuffle in a window, each a stream around a stream."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from forebay.core.source import Array, Stream, StreamReader
from forebay.core.spec import ArraySpec, Structure
from forebay.errors import SourceError
from forebay.order.orders import derive_key

__all__ = ["RepeatedStream", "ShuffledStream", "TakenStream"]

MOST_DRAWN = 256  # rows drawn from a shuffle window at a time


class _Around:
    """What all three share: they look like the stream below."""

    below: Stream

    @property
    def specs(self) -> Sequence[ArraySpec]:
        return self.below.specs

    @property
    def structure(self) -> Structure:
        return self.below.structure

    def sample(self, rows: int) -> list[list[Array]]:
        return self.below.sample(rows)

    def close(self) -> None:
        self.below.close()


class _Replayed(ABC):
    """A reader without a state of its own: resuming reads the rows again and passes over them."""

    specs: Sequence[ArraySpec]

    @abstractmethod
    def read(self, out: Sequence[Array]) -> int: ...

    def state_dict(self) -> dict[str, Any] | None:
        return None

    def skip(self, rows: int) -> int:
        # Read for real, in pieces: what was skipped must leave the reader as reading would.
        done = 0
        while done < rows:
            count = self.read(_scratch(self.specs, min(1024, rows - done)))
            done += count
            if count == 0:
                break
        return done


@dataclass(frozen=True)
class TakenStream(_Around):
    """The first `count` rows."""

    below: Stream
    count: int

    def start(self, epoch: int, state: dict[str, Any] | None = None) -> StreamReader:
        return _TakenReader(self.below.start(epoch), self.count, self.specs)

    def describe(self) -> tuple[Any, ...]:
        return ("taken", self.count, *self.below.describe())


@dataclass(frozen=True)
class RepeatedStream(_Around):
    """The stream below several times over, or for ever."""

    below: Stream
    count: int | None

    def start(self, epoch: int, state: dict[str, Any] | None = None) -> StreamReader:
        return _RepeatedReader(self, epoch * (self.count or 1 << 32))

    def describe(self) -> tuple[Any, ...]:
        return ("repeated", self.count, *self.below.describe())


@dataclass(frozen=True)
class ShuffledStream(_Around):
    """Rows leave a window of so many bytes at random; each that leaves makes room for the next of the stream."""

    below: Stream
    seed: int
    window_nbytes: int

    @property
    def window_rows(self) -> int:
        return max(1, self.window_nbytes // max(1, sum(spec.nbytes for spec in self.specs)))

    def start(self, epoch: int, state: dict[str, Any] | None = None) -> StreamReader:
        if any(spec.ragged for spec in self.specs):
            raise SourceError("rows of different shape cannot be shuffled in a window: shuffle them in the generator.")
        return _ShuffledReader(self, self.below.start(epoch), derive_key(self.seed, epoch))

    def describe(self) -> tuple[Any, ...]:
        return ("window-shuffled", self.seed, self.window_nbytes, *self.below.describe())


class _TakenReader(_Replayed):
    def __init__(self, below: StreamReader, count: int, specs: Sequence[ArraySpec]) -> None:
        self._below, self._left, self.specs = below, count, specs

    def read(self, out: Sequence[Array]) -> int:
        wanted = min(self._left, len(out[0]))
        count = self._below.read([leaf[:wanted] for leaf in out]) if wanted else 0
        self._left -= count
        return count

    def close(self) -> None:
        self._below.close()


class _RepeatedReader(_Replayed):
    def __init__(self, stream: RepeatedStream, epoch: int) -> None:
        self._stream, self._epoch, self.specs = stream, epoch, stream.specs
        self._passes_left = stream.count
        self._below: StreamReader | None = None
        self._pass_rows = 0

    def read(self, out: Sequence[Array]) -> int:
        done, wanted = 0, len(out[0])
        while done < wanted and (self._below or self._passes_left != 0):
            below = self._below or self._next_pass()
            count = below.read([leaf[done:] for leaf in out])
            done, self._pass_rows = done + count, self._pass_rows + count
            if done < wanted:
                self._end_pass()
        return done

    def _next_pass(self) -> StreamReader:
        self._below = self._stream.below.start(self._epoch)
        self._epoch, self._pass_rows = self._epoch + 1, 0
        self._passes_left = None if self._passes_left is None else self._passes_left - 1
        return self._below

    def _end_pass(self) -> None:
        if self._pass_rows == 0 and self._passes_left is None:
            raise SourceError("repeat() would go on for ever: the generator gave no row in a whole pass.")
        self.close()

    def close(self) -> None:
        if self._below is not None:
            self._below.close()
            self._below = None


class _ShuffledReader(_Replayed):
    """Draws a fixed number of rows at a time and deals them out, so that the order never depends on how it is read."""

    def __init__(self, stream: ShuffledStream, below: StreamReader, key: int) -> None:
        self._below, self.specs = below, stream.specs
        self._window = _scratch(stream.specs, stream.window_rows)
        self._draw_rows = max(1, min(MOST_DRAWN, stream.window_rows // 4))
        self._drawn, self._given, self._ready = _scratch(stream.specs, self._draw_rows), 0, 0
        self._bits = np.random.Philox(key=key)
        self._held = -1  # rows in the window; filled at the first read

    def read(self, out: Sequence[Array]) -> int:
        if self._held < 0:
            self._held = self._below.read(self._window)
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
        fresh = _scratch(self.specs, count)
        got = self._below.read(fresh) if self._held == len(self._window[0]) else 0
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
        self._below.close()


def _scratch(specs: Sequence[ArraySpec], rows: int) -> list[Array]:
    return [spec.empty(rows) for spec in specs]
