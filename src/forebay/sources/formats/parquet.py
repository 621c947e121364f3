"""Parquet files as a source.

Columns are decompressed one row group at a time. A row group is the smallest unit that pyarrow can read without reading
the rows before it.
"""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forebay.core.spec import Array, Tree
from forebay.errors import SourceError
from forebay.sources.files.chunked import ChunkedColumn, DecompressChunk
from forebay.sources.files.columns import ColumnsSource, FileHandle, dict_structure
from forebay.sources.files.held_budget import HeldBudget
from forebay.sources.files.mapped import MappedFile, PathName
from forebay.sources.formats.arrow_columns import (
    ArrowColumn,
    ColumnDecoders,
    make_boundaries,
    read_value,
    select_columns,
    validate_chunks,
    validate_row_count,
)

__all__ = ["ParquetFile", "open_parquet"]

_PART_ROWS = 1024  # rows that `ParquetFile.read_column` reads before it compares their memory with the budget


def open_parquet(
    path: PathName,
    *,
    spec: Tree | None = None,
    columns: Sequence[str] | None = None,
    decode: ColumnDecoders | None = None,
    max_held_nbytes: int | None = None,
) -> ColumnsSource:
    """Open one Parquet file as a source. Opening reads only the metadata.

    A row is a dict with one array per column. A column contains numbers, or lists of numbers of one length. If the
    column type does not define the length, `spec=` must define it. `columns=["x", "y"]` selects columns.
    `decode={"image": function}` converts each value of a column to an array. Without a spec for that column, Forebay
    decodes its first value when it opens the file, to infer the spec.

    Up to `max_held_nbytes` of decompressed row groups stay in memory (1 GiB for None). The cache always has room for 4
    row groups of each column. A file is refused if these row groups need more memory than the limit, which
    `HeldBudget.of` computes. For None, the limit is half of the memory of this machine, but at least 1 GiB.
    """
    mapped_file, budget = MappedFile(path), HeldBudget.of(max_held_nbytes)
    parquet_file = ParquetFile(mapped_file, budget)
    selected_columns = select_columns(mapped_file.path, parquet_file, columns=columns, spec=spec, decode=decode)
    validate_chunks(selected_columns, parquet_file.boundaries, budget)
    leaf_columns = [
        ChunkedColumn(column.spec, parquet_file.boundaries, parquet_file.make_decompress(column))
        for column in selected_columns
    ]
    handle = FileHandle(mapped_file.path, mapped_file.check_unchanged, parquet_file.close)
    structure = dict_structure([column.name for column in selected_columns])
    return ColumnsSource(handle, leaf_columns, structure, spec=spec, max_held_nbytes=budget.cached_nbytes)


class ParquetFile:
    """The row groups of one file.

    Each thread has its own reader, because pyarrow readers are not thread-safe.
    """

    def __init__(self, mapped_file: MappedFile, budget: HeldBudget) -> None:
        self._mapped_file, self._budget, self._readers = mapped_file, budget, threading.local()
        self._metadata: Any = None
        try:
            reader = self._thread_reader()
            self._metadata, self.schema = reader.metadata, reader.schema_arrow
            _ = self.schema.names  # raises UnicodeDecodeError if a name is not UTF-8
            row_counts = [self._metadata.row_group(number).num_rows for number in range(self._metadata.num_row_groups)]
        except Exception as error:  # see `_read_row_group`
            raise SourceError(
                f"{mapped_file.path} cannot be read as Parquet: {error}. Write or download it again."
            ) from error
        # First row of each row group, then the number of rows.
        self.boundaries = make_boundaries(mapped_file.path, row_counts)

    def read_first_value(self, name: str) -> Any:
        """Return the first value of a column."""
        if self.boundaries[-1] == 0:
            raise SourceError(
                f"{self._mapped_file.path} has no rows, so the result of decode= for {name!r} is unknown. "
                "Describe it with spec=."
            )
        group = int(np.searchsorted(self.boundaries, 0, side="right")) - 1  # the first row group with rows
        self._validate_size(group, name)
        return read_value(self._mapped_file.path, name, next(self._read_in_parts(group, name, 1)))

    def make_decompress(self, column: ArrowColumn) -> DecompressChunk:
        """Return a function that decompresses one row group of a column."""

        def decompress(group: int, target: Array) -> None:
            first, position = int(self.boundaries[group]), 0
            for part in self._read_parts(group, column):
                target[position : position + len(part)] = column.to_numpy(part, first + position)
                position += len(part)

        return decompress

    @property
    def nbytes(self) -> int:
        """The decompressed size of all row groups with all columns, as the metadata claims it."""
        return sum(self._metadata.row_group(number).total_byte_size for number in range(self._metadata.num_row_groups))

    def read_column(self, name: str, group: int) -> Any:
        """Return the values of a row group as a chunked array.

        Raise BudgetError if the values need more memory than the budget. Parquet may store a value once for many rows,
        so the values may need more memory than the row group claims.
        """
        nbytes, parts = 0, []
        rows = max(1, min(_PART_ROWS, self._budget.max_nbytes // max(1, self._validate_size(group, name))))
        for part in self._read_in_parts(group, name, rows):
            nbytes += part.nbytes
            self._budget.validate(
                f"row group {group} of {name!r} in {self._mapped_file.path} repeats its values", nbytes
            )
            parts.append(part)
        return pa.chunked_array(parts, self.schema.field(name).type)

    def close(self) -> None:
        self._readers = threading.local()

    def _read_parts(self, group: int, column: ArrowColumn) -> Iterator[Any]:
        """Yield the values of a row group, in parts that fit in the budget.

        Only the values for a decode function may need several parts. Parquet may store a text once for many rows, so
        all texts may need more bytes than the row group. But no text is longer than the row group, which limits the
        bytes of a part.
        """
        is_number = column.decode is None and column.spec.shape == ()  # then the number of rows limits the bytes
        nbytes = 0 if is_number else self._validate_size(group, column.name)
        rows = int(np.diff(self.boundaries)[group])
        part_rows = max(1, self._budget.max_nbytes // max(1, nbytes))
        if column.decode is None or part_rows >= rows:
            yield self._read_row_group(group, column.name)
            return
        yield from self._read_in_parts(group, column.name, part_rows)

    def _read_in_parts(self, group: int, name: str, part_rows: int) -> Iterator[Any]:
        """Yield the values of a row group in parts of at most `part_rows` values."""
        batches, left = self._iter_batches(group, name, part_rows), int(np.diff(self.boundaries)[group])
        while left > 0:
            try:
                batch = next(batches, None)
                if batch is None:
                    raise ValueError(f"its metadata claims {left} more rows than it has")
                part = batch.column(name)
                part.validate()
            except Exception as error:  # see `_read_row_group`
                raise self._damage_error(group, name, error) from error
            left -= len(part)
            yield part[: len(part) + min(0, left)]

    def _iter_batches(self, group: int, name: str, rows: int) -> Any:
        return self._thread_reader().iter_batches(rows, row_groups=[group], columns=[name], use_threads=False)

    def _read_row_group(self, group: int, name: str) -> Any:
        try:
            table = self._thread_reader().read_row_group(group, columns=[name], use_threads=False)
            table.validate()  # otherwise a damaged file could crash the process later
            column = table.column(name).combine_chunks()
        except Exception as error:  # for a damaged file, pyarrow raises anything from OSError to MemoryError
            raise self._damage_error(group, name, error) from error
        part = f"row group {group} of {name!r}"
        validate_row_count(self._mapped_file.path, part, column, self.boundaries[group : group + 2])
        return column

    def _validate_size(self, group: int, name: str) -> int:
        """Return the decompressed bytes that a row group claims, or raise BudgetError.

        The number of rows does not limit these bytes, because texts and lists may have any length. The bytes are those
        of all columns, because damaged statistics in the metadata of one column crash pyarrow.
        """
        if group >= self._metadata.num_row_groups:  # the file has no rows
            return 0
        nbytes = int(self._metadata.row_group(group).total_byte_size)
        claim = f"row group {group} of {name!r} in {self._mapped_file.path} claims to decompress to {nbytes} bytes"
        self._budget.validate(f"{claim} with all columns", nbytes)
        return nbytes

    def _damage_error(self, group: int, name: str, error: Exception) -> SourceError:
        return SourceError(
            f"row group {group} of {name!r} in {self._mapped_file.path} cannot be read: {error}. "
            "Write or download the file again."
        )

    def _thread_reader(self) -> Any:
        reader = getattr(self._readers, "reader", None)  # the reader of this thread
        if reader is None:
            memory = self._mapped_file.array((self._mapped_file.nbytes,), np.dtype(np.uint8), offset=0)
            reader = pq.ParquetFile(
                pa.BufferReader(pa.py_buffer(memory)), metadata=self._metadata, page_checksum_verification=True
            )
            self._readers.reader = reader
        return reader
