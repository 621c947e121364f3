"""`Progress`: how far the consumer of a feed has come in an epoch."""

from typing import Any

from forebay.core.recorder import Recorder
from forebay.order.schedule import Cursor, Schedule

__all__ = ["Progress"]


class Progress:
    """The progress of one `Epoch`.

    The feed refers to this object and not to the `Epoch`, because a reference cycle would delay the release of both.
    """

    __slots__ = (
        "_group_batches",
        "_group_cursor",
        "_recorder",
        "_schedule",
        "is_finished",
        "is_over",
        "is_unused",
        "ready",
    )

    def __init__(self, start: Cursor, schedule: Schedule, recorder: Recorder) -> None:
        self._recorder = recorder
        self._group_cursor, self._group_batches, self._schedule = start, 0, schedule
        self.is_unused = False  # True from the start of an `Epoch` until its first batch is requested
        self.ready: list[Any] = []  # batches of the current group that were not received, in reverse order for pop()
        self.is_finished = False  # True after the last batch was received
        self.is_over = False  # True if the epoch finished or failed, or if the feed ended it

    @property
    def cursor(self) -> Cursor:
        """The position after the last received batch."""
        return self._schedule.advance(self._group_cursor, self._group_batches - len(self.ready))

    @property
    def next_start(self) -> Cursor:
        """The start of the next epoch, or of this one if it is unused."""
        return self.cursor if self.is_unused else Cursor(epoch=self.cursor.epoch + 1)

    def begin_group(self, cursor: Cursor, batches: list[Any]) -> None:
        """Continue with the batches of the group at the cursor."""
        self._group_cursor, self._group_batches = cursor, len(batches)
        self.ready = batches

    def fail(self, batch: Any) -> None:
        """End the epoch at the position before `batch`, which could not be delivered."""
        if not self.is_over:
            self.ready.append(batch)
            self.end()

    def end(self) -> None:
        """End the epoch, and drop the batches that were not received."""
        if not self.is_over:
            self._recorder.end_group()
        self._group_cursor, self._group_batches = self.cursor, 0
        self.ready, self.is_over = [], True
