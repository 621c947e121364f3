"""Streams that wrap another stream and keep some of its rows: take, skip and filter."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from forebay.core.source import AbstractStream, StreamReader
from forebay.core.spec import Array, ArraySpec
from forebay.errors import SourceError
from forebay.sources.row_filter import RowFilter
from forebay.sources.streams.wrapping import ReplayingReader, WrappingStream

__all__ = ["FilteredStream", "SkippedStream", "TakenStream"]

_MAX_SAMPLE_ROWS = 1 << 16  # rows that `FilteredStream.sample` searches at most, because it holds them in memory


class TakenStream(WrappingStream):
    """The first `count` rows of a stream."""

    ends_early = True

    def __init__(self, inner: AbstractStream, count: int) -> None:
        super().__init__(inner)
        self.count = count

    def start(self, epoch: int, state: dict[str, Any] | None = None) -> StreamReader:
        return _TakenReader(self.inner.start(epoch), self.count, self.specs)

    def describe(self) -> tuple[Any, ...]:
        return ("taken", self.count, *self.inner.describe())


class SkippedStream(WrappingStream):
    """A stream without its first `count` rows."""

    def __init__(self, inner: AbstractStream, count: int) -> None:
        super().__init__(inner)
        self.count = count

    def sample(self, rows: int) -> list[list[Array]]:
        found = self.inner.sample(self.count + rows)
        if len(found) <= self.count:
            raise SourceError(
                f"skip({self.count}) leaves no row: the stream has only {len(found)} rows. Skip fewer rows."
            )
        return found[self.count :]

    def start(self, epoch: int, state: dict[str, Any] | None = None) -> StreamReader:
        return _SkippedReader(self.inner.start(epoch, state), 0 if state is not None else self.count)

    def describe(self) -> tuple[Any, ...]:
        return ("skipped", self.count, *self.inner.describe())


class FilteredStream(WrappingStream):
    """The rows of a stream that a filter keeps."""

    def __init__(self, inner: AbstractStream, row_filter: RowFilter) -> None:
        super().__init__(inner)
        self.row_filter = row_filter

    def sample(self, rows: int) -> list[list[Array]]:
        """Return the first rows that the filter keeps. Search at most `_MAX_SAMPLE_ROWS` rows."""
        searched_rows = rows
        while True:
            found = self.inner.sample(searched_rows)
            columns = [np.stack([row[leaf] for row in found]) for leaf in self.row_filter.leaves] if found else []
            kept = [found[row] for row in np.flatnonzero(self.row_filter.mask(columns))] if found else []
            is_end = len(found) < searched_rows or searched_rows >= _MAX_SAMPLE_ROWS
            if len(kept) >= rows or (kept and is_end):
                return kept[:rows]
            if is_end:
                raise SourceError(
                    f"{self.row_filter} kept none of the first {len(found)} rows of the stream, so Forebay cannot "
                    "infer the specs after the next map. Check the filter, or apply it in the generator."
                )
            searched_rows = min(2 * searched_rows, max(rows, _MAX_SAMPLE_ROWS))

    def start(self, epoch: int, state: dict[str, Any] | None = None) -> StreamReader:
        return _FilteredReader(self.inner.start(epoch, state), self.row_filter, self.specs)

    def describe(self) -> tuple[Any, ...]:
        return ("filtered", str(self.row_filter), self.row_filter.fields, *self.inner.describe())


class _TakenReader(ReplayingReader):
    """Reads at most `count` rows of the inner reader."""

    def __init__(self, inner: StreamReader, count: int, specs: Sequence[ArraySpec]) -> None:
        self._inner, self._rows_left, self.specs = inner, count, specs

    def read(self, out: Sequence[Array]) -> int:
        wanted = min(self._rows_left, len(out[0]))
        count = self._inner.read([leaf[:wanted] for leaf in out]) if wanted else 0
        self._rows_left -= count
        return count

    def close(self) -> None:
        self._inner.close()


class _SkippedReader:
    """Skips the first `count` rows of the inner reader when it is first used."""

    def __init__(self, inner: StreamReader, count: int) -> None:
        self._inner, self._rows_to_skip = inner, count

    def read(self, out: Sequence[Array]) -> int:
        self._skip_first_rows()
        return self._inner.read(out)

    def skip(self, rows: int) -> int:
        self._skip_first_rows()
        return self._inner.skip(rows)

    def state_dict(self) -> dict[str, Any] | None:
        return None if self._rows_to_skip else self._inner.state_dict()

    def _skip_first_rows(self) -> None:
        rows, self._rows_to_skip = self._rows_to_skip, 0
        if rows:
            self._inner.skip(rows)

    def close(self) -> None:
        self._inner.close()


class _FilteredReader(ReplayingReader):
    """Reads the rows of the inner reader that the filter keeps.

    It never requests more rows from the inner reader than it still needs. So no row that the filter keeps is lost if a
    feed resumes from the state of the inner reader.
    """

    def __init__(self, inner: StreamReader, row_filter: RowFilter, specs: Sequence[ArraySpec]) -> None:
        self._inner, self._filter, self.specs = inner, row_filter, specs

    def read(self, out: Sequence[Array]) -> int:
        kept_rows, wanted = 0, len(out[0])
        while kept_rows < wanted:
            rest = [leaf[kept_rows:] for leaf in out]
            count = self._inner.read(rest)
            if count:
                mask = self._filter.mask([rest[leaf][:count] for leaf in self._filter.leaves])
                for leaf in rest:
                    kept = leaf[:count][mask]
                    leaf[: len(kept)] = kept
                kept_rows += int(np.count_nonzero(mask))
            if count < len(rest[0]):
                break
        return kept_rows

    def state_dict(self) -> dict[str, Any] | None:
        return self._inner.state_dict()

    def close(self) -> None:
        self._inner.close()
