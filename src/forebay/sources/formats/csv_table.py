"""The rows of a text table, parsed as they are asked for, in flat memory whatever the size of the file.

Parsing is left to `numpy.loadtxt`, which reads some ten million numbers a second. A table that is small when parsed is
held, so that each line is parsed once; of a larger one only the lines asked for are parsed, each time.
"""

import threading
from collections.abc import Callable, Sequence

import numpy as np

from forebay.core.rows import Rows
from forebay.core.source import AbstractSource, MemoryRegion
from forebay.core.spec import Array
from forebay.errors import SourceError
from forebay.sources.arrays import gather_leaf
from forebay.sources.files.mapped import MappedFile
from forebay.sources.formats.csv_columns import Columns
from forebay.sources.formats.csv_lines import LineIndex, scan_lines

__all__ = ["TableSource"]

_KEPT_NBYTES = 256 * 2**20  # tables up to this size are held once parsed, block by block
_BLOCK_ROWS = 32  # few, since a shuffled batch needs a block for each of its rows at first
_PIECE_ROWS = 4096  # lines parsed in one go: their text is in memory meanwhile


class TableSource(AbstractSource):
    """One text table: its lines are found by an index and parsed by its columns."""

    immutable = True  # what lies in a file stays as it is

    def __init__(self, file: MappedFile, index: LineIndex, columns: Columns) -> None:
        self.specs, self.structure = columns.specs, columns.structure
        self._reader: _Reader | None = _Reader(file, index, columns)
        self._length = index.count - columns.first_line
        small = self._length * columns.record.itemsize <= _KEPT_NBYTES
        self._kept = _KeptRows(self._length, columns) if small else None
        self._reopen = _Reopen(file, index, columns)

    def __len__(self) -> int:
        return self._length

    @property
    def held_nbytes(self) -> int:
        """Memory that parsed rows take now."""
        return 0 if self._kept is None else self._kept.held_nbytes

    def gather(self, rows: Rows, out: Sequence[Array]) -> None:
        reader, kept = self._reader, self._kept
        if reader is None:
            raise SourceError(f"{self._reopen.path} was closed: open it again to read from it.")
        reader.file.check()
        if kept is not None:
            kept.gather(reader, rows, out)
        elif isinstance(rows, slice):
            _gather_run(reader, rows, out)
        elif len(rows):
            wanted, back = np.unique(rows, return_inverse=True)
            _deal(reader.pick(wanted)[back], out)

    def memory(self) -> list[MemoryRegion]:
        """Nothing: the rows lie in no memory until they are parsed."""
        return []

    def close(self) -> None:
        """Let go of the file and of what was parsed."""
        self._reader = self._kept = None

    def reopener(self) -> Callable[[], AbstractSource]:
        """The same file again, without looking for its lines a second time if it is unchanged."""
        return self._reopen


class _Reader:
    """Rows by number, as records."""

    def __init__(self, file: MappedFile, index: LineIndex, columns: Columns) -> None:
        self.file, self._index, self._columns = file, index, columns

    def read(self, start: int, stop: int) -> Array:
        first = self._columns.first_line
        return self._columns.parse(range(start, stop), self._index.read(self.file, start + first, stop + first))

    def pick(self, rows: Array) -> Array:
        lines = self._index.pick(self.file, rows + self._columns.first_line)
        return self._columns.parse(rows.tolist(), lines)


class _KeptRows:
    """A table that is filled block by block as rows are asked for."""

    def __init__(self, length: int, columns: Columns) -> None:
        self._records = np.empty(length, columns.record)  # takes memory only where it is written
        self._gathers = [gather_leaf(self._records[name]) for name in columns.record.names or ()]
        self._filled = np.zeros(-(-length // _BLOCK_ROWS), np.bool_)
        self._lock = threading.Lock()

    @property
    def held_nbytes(self) -> int:
        return int(np.count_nonzero(self._filled)) * _BLOCK_ROWS * self._records.itemsize

    def gather(self, reader: _Reader, rows: Rows, out: Sequence[Array]) -> None:
        if not self._filled.all():
            self._fill(reader, _blocks_of(rows))
        for gather, leaf in zip(self._gathers, out, strict=True):
            gather(rows, leaf)

    def _fill(self, reader: _Reader, blocks: Array) -> None:
        with self._lock:
            missing = blocks[~self._filled[blocks]]
            for block in missing.tolist():
                start = block * _BLOCK_ROWS
                stop = min(start + _BLOCK_ROWS, len(self._records))
                self._records[start:stop] = reader.read(start, stop)
                self._filled[block] = True


class _Reopen:
    """How to open a table again: with the index there is, unless the file has changed."""

    def __init__(self, file: MappedFile, index: LineIndex, columns: Columns) -> None:
        self.path, self._stamp = file.path, file.stamp
        self._index, self._columns = index, columns

    def __call__(self) -> TableSource:
        file = MappedFile(self.path)
        index = self._index if file.stamp == self._stamp else scan_lines(file)
        return TableSource(file, index, self._columns)


def _gather_run(reader: _Reader, rows: slice, out: Sequence[Array]) -> None:
    for start in range(rows.start, rows.stop, _PIECE_ROWS):
        stop = min(start + _PIECE_ROWS, rows.stop)
        _deal(reader.read(start, stop), [leaf[start - rows.start : stop - rows.start] for leaf in out])


def _deal(records: Array, out: Sequence[Array]) -> None:
    for name, leaf in zip(records.dtype.names or (), out, strict=True):
        leaf[...] = records[name]


def _blocks_of(rows: Rows) -> Array:
    if isinstance(rows, slice):
        return np.arange(rows.start // _BLOCK_ROWS, -(-rows.stop // _BLOCK_ROWS))
    return np.unique(rows // _BLOCK_ROWS)
