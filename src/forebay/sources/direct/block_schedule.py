"""Which blocks the coming groups need, and which place in memory each block has. Pure: nothing is read here."""

from collections import deque
from collections.abc import Hashable, Iterator, Sequence

__all__ = ["Coming", "Needs"]

Needs = Iterator[tuple[Hashable, Sequence[int]]]  # groups in the order they are filled, and the blocks of each

MOST_AHEAD = 64  # groups seen that are not gathered yet: beyond, looking only costs


class Coming:
    """A fixed number of places, given to blocks in the order in which groups will need them.

    A group has been admitted when all its blocks have places. A block keeps its place until every admitted group
    that needs it was released.
    """

    def __init__(self, needs: Needs, places: int) -> None:
        self._needs = needs
        self._places = places
        self._free = list(range(places))[::-1]
        self._place: dict[int, int] = {}
        self._users: dict[int, int] = {}  # admitted groups that a block is kept for
        self._admitted: dict[Hashable, Sequence[int]] = {}
        self._next: tuple[Hashable, Sequence[int]] | None = None  # the group whose turn it is
        self._missing: deque[int] = deque()  # its blocks that have no place yet

    def admit(self) -> list[int]:
        """Go as far as places allow; the blocks that got one now, to be read there."""
        placed: list[int] = []
        while self._look():
            taken = [self._missing.popleft() for _ in range(min(len(self._missing), len(self._free)))]
            self._place.update((block, self._free.pop()) for block in taken)
            placed += taken
            if self._missing:
                break
            self._complete()
        return placed

    def blocks(self, group: Hashable) -> Sequence[int] | None:
        """The blocks of an admitted group; None until it is one."""
        return self._admitted.get(group)

    def place(self, block: int) -> int:
        return self._place[block]

    def release(self, group: Hashable) -> list[int]:
        """The group was gathered; the blocks that nobody needs any more, whose places are free now."""
        left = []
        for block in self._admitted.pop(group):
            self._users[block] -= 1
            if self._users[block] == 0:
                left.append(block)
                del self._users[block]
                self._free.append(self._place.pop(block))
        return left

    def _look(self) -> bool:
        """Whether there is a group to admit; its blocks are kept from now on, those that have a place too."""
        if self._next is not None:
            return True
        if len(self._admitted) >= MOST_AHEAD:
            return False
        self._next = next(self._needs, None)
        if self._next is None:
            return False
        if len(self._next[1]) > self._places:
            raise ValueError(f"a group needs {len(self._next[1])} blocks and there are {self._places} places for them.")
        for block in self._next[1]:
            self._users[block] = self._users.get(block, 0) + 1
        self._missing.extend(block for block in self._next[1] if block not in self._place)
        return True

    def _complete(self) -> None:
        assert self._next is not None
        group, blocks = self._next
        self._admitted[group] = blocks
        self._next = None
