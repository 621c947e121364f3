"""Arrays cut into pieces that are small enough for Ray to send them within a call, or within its answer.

What has up to 100 KiB travels so. Anything larger goes by Ray's object stores: between two nodes it is announced,
looked up, asked for, copied from store to store and freed again, by node processes that all results pass. Up to some
MiB, pieces take a quarter to a half of the CPU, and next to nothing of those processes.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from forebay.core.spec import Array

__all__ = ["count_pieces", "cut", "join", "same_bytes"]

PIECE_NBYTES = 96 << 10  # Ray's limit is 100 KiB (max_direct_call_object_size), some of which it needs itself
MOST_NBYTES = 8 << 20  # Ray's limit for a call is 10 MiB (task_rpc_inlined_bytes_limit)
MOST_NBYTES_ON_A_NODE = 1 << 20  # both sides have one store there, and pieces of more cost more than it does
COMPARED_NBYTES = 256 << 10  # at a time: what is made of them stays in a core's own cache


def count_pieces(nbytes: int, *, one_node: bool) -> int:
    """In how many pieces so many bytes travel; in one, by the object stores, where they are too many.

    >>> count_pieces(3 << 20, one_node=False)
    32
    """
    most = MOST_NBYTES_ON_A_NODE if one_node else MOST_NBYTES
    return max(1, -(-nbytes // PIECE_NBYTES)) if nbytes <= most else 1


def cut(arrays: Sequence[Array], count: int) -> list[bytes]:
    """The bytes of contiguous arrays, one after the other, in so many pieces alike: Ray sends no arrays as quickly.

    >>> cut([np.arange(5, dtype=np.uint8), np.arange(3, dtype=np.uint8)], 2)
    [b'\\x00\\x01\\x02\\x03', b'\\x04\\x00\\x01\\x02']
    """
    step = max(1, -(-sum(array.nbytes for array in arrays) // count))
    pieces: list[list[Array]] = [[] for _ in range(count)]
    place = 0
    for rest in map(_as_bytes, arrays):
        while len(rest):
            piece, begun = divmod(place, step)
            part = rest[: step - begun]
            pieces[piece].append(part)
            rest, place = rest[len(part) :], place + len(part)
    return [b"".join(part.data for part in parts) for parts in pieces]


def join(parts: Iterable[Array | bytes], out: Iterable[Array]) -> None:
    """Write the bytes of pieces or arrays into contiguous arrays, one after the other, which have as many."""
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


def same_bytes(arrays: Sequence[Array], others: Sequence[Array]) -> bool:
    """Whether arrays alike in shape and dtype hold the same, bit for bit."""
    return all(_same(array, other) for array, other in zip(arrays, others, strict=True))


def _same(array: Array, other: Array) -> bool:
    step = max(1, COMPARED_NBYTES * len(array) // max(1, array.nbytes))
    parts = (slice(start, start + step) for start in range(0, len(array), step))
    return all(np.array_equal(_copied_bytes(array[part]), _copied_bytes(other[part])) for part in parts)


def _copied_bytes(array: Array) -> Array:
    """The bytes of an array; a copy where they do not lie together."""
    return _as_bytes(np.ascontiguousarray(array))


def _as_bytes(piece: Array | bytes) -> Array:
    """The bytes of a contiguous array, in place; rows may have none."""
    if isinstance(piece, bytes):
        return np.frombuffer(piece, np.uint8)
    return piece.reshape(-1).view(np.uint8) if piece.nbytes else np.empty(0, np.uint8)
