"""Numbers in the metadata of Arrow messages, read before pyarrow allocates memory.

Forebay compares them with its memory budget. A message is a FlatBuffers table, whose offsets pyarrow has verified when
it opened the message. Field 2 of the table is a record batch, or a dictionary batch, whose field 1 is a record batch.
"""

import struct
from typing import Any

import numpy as np

__all__ = ["declared_nbytes", "parse_row_count"]

_ROW_COUNT, _BUFFERS, _COMPRESSION = 0, 2, 3  # fields of a record batch
_STORED = -1  # the file has -1 in place of the decompressed length if a buffer of a compressed batch is not compressed


def parse_row_count(message: Any) -> int:
    """Return the number of rows of a record batch, without reading its data."""
    metadata = message.metadata.to_pybytes()
    batch = _find_batch(message, metadata)
    field = _find_field(metadata, batch, _ROW_COUNT) if batch else 0
    return int(struct.unpack_from("<q", metadata, field)[0]) if field else 0


def declared_nbytes(message: Any) -> int:
    """Return the declared decompressed bytes of a batch; 0 if it is not compressed.

    pyarrow allocates these bytes when it decompresses the batch. Each compressed buffer begins with its decompressed
    length.
    """
    metadata = message.metadata.to_pybytes()
    batch = _find_batch(message, metadata)
    if not batch or not _find_field(metadata, batch, _COMPRESSION):
        return 0
    buffers = _find_field(metadata, batch, _BUFFERS)
    if not buffers or message.body is None:
        return 0
    vector = buffers + struct.unpack_from("<I", metadata, buffers)[0]
    (count,) = struct.unpack_from("<I", metadata, vector)
    body, total = memoryview(message.body), 0
    for offset, nbytes in np.frombuffer(metadata, "<i8", 2 * count, vector + 4).reshape(-1, 2).tolist():
        if nbytes >= 8 and 0 <= offset <= len(body) - 8:
            (length,) = struct.unpack_from("<q", body, offset)
            total += 0 if length == _STORED else abs(length)
    return total


def _find_batch(message: Any, metadata: bytes) -> int:
    """Return the position of the record batch in `metadata`; 0 if there is none."""
    (table,) = struct.unpack_from("<I", metadata)
    batch = _find_table(metadata, table, 2)
    return _find_table(metadata, batch, 1) if batch and message.type == "dictionary" else batch


def _find_table(data: bytes, table: int, number: int) -> int:
    """Return the position of the table in field `number`; 0 if it is missing."""
    field = _find_field(data, table, number)
    return field + int(struct.unpack_from("<I", data, field)[0]) if field else 0


def _find_field(data: bytes, table: int, number: int) -> int:
    """Return the position of field `number` in a FlatBuffers table; 0 if it is missing."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    (vtable_nbytes,) = struct.unpack_from("<H", data, vtable)
    entry = 4 + 2 * number
    (offset,) = struct.unpack_from("<H", data, vtable + entry) if entry < vtable_nbytes else (0,)
    return table + offset if offset else 0
