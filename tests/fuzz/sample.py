"""The undamaged inputs of the fuzzer: files in memory, and how to read them."""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

__all__ = ["Files", "Sample", "array_rows", "npy_bytes"]

Files: TypeAlias = dict[str, bytes]  # relative path -> content
ByteRanges: TypeAlias = tuple[tuple[int, int], ...]

WHOLE_FILE: ByteRanges = ((0, 1 << 62),)


@dataclass(frozen=True, slots=True)
class Sample:
    """One undamaged input. The fuzzer damages one of its files at a time."""

    name: str
    files: Files
    opened: str  # path or glob that the reader opens, relative to the folder of the case
    options: Mapping[str, Any] = field(default_factory=dict)
    reader: str = "rows"  # function in `readers.py`
    # Bytes under a checksum that the reader verifies. If only these bytes differ, the rows are correct or refused.
    checked: Mapping[str, ByteRanges] = field(default_factory=dict)
    has_row_checksums: bool = False  # every row that the reader returns must be a row of the undamaged file


def array_rows(count: int = 24, width: int = 3) -> np.ndarray[Any, Any]:
    """Return rows that all differ."""
    return np.arange(count * width, dtype="f4").reshape(count, width) + 0.5


def npy_bytes(array: Any, **options: Any) -> bytes:
    """Return the bytes that `numpy.save` writes."""
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()
