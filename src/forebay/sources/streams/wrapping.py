"""The base classes of streams that wrap another stream."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from forebay.core.source import AbstractStream
from forebay.core.spec import Array, ArraySpec

__all__ = ["ReplayingReader", "WrappingStream", "empty_rows"]

_SKIP_ROWS = 1024  # rows that `skip` reads at a time; a larger number makes fewer calls, but needs more memory


class WrappingStream(AbstractStream):
    """A stream with the specs and the sample of the stream that it wraps.

    Most subclasses ignore the `state` of `start`, because their readers have no state (see `ReplayingReader`).
    """

    inner: AbstractStream
    ends_early = False  # whether this stream ends after a number of rows, even if `inner` is endless

    def __init__(self, inner: AbstractStream) -> None:
        self.inner, self.specs, self.structure = inner, inner.specs, inner.structure

    def sample(self, rows: int) -> list[list[Array]]:
        return self.inner.sample(rows)

    def close(self) -> None:
        self.inner.close()


class ReplayingReader(ABC):
    """A reader without state: a resumed feed starts a new reader and calls `skip`."""

    specs: Sequence[ArraySpec]

    @abstractmethod
    def read(self, out: Sequence[Array]) -> int: ...

    def state_dict(self) -> dict[str, Any] | None:
        return None

    def skip(self, rows: int) -> int:
        # Do not call `skip` of the inner reader: after `skip`, a window must hold the same rows as after `read`.
        rows_done = 0
        while rows_done < rows:
            count = self.read(empty_rows(self.specs, min(_SKIP_ROWS, rows - rows_done)))
            rows_done += count
            if count == 0:
                break
        return rows_done


def empty_rows(specs: Sequence[ArraySpec], rows: int) -> list[Array]:
    """Return an array for this number of rows of each leaf."""
    return [spec.empty(rows) for spec in specs]
