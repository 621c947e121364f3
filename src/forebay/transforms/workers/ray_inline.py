"""Splits arrays into pieces that Ray sends inside a call or its result.

Ray sends an object of up to 100 KiB inside the message. A larger object goes through Ray's object stores: node
processes announce it, look it up, request it, copy it from store to store and free it. For up to a few MiB, small
pieces need a quarter to a half of that CPU time, and almost no time of the node processes, which all results share.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from forebay.core.spec import Array

__all__ = ["are_bytes_equal", "count_pieces", "join_bytes", "split_bytes"]

PIECE_NBYTES = 96 << 10  # Ray's limit is 100 KiB (max_direct_call_object_size), and Ray needs a part of it
MAX_INLINE_NBYTES = 8 << 20  # Ray's limit for a call is 10 MiB (task_rpc_inlined_bytes_limit)
MAX_INLINE_NBYTES_ON_ONE_NODE = 1 << 20  # on one node both sides share a store, which is faster for more bytes
COMPARED_NBYTES = 256 << 10  # compared at a time, so that temporaries stay in the cache of one core


def count_pieces(nbytes: int, *, one_node: bool) -> int:
    """Return the number of pieces; 1 means to use Ray's object stores.

    >>> count_pieces(3 << 20, one_node=False)
    32
    """
    most = MAX_INLINE_NBYTES_ON_ONE_NODE if one_node else MAX_INLINE_NBYTES
    return max(1, -(-nbytes // PIECE_NBYTES)) if nbytes <= most else 1


def split_bytes(arrays: Sequence[Array], count: int) -> list[bytes]:
    """Concatenate the bytes of contiguous arrays and split them into `count` pieces of equal size.

    Pieces are `bytes` objects because Ray sends arrays more slowly.

    >>> split_bytes([np.arange(5, dtype=np.uint8), np.arange(3, dtype=np.uint8)], 2)
    [b'\\x00\\x01\\x02\\x03', b'\\x04\\x00\\x01\\x02']
    """
    step = max(1, -(-sum(array.nbytes for array in arrays) // count))
    pieces: list[list[Array]] = [[] for _ in range(count)]
    position = 0
    for rest in map(_as_bytes, arrays):
        while len(rest):
            piece, filled = divmod(position, step)
            part = rest[: step - filled]
            pieces[piece].append(part)
            rest, position = rest[len(part) :], position + len(part)
    return [b"".join(part.data for part in parts) for parts in pieces]


def join_bytes(parts: Iterable[Array | bytes], out: Iterable[Array]) -> None:
    """Write the bytes of pieces or arrays into contiguous arrays of equal total size."""
    targets = map(_as_bytes, out)
    room = np.empty(0, np.uint8)
    for part in map(_as_bytes, parts):
        while len(part):
            while not len(room):
                room = next(targets)
            written = min(len(part), len(room))
            room[:written] = part[:written]
            part, room = part[written:], room[written:]
    missing = len(room) + sum(map(len, targets))
    assert not missing, f"{missing} bytes are missing"


def are_bytes_equal(arrays: Sequence[Array], others: Sequence[Array]) -> bool:
    """Return whether arrays of the same shapes and dtypes are equal bit by bit."""
    return all(_are_equal(array, other) for array, other in zip(arrays, others, strict=True))


def _are_equal(array: Array, other: Array) -> bool:
    step = max(1, COMPARED_NBYTES * len(array) // max(1, array.nbytes))
    parts = (slice(start, start + step) for start in range(0, len(array), step))
    return all(np.array_equal(_contiguous_bytes(array[part]), _contiguous_bytes(other[part])) for part in parts)


def _contiguous_bytes(array: Array) -> Array:
    """Return the bytes of an array; copy them if they are not contiguous."""
    return _as_bytes(np.ascontiguousarray(array))


def _as_bytes(piece: Array | bytes) -> Array:
    """View a contiguous array, which may be empty, as bytes without a copy."""
    if isinstance(piece, bytes):
        return np.frombuffer(piece, np.uint8)
    return piece.reshape(-1).view(np.uint8) if piece.nbytes else np.empty(0, np.uint8)
