"""Assignment of blocks of rows to buffers, in the order of upcoming groups.

This module only decides; `block_reader.py` reads.
"""

from collections import deque
from collections.abc import Hashable, Iterator, Sequence

__all__ = ["BlockSchedule", "UpcomingBlocks"]

UpcomingBlocks = Iterator[tuple[Hashable, Sequence[int]]]  # groups in the order they are filled, and their blocks

MAX_LOOKAHEAD_GROUPS = 64  # groups admitted and not yet released; a longer look-ahead only costs CPU time


class BlockSchedule:
    """Decides which blocks to read next and into which buffer.

    A group is admitted when all its blocks have a buffer. A block keeps its buffer until every admitted group that
    needs it is released.

    `BlockPass` uses this as the bound of its `LookAhead`. It is a class of its own because the bound differs from
    those of the other prefetchers: groups share blocks, and a group may get its buffers one by one as they become free.
    """

    def __init__(self, upcoming: UpcomingBlocks, buffers: int) -> None:
        self._upcoming = upcoming
        self._buffers = buffers
        self._free = list(range(buffers))[::-1]
        self._buffer: dict[int, int] = {}  # block -> its buffer
        self._users: dict[int, int] = {}  # block -> number of admitted groups that need it
        self._admitted: dict[Hashable, Sequence[int]] = {}
        self._next: tuple[Hashable, Sequence[int]] | None = None  # the group to admit next
        self._missing: deque[int] = deque()  # blocks of the next group that have no buffer yet

    def admit(self) -> list[int]:
        """Admit groups while buffers are free. Return the blocks to read now."""
        assigned: list[int] = []
        while self._load_next():
            blocks = [self._missing.popleft() for _ in range(min(len(self._missing), len(self._free)))]
            self._buffer.update((block, self._free.pop()) for block in blocks)
            assigned += blocks
            if self._missing:
                break
            self._complete_next()
        return assigned

    def blocks_of(self, group: Hashable) -> Sequence[int] | None:
        """Return the blocks of a group, or None if it is not admitted yet."""
        return self._admitted.get(group)

    def buffer_of(self, block: int) -> int:
        """Return the number of the buffer of a block."""
        return self._buffer[block]

    def release(self, group: Hashable) -> list[int]:
        """Release a gathered group and return the blocks that lost their buffer.

        These are the blocks that no other admitted group needs.
        """
        unused = []
        for block in self._admitted.pop(group):
            self._users[block] -= 1
            if self._users[block] == 0:
                unused.append(block)
                del self._users[block]
                self._free.append(self._buffer.pop(block))
        return unused

    def _load_next(self) -> bool:
        """Take the next group. Return False if there is none.

        Blocks of the group that already have a buffer keep it.
        """
        if self._next is not None:
            return True
        if len(self._admitted) >= MAX_LOOKAHEAD_GROUPS:
            return False
        self._next = next(self._upcoming, None)
        if self._next is None:
            return False
        if len(self._next[1]) > self._buffers:
            raise ValueError(f"a group needs {len(self._next[1])} blocks, but there are only {self._buffers} buffers.")
        for block in self._next[1]:
            self._users[block] = self._users.get(block, 0) + 1
        self._missing.extend(block for block in self._next[1] if block not in self._buffer)
        return True

    def _complete_next(self) -> None:
        assert self._next is not None
        group, blocks = self._next
        self._admitted[group] = blocks
        self._next = None
