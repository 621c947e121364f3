"""The assignment of blocks to buffers, in the order of upcoming groups.

This module does no I/O. `block_reader.py` reads the blocks.
"""

from collections import deque
from collections.abc import Hashable, Iterator, Sequence

__all__ = ["BlockSchedule", "UpcomingBlocks"]

UpcomingBlocks = Iterator[tuple[Hashable, Sequence[int]]]  # upcoming groups in order, with their blocks

MAX_LOOKAHEAD_GROUPS = 64  # groups admitted and not yet released; more groups would only take CPU time


class BlockSchedule:
    """Decides which blocks to read next and into which buffer.

    A group is admitted when all its blocks have a buffer. It is released when its rows have been copied from these
    buffers. A block keeps its buffer until all admitted groups that need the block have been released. So the number of
    buffers limits how many groups `BlockReadSession` prefetches. The next group gets buffers as they become free.
    """

    def __init__(self, upcoming: UpcomingBlocks, buffers: int) -> None:
        self._upcoming = upcoming
        self._buffers = buffers
        self._free_buffers = list(range(buffers))[::-1]
        self._block_buffers: dict[int, int] = {}  # block -> number of its buffer
        self._user_counts: dict[int, int] = {}  # block -> number of groups that need it: admitted groups and the next
        self._admitted: dict[Hashable, Sequence[int]] = {}  # group -> its blocks
        self._next_group: tuple[Hashable, Sequence[int]] | None = None  # the group to admit next, and its blocks
        self._missing_blocks: deque[int] = deque()  # blocks of the next group that have no buffer yet

    def admit(self) -> list[int]:
        """Admit upcoming groups while buffers are free. Return the blocks to read now."""
        assigned: list[int] = []
        while self._load_next():
            count = min(len(self._missing_blocks), len(self._free_buffers))
            blocks = [self._missing_blocks.popleft() for _ in range(count)]
            self._block_buffers.update((block, self._free_buffers.pop()) for block in blocks)
            assigned += blocks
            if self._missing_blocks:
                break
            self._admit_next()
        return assigned

    def blocks_of(self, group: Hashable) -> Sequence[int] | None:
        """Return the blocks of a group, or None if it is not admitted yet."""
        return self._admitted.get(group)

    def buffer_of(self, block: int) -> int:
        """Return the number of the buffer of a block."""
        return self._block_buffers[block]

    def release(self, group: Hashable) -> list[int]:
        """Release a gathered group and return the blocks that no other group needs.

        This frees the buffers of these blocks.
        """
        unused = []
        for block in self._admitted.pop(group):
            self._user_counts[block] -= 1
            if self._user_counts[block] == 0:
                unused.append(block)
                del self._user_counts[block]
                self._free_buffers.append(self._block_buffers.pop(block))
        return unused

    def _load_next(self) -> bool:
        """Take the next group from `upcoming`, unless the group taken last is not admitted yet.

        Return False if no group is left, or if `MAX_LOOKAHEAD_GROUPS` groups are admitted. Blocks of the group that
        have a buffer already keep it until the group is released.
        """
        if self._next_group is not None:
            return True
        if len(self._admitted) >= MAX_LOOKAHEAD_GROUPS:
            return False
        self._next_group = next(self._upcoming, None)
        if self._next_group is None:
            return False
        if len(self._next_group[1]) > self._buffers:
            raise ValueError(
                f"a group needs {len(self._next_group[1])} blocks, but there are only {self._buffers} buffers. Plan "
                "more buffers."
            )
        for block in self._next_group[1]:
            self._user_counts[block] = self._user_counts.get(block, 0) + 1
        self._missing_blocks.extend(block for block in self._next_group[1] if block not in self._block_buffers)
        return True

    def _admit_next(self) -> None:
        assert self._next_group is not None
        group, blocks = self._next_group
        self._admitted[group] = blocks
        self._next_group = None
