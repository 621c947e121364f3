"""Splitting of arrays into pieces that are small enough for Ray's own messages.

Ray sends an object of up to 100 KiB inside the message of a call or of its result. It sends a larger object through the
object stores of the nodes. For this, Ray's own process on each node exchanges several messages and copies the object
from store to store. Sending arrays of up to a few MiB in small pieces takes a quarter to a half of this CPU time
(docs/ray.md). Small pieces take almost no CPU time of Ray's own processes, through which larger objects pass.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from forebay.core.spec import Array

__all__ = ["are_bytes_equal", "count_pieces", "join_bytes", "split_bytes"]

PIECE_NBYTES = 96 << 10  # bytes; Ray's limit is 100 KiB (max_direct_call_object_size), including its own data
MAX_INLINE_NBYTES = 8 << 20  # bytes; Ray's limit for a call is 10 MiB (task_rpc_inlined_bytes_limit)
MAX_INLINE_NBYTES_ON_ONE_NODE = 1 << 20  # bytes; above, the store that all processes of a node share is faster
COMPARED_NBYTES = 256 << 10  # bytes compared at a time, so that temporary arrays stay in the cache of one core


def count_pieces(nbytes: int, *, one_node: bool) -> int:
    """Return the number of pieces into which to split `nbytes` bytes.

    The number is 1 if the bytes fit in one piece, or if Ray's object stores are faster.

    >>> count_pieces(3 << 20, one_node=False)
    32
    """
    max_nbytes = MAX_INLINE_NBYTES_ON_ONE_NODE if one_node else MAX_INLINE_NBYTES
    return max(1, -(-nbytes // PIECE_NBYTES)) if nbytes <= max_nbytes else 1


def split_bytes(arrays: Sequence[Array], count: int) -> list[bytes]:
    """Return the bytes of contiguous arrays in `count` pieces.

    All pieces have equal sizes, but the last ones may be shorter or empty. Pieces are `bytes`, because Ray sends arrays
    more slowly.

    >>> split_bytes([np.arange(5, dtype=np.uint8), np.arange(3, dtype=np.uint8)], 2)
    [b'\\x00\\x01\\x02\\x03', b'\\x04\\x00\\x01\\x02']
    """
    piece_nbytes = max(1, -(-sum(array.nbytes for array in arrays) // count))
    pieces: list[list[Array]] = [[] for _ in range(count)]
    position = 0
    for unsplit in map(_as_bytes, arrays):
        while len(unsplit):
            piece, filled = divmod(position, piece_nbytes)
            part = unsplit[: piece_nbytes - filled]
            pieces[piece].append(part)
            unsplit, position = unsplit[len(part) :], position + len(part)
    return [b"".join(part.data for part in parts) for parts in pieces]


def join_bytes(parts: Iterable[Array | bytes], out: Iterable[Array]) -> None:
    """Write the bytes of pieces or arrays to contiguous arrays of the same total size."""
    targets = map(_as_bytes, out)
    target = np.empty(0, np.uint8)
    for part in map(_as_bytes, parts):
        while len(part):
            while not len(target):
                target = next(targets)
            written = min(len(part), len(target))
            target[:written] = part[:written]
            part, target = part[written:], target[written:]
    missing = len(target) + sum(map(len, targets))
    assert not missing, f"{missing} bytes are missing"


def are_bytes_equal(arrays: Sequence[Array], others: Sequence[Array]) -> bool:
    """Return whether two lists of arrays with the same shapes and dtypes have equal bytes."""
    return all(_are_equal(array, other) for array, other in zip(arrays, others, strict=True))


def _are_equal(array: Array, other: Array) -> bool:
    step_rows = max(1, COMPARED_NBYTES * len(array) // max(1, array.nbytes))
    parts = (slice(start, start + step_rows) for start in range(0, len(array), step_rows))
    return all(np.array_equal(_contiguous_bytes(array[part]), _contiguous_bytes(other[part])) for part in parts)


def _contiguous_bytes(array: Array) -> Array:
    """Return the bytes of an array. Copy them if they are not contiguous."""
    return _as_bytes(np.ascontiguousarray(array))


def _as_bytes(piece: Array | bytes) -> Array:
    """Return a view of the bytes of a contiguous array, which may be empty."""
    if isinstance(piece, bytes):
        return np.frombuffer(piece, np.uint8)
    return piece.reshape(-1).view(np.uint8) if piece.nbytes else np.empty(0, np.uint8)
