"""Arrow IPC files and streams (Feather 2 too): plain columns stay in the mapped file, compressed ones are unpacked.

What Arrow keeps as NumPy would (numbers without a null, lists of one length) is gathered from the file itself,
whichever record batch it lies in. Booleans, which are bits there, and compressed batches are unpacked batch by batch.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from forebay.core.spec import Array, Tree
from forebay.errors import SourceError
from forebay.sources.files.chunked import ChunkedLeaf
from forebay.sources.files.columns import Leaf, LeavesSource, OpenFile, named
from forebay.sources.files.mapped import MappedFile, PathName
from forebay.sources.files.segmented import PiecesLeaf
from forebay.sources.formats.arrow_columns import Column, Decode, choose_columns

__all__ = ["open_arrow"]

_MAGIC = b"ARROW1"


def open_arrow(
    path: PathName,
    *,
    spec: Tree | None = None,
    columns: Sequence[str] | None = None,
    decode: Decode | None = None,
    max_held_nbytes: int = 2**30,
) -> LeavesSource:
    """Open one Arrow file, in the file or the streaming form, as a dict of its columns; no data is read.

    `columns`, `spec`, `decode` and `max_held_nbytes` are as for Parquet files (`open_parquet`).
    """
    mapped = MappedFile(path)
    memory = mapped.array((mapped.nbytes,), np.dtype(np.uint8), offset=0)
    batches = _open(mapped, memory)
    chosen = choose_columns(
        mapped.path, batches.schema, columns=columns, spec=spec, decode=decode, first_value=batches.first_value
    )
    leaves = [_open_leaf(memory, batches, column) for column in chosen]
    opened = OpenFile(mapped.path, mapped.check, lambda: None)
    return LeavesSource(
        opened, leaves, named([column.name for column in chosen]), spec=spec, max_held_nbytes=max_held_nbytes
    )


@dataclass(frozen=True, slots=True)
class _Batches:
    """The record batches of one file; `read` gives one, in any thread, without a copy unless it is compressed."""

    file: MappedFile
    schema: Any
    starts: Array
    read: Callable[[int], Any]

    def column(self, name: str, batch: int) -> Any:
        try:
            column = self.read(batch).column(name)
            column.validate()  # what a damaged file claims would end the process later
            return column
        except (pa.ArrowException, OSError, ValueError) as error:
            raise SourceError(
                f"record batch {batch} of {self.file.path} cannot be read: {error}. Write or download it again."
            ) from error

    def first_value(self, name: str) -> Any:
        for batch, rows in enumerate(np.diff(self.starts)):
            if rows:
                return self.column(name, batch)[0].as_py()
        raise SourceError(f"{self.file.path} has no rows, so spec= must say what decode= makes of {name!r}.")


def _open(mapped: MappedFile, memory: Array) -> _Batches:
    try:
        _check_whole(memory)
        schema, messages = _messages(memory)
        _ = schema.names  # which must be text
        if any(pa.types.is_dictionary(kind) for kind in schema.types):
            batches = _all_batches(memory)
            rows, read = [batch.num_rows for batch in batches], batches.__getitem__
        else:
            rows = [_row_count(message) for message in messages]
            read = partial(_read_message, schema, messages)
        if min(rows, default=0) < 0:
            raise ValueError(f"a record batch claims to have {min(rows)} rows")
    except (pa.ArrowException, OSError, EOFError, ValueError, struct.error) as error:
        raise SourceError(f"{mapped.path} cannot be read as Arrow: {error}. Write or download it again.") from error
    return _Batches(mapped, schema, np.concatenate([[0], np.cumsum(rows, dtype=np.int64)]), read)


def _check_whole(memory: Array) -> None:
    if _is_file_form(memory) and bytes(memory[-6:]) != _MAGIC:
        raise EOFError("it is cut short: it begins as an Arrow file and does not end as one")


def _is_file_form(memory: Array) -> bool:
    return bytes(memory[:6]) == _MAGIC


def _messages(memory: Array) -> tuple[Any, list[Any]]:
    """The schema, and the record batches as they lie in the file, which is a stream too, behind its first 8 bytes."""
    start = 8 if _is_file_form(memory) else 0
    reader = pa.ipc.MessageReader.open_stream(pa.BufferReader(pa.py_buffer(memory[start:])))
    messages = list(reader)
    if not messages:
        raise EOFError("it is empty")
    return pa.ipc.read_schema(messages[0]), [message for message in messages if message.type == "record batch"]


def _read_message(schema: Any, messages: Sequence[Any], number: int) -> Any:
    return pa.ipc.read_record_batch(messages[number], schema)


def _all_batches(memory: Array) -> list[Any]:
    """Columns that share a dictionary can only be read together with it: all batches, mapped unless compressed."""
    reader = pa.BufferReader(pa.py_buffer(memory))
    if not _is_file_form(memory):
        return list(pa.ipc.open_stream(reader))
    batches = pa.ipc.open_file(reader)
    return [batches.get_batch(number) for number in range(batches.num_record_batches)]


def _row_count(message: Any) -> int:
    """From the head of a batch, a FlatBuffers table in a table: Arrow itself reads it only together with the data."""
    data = message.metadata.to_pybytes()
    (root,) = struct.unpack_from("<I", data)
    header = _field(data, root, 2)
    length = _field(data, header + struct.unpack_from("<I", data, header)[0], 0) if header else 0
    return int(struct.unpack_from("<q", data, length)[0]) if length else 0


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a FlatBuffers table lies; 0 if it was left out."""
    index = table - struct.unpack_from("<i", data, table)[0]
    (nbytes,) = struct.unpack_from("<H", data, index)
    place = 4 + 2 * number
    (offset,) = struct.unpack_from("<H", data, index + place) if place < nbytes else (0,)
    return table + offset if offset else 0


def _open_leaf(memory: Array, batches: _Batches, column: Column) -> Leaf:
    offsets = _offsets(memory, batches, column)
    if offsets is not None:
        return PiecesLeaf(column.spec, batches.starts, memory, offsets)

    def unpack(batch: int, target: Array) -> None:
        target[...] = column.values(batches.column(column.name, batch), int(batches.starts[batch]))

    return ChunkedLeaf(column.spec, batches.starts, unpack)


def _offsets(memory: Array, batches: _Batches, column: Column) -> Array | None:
    """Where the rows of each batch begin in the file; None where some lie in no file as they are."""
    if column.decode is not None or column.spec.dtype == np.bool_ or column.spec.nbytes == 0:
        return None
    base = memory.__array_interface__["data"][0]
    found = np.zeros(len(batches.starts) - 1, np.int64)
    for batch, rows in enumerate(np.diff(batches.starts).tolist()):
        if rows:
            values = column.values(batches.column(column.name, batch), int(batches.starts[batch]))
            found[batch] = values.__array_interface__["data"][0] - base
            if not 0 <= found[batch] <= len(memory) - values.nbytes:
                return None
    return found if len(found) else None
