"""The interface of slot fillers, and the parts that all of them need."""

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
    """What every slot filler needs."""

    pipeline: Pipeline
    plan: Plan
    transform_stage: TransformStage
    recorder: Recorder


class SlotFiller(Protocol):
    """Fills slots with groups.

    The runner gets tasks from `tasks()`. A thread passes each task to `read()` and the result to `finish()`.
    """

    @property
    def reads_in_order(self) -> bool:
        """True if one thread at a time must call `read`, group after group."""
        ...

    @property
    def is_plain_copy(self) -> bool:
        """True if filling only copies memory, so that the consumer's thread may do it."""
        ...

    @property
    def continues_into_next_epoch(self) -> bool:
        """True if `tasks` yields the groups of the following epochs too."""
        ...

    def only_enqueues(self, slot: Slot) -> bool:
        """Tell whether filling this slot only queues work for a device.

        If so, the fill neither computes on the host nor waits.
        """
        ...

    def tasks(self, cursor: Cursor) -> Iterator[Any]:
        """Yield a task per group, from the cursor on.

        The runner holds its lock while it gets a task, so each step of this iterator must be fast.
        """
        ...

    def read(self, slot: Slot, task: Any, worker: int) -> Any | None:
        """Begin a group. Return None if no group is left."""
        ...

    def finish(self, slot: Slot, begun: Any, worker: int) -> Group:
        """Complete the group that `read` returned. Several threads may call this at once."""
        ...

    def prepare_after(self, group: Group) -> None:
        """Prepare what the groups after this one will need. No consumer waits for this call."""
        ...

    def stop(self) -> None:
        """Wake every thread that waits inside this filler, so that the runner can join it."""
        ...

    def close(self) -> None:
        """Release the resources of the filler. The runner calls this after all threads ended."""
        ...
