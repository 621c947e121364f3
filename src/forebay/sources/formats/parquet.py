"""Parquet files: a row group is the least that can be read, so columns are unpacked row group by row group."""

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forebay.core.spec import Array, Tree
from forebay.errors import SourceError
from forebay.sources.files.chunked import ChunkedLeaf, Unpack
from forebay.sources.files.columns import LeavesSource, OpenFile, named
from forebay.sources.files.mapped import MappedFile, PathName
from forebay.sources.formats.arrow_columns import Column, Decode, choose_columns

__all__ = ["open_parquet"]


def open_parquet(
    path: PathName,
    *,
    spec: Tree | None = None,
    columns: Sequence[str] | None = None,
    decode: Decode | None = None,
    max_held_nbytes: int = 2**30,
) -> LeavesSource:
    """Open one Parquet file as a dict of its columns; no data is read.

    Columns of numbers and of lists of one length are leaves as they are; where the type does not tell the length,
    `spec=` does. `columns=["x", "y"]` takes only those; `decode={"image": function}` makes an array of each value of a
    column of any kind. At most `max_held_nbytes` of unpacked row groups are held.
    """
    mapped = MappedFile(path)
    file = _ParquetFile(mapped)
    chosen = choose_columns(
        mapped.path, file.schema, columns=columns, spec=spec, decode=decode, first_value=file.first_value
    )
    leaves = [ChunkedLeaf(column.spec, file.starts, file.unpack(column)) for column in chosen]
    opened = OpenFile(mapped.path, mapped.check, file.close)
    return LeavesSource(
        opened, leaves, named([column.name for column in chosen]), spec=spec, max_held_nbytes=max_held_nbytes
    )


class _ParquetFile:
    """The row groups of one file; every thread reads with a reader of its own, since none may be shared."""

    def __init__(self, mapped: MappedFile) -> None:
        self._mapped, self._readers = mapped, threading.local()
        self._metadata: Any = None
        reader = self._reader()
        self._metadata, self.schema = reader.metadata, reader.schema_arrow
        rows = [self._metadata.row_group(number).num_rows for number in range(self._metadata.num_row_groups)]
        self.starts = np.concatenate([[0], np.cumsum(rows, dtype=np.int64)])

    def first_value(self, name: str) -> Any:
        """The first value of a column, for whoever wants to know what can be made of it."""
        for batch in self._reader().iter_batches(1, columns=[name]):
            return batch.column(0)[0].as_py()
        raise SourceError(f"{self._mapped.path} has no rows, so spec= must say what decode= makes of {name!r}.")

    def unpack(self, column: Column) -> Unpack:
        def unpack(group: int, target: Array) -> None:
            target[...] = column.values(self._read(group, column.name), int(self.starts[group]))

        return unpack

    def close(self) -> None:
        self._readers = threading.local()

    def _read(self, group: int, name: str) -> Any:
        try:
            table = self._reader().read_row_group(group, columns=[name], use_threads=False)
            table.validate()  # what a damaged file claims would end the process later
        except (pa.ArrowException, OSError, ValueError) as error:
            told = f"row group {group} of {name!r} in {self._mapped.path} cannot be read: {error}"
            raise SourceError(f"{told}. Write or download it again.") from error
        if len(table) != self.starts[group + 1] - self.starts[group]:
            raise SourceError(f"{self._mapped.path} is damaged: row group {group} of {name!r} has {len(table)} rows.")
        return table.column(0).combine_chunks()

    def _reader(self) -> Any:
        if not hasattr(self._readers, "reader"):
            memory = self._mapped.array((self._mapped.nbytes,), np.dtype(np.uint8), offset=0)
            try:
                self._readers.reader = pq.ParquetFile(pa.BufferReader(pa.py_buffer(memory)), metadata=self._metadata)
            except (pa.ArrowException, OSError, ValueError) as error:
                told = f"{self._mapped.path} cannot be read as Parquet: {error}. Write or download it again."
                raise SourceError(told) from error
        return self._readers.reader
