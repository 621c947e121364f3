"""Whether data is the same as before: where it lies, how much, and a checksum of some of it."""

import zlib
from typing import Any

__all__ = ["key_of"]

SAMPLED = 4096  # bytes: 40 us for an array of 100 MB, where all of it takes 50 ms
_PIECES = 16


def key_of(array: Any) -> str:
    """A key that equal data of equal shape has, wherever it lies."""
    flat = _bytes_of(array)
    if flat is None:
        return ""
    length = len(flat)
    if length <= SAMPLED:
        checksum = zlib.crc32(flat)
    else:
        checksum, piece, step = 0, SAMPLED // _PIECES, (length - SAMPLED // _PIECES) // (_PIECES - 1)
        for start in range(0, step * _PIECES, step):
            checksum = zlib.crc32(flat[start : start + piece], checksum)
    return f"{array.dtype.str}{array.shape}{checksum:08x}"


def _bytes_of(array: Any) -> memoryview | None:
    try:
        view = memoryview(array)
        return view.cast("B") if view.contiguous and view.nbytes else None
    except (TypeError, ValueError, BufferError):
        return None
