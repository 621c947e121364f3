"""A text table as a source: lines are parsed when their rows are gathered.

Parsing with `numpy.loadtxt` is slow. If the parsed rows take at most 256 MiB and fit in the user's budget, the source
caches them and parses each line once. In a larger table, each gather parses its lines again.
"""

import threading
from collections.abc import Callable, Sequence

import numpy as np

from forebay.core.rows import Rows
from forebay.core.source import AbstractSource
from forebay.core.spec import Array
from forebay.sources.arrays import make_gather
from forebay.sources.files.mapped import MappedFile, closed_error
from forebay.sources.formats.csv_columns import CsvColumns
from forebay.sources.formats.csv_lines import LineIndex, scan_lines

__all__ = ["TableSource"]

_MAX_CACHED_NBYTES = 256 * 2**20  # bytes of parsed rows; a larger table is not cached
_BLOCK_ROWS = 32  # rows parsed together into the cache; few, because rows of a shuffled batch are in different blocks
_ROWS_PER_PARSE = 4096  # rows of a slice parsed at a time without a cache; bounds the memory for their text


class TableSource(AbstractSource):
    """One text table. A `LineIndex` finds its lines, and `CsvColumns` parses them."""

    immutable = True

    def __init__(self, file: MappedFile, index: LineIndex, columns: CsvColumns, max_held_nbytes: int) -> None:
        self.specs, self.structure = columns.specs, columns.structure
        self._length = index.count - columns.first_line
        self._path, self._stamp, self._index, self._columns = file.path, file.stamp, index, columns
        self._reader: _RecordReader | None = _RecordReader(file, index, columns)
        self._max_held_nbytes = max_held_nbytes
        is_small = self._length * columns.record.itemsize <= min(_MAX_CACHED_NBYTES, max_held_nbytes)
        self._cache = _RecordCache(self._length, columns) if is_small else None

    def __len__(self) -> int:
        return self._length

    @property
    def held_nbytes(self) -> int:
        return 0 if self._cache is None else self._cache.held_nbytes

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        reader, cache = self._reader, self._cache
        if reader is None:
            raise closed_error(self._path)
        reader.file.check_unchanged()
        if cache is not None:
            cache.gather(reader, rows, out)
        elif isinstance(rows, slice):
            _gather_slice(reader, rows, out)
        elif len(rows):
            distinct, positions = np.unique(rows, return_inverse=True)
            _copy_fields(reader.read_selected(distinct)[positions], out)

    def close(self) -> None:
        """Release the file and the parsed rows."""
        self._reader = self._cache = None

    def reopener(self) -> Callable[[], AbstractSource]:
        """Return a function that reopens the file.

        The function reuses the index, or builds a new one if the file has changed.
        """
        return self._reopen

    def _reopen(self) -> "TableSource":
        file = MappedFile(self._path)
        index = self._index if file.stamp == self._stamp else scan_lines(file)
        return TableSource(file, index, self._columns, self._max_held_nbytes)


class _RecordReader:
    """Reads rows of the table as records."""

    def __init__(self, file: MappedFile, index: LineIndex, columns: CsvColumns) -> None:
        self.file, self._index, self._columns = file, index, columns

    def read(self, start: int, stop: int) -> Array:
        first = self._columns.first_line
        return self._columns.parse(range(start, stop), self._index.read(self.file, start + first, stop + first))

    def read_selected(self, rows: Array) -> Array:
        lines = self._index.read_selected(self.file, rows + self._columns.first_line)
        return self._columns.parse(rows.tolist(), lines)


class _RecordCache:
    """Caches the records of a small table.

    The first gather of a row parses the block that contains it.
    """

    def __init__(self, length: int, columns: CsvColumns) -> None:
        # The operating system allocates memory for a page when it is first written.
        self._records = np.empty(length, columns.record)
        self._gathers = [make_gather(self._records[name]) for name in columns.record.names or ()]
        self._is_parsed = np.zeros(-(-length // _BLOCK_ROWS), np.bool_)  # one flag per block
        self._lock = threading.Lock()

    @property
    def held_nbytes(self) -> int:
        return int(np.count_nonzero(self._is_parsed)) * _BLOCK_ROWS * self._records.itemsize

    def gather(self, reader: _RecordReader, rows: Rows, out: Sequence[Array]) -> None:
        if not self._is_parsed.all():
            self._parse_blocks(reader, _find_blocks(rows))
        for gather, leaf in zip(self._gathers, out, strict=True):
            gather(rows, leaf)

    def _parse_blocks(self, reader: _RecordReader, blocks: Array) -> None:
        with self._lock:
            for block in blocks[~self._is_parsed[blocks]].tolist():
                start = block * _BLOCK_ROWS
                stop = min(start + _BLOCK_ROWS, len(self._records))
                self._records[start:stop] = reader.read(start, stop)
                self._is_parsed[block] = True


def _gather_slice(reader: _RecordReader, rows: slice, out: Sequence[Array]) -> None:
    for start in range(rows.start, rows.stop, _ROWS_PER_PARSE):
        stop = min(start + _ROWS_PER_PARSE, rows.stop)
        _copy_fields(reader.read(start, stop), [leaf[start - rows.start : stop - rows.start] for leaf in out])


def _copy_fields(records: Array, out: Sequence[Array]) -> None:
    for name, leaf in zip(records.dtype.names or (), out, strict=True):
        leaf[...] = records[name]


def _find_blocks(rows: Rows) -> Array:
    if isinstance(rows, slice):
        return np.arange(rows.start // _BLOCK_ROWS, -(-rows.stop // _BLOCK_ROWS))
    return np.unique(rows // _BLOCK_ROWS)
