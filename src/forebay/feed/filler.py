"""What the runner asks of whatever fills its slots."""

from collections.abc import Iterator
from typing import Any, Protocol

from forebay.feed.slot import Slot
from forebay.order.schedule import Cursor, Group

__all__ = ["Work"]


class Work(Protocol):
    """What threads do to fill a slot."""

    @property
    def in_order(self) -> bool:
        """Whether `read` must be called by one thread at a time, group after group."""
        ...

    @property
    def quick(self) -> bool:
        """Whether filling a group is a plain copy, which the consumer's thread may as well do itself."""
        ...

    @property
    def goes_on(self) -> bool:
        """Whether `tasks` goes on into the next epoch by itself."""
        ...

    def queues_only(self, slot: Slot) -> bool:
        """Whether filling this slot is no more than telling a device to: nothing is computed or waited for here."""
        ...

    def tasks(self, cursor: Cursor) -> Iterator[Any]:
        """What to read, from the cursor on; asked under a lock, so it must be quick."""
        ...

    def read(self, slot: Slot, task: Any, worker: int) -> Any | None:
        """Begin a group; None when there is none left."""
        ...

    def finish(self, slot: Slot, begun: Any, worker: int) -> Group:
        """Complete it; any number of threads at once."""
        ...

    def prepare(self, group: Group) -> None:
        """What groups after this one will need, which was told of already; on a thread that nobody waits for."""
        ...

    def stop(self) -> None:
        """End whatever a thread may be waiting for, so that it can be joined."""
        ...

    def close(self) -> None:
        """Give back what reading held; the threads are gone."""
        ...
