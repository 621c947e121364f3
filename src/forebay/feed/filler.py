"""The interface of slot fillers, and the objects that every slot filler needs."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from forebay.core.recorder import Recorder
from forebay.feed.slot import Slot
from forebay.feed.transform_stage import TransformStage
from forebay.order.schedule import Cursor, Group
from forebay.pipeline.pipeline import Pipeline
from forebay.pipeline.plan import Plan

__all__ = ["FillerParts", "SlotFiller"]


@dataclass(frozen=True, slots=True)
class FillerParts:
    """The objects that every slot filler needs."""

    pipeline: Pipeline
    plan: Plan
    transform_stage: TransformStage
    recorder: Recorder


class SlotFiller(Protocol):
    """Fills slots with groups.

    The runner (`forebay.feed.runner`) gets tasks from `tasks()`, one for each group. A thread passes each task to
    `read()`, and the result of `read()` to `finish()`. Together, the two calls fill one slot (a fill).
    `worker` is the number of that thread.
    """

    @property
    def reads_in_order(self) -> bool:
        """True if `read` must be called in group order, by one thread at a time."""
        ...

    @property
    def consumer_may_fill(self) -> bool:
        """True if the consumer's thread may fill slots while it waits for a group.

        It may do so if a fill only copies memory and runs no map, because then the fill cannot block.
        """
        ...

    @property
    def continues_into_next_epoch(self) -> bool:
        """True if `tasks` continues with the groups of the following epochs."""
        ...

    def only_enqueues(self, slot: Slot) -> bool:
        """Return whether filling this slot only queues work for a device.

        Such a fill takes little time on the host and does not wait.
        """
        ...

    def tasks(self, cursor: Cursor) -> Iterator[Any]:
        """Yield one task for each group, starting at the cursor.

        The runner calls `next()` while it holds its lock, so this iterator must be fast.
        """
        ...

    def read(self, slot: Slot, task: Any, worker: int) -> Any | None:
        """Do the first part of a fill, and return the argument of `finish`.

        Return None if the input has ended. A stream reports its end only in this way, because its length is unknown.
        """
        ...

    def finish(self, slot: Slot, read_result: Any, worker: int) -> Group:
        """Complete the fill and return its group. Several threads may call this at once."""
        ...

    def prepare_after(self, group: Group) -> None:
        """Compute in advance what later groups need, such as row numbers.

        A worker thread calls this after it has filled `group`, so the consumer does not wait for it.
        """
        ...

    def stop(self) -> None:
        """Wake every thread that waits inside this filler, so that the runner can join it."""
        ...

    def close(self) -> None:
        """Release the resources of the filler. The runner calls this after all threads have ended."""
        ...
