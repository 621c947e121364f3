"""Passes slots between worker threads and the consumer.

A worker thread claims a slot and a task, fills the slot with the group of the task (a fill), and reports the slot as
filled or failed. The consumer calls `deliver` to get groups in order, and `reclaim` to reuse slots. If a fill failed,
the consumer gets the error when it requests that group.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from forebay.core.engine import Engine
from forebay.feed.filler import SlotFiller
from forebay.feed.ring import Fill, Ring
from forebay.feed.slot import Slot
from forebay.order.schedule import Cursor
from forebay.pipeline.plan import LENT_SLOTS

__all__ = ["SlotExchange", "reject_stop_iteration"]

_NO_TASK = object()  # the default of next(), because None is a valid task


class SlotExchange:
    """The state that worker threads and the consumer share, guarded by one lock.

    The methods `open_slot`, `report_filled` and `report_failed` acquire the lock. For all other methods, the caller
    must hold it.
    """

    def __init__(
        self,
        filler: SlotFiller,
        engine: Engine,
        make_slot: Callable[[], Slot],
        *,
        slots: int,
        budget_nbytes: int,
    ) -> None:
        self._filler, self._engine, self._make_slot, self._budget_nbytes = filler, engine, make_slot, budget_nbytes
        # A device may still have queued work that reads the slot released last, so reuse the slot released first.
        self.ring = Ring(slots, oldest_first=engine.is_device)
        self.slots: dict[int, Slot] = {}
        self.errors: dict[int, BaseException] = {}  # errors of failed fills, by the sequence number of the group
        self._tasks: Iterator[Any] = iter(())
        # Reentrant: the garbage collector may close a feed on a thread that holds the lock.
        self.lock = threading.RLock()
        self.fill_condition = threading.Condition(self.lock)  # worker threads wait on it for a slot to fill
        self.take_condition = threading.Condition(self.lock)  # the consumer waits on it for a group

    def restart(self, cursor: Cursor) -> None:
        """Drop groups and errors that the consumer has not received; start at the cursor."""
        self.ring.restart()
        self.errors.clear()
        self._tasks = _catch_failure(self._filler.tasks(cursor))

    def next_fill_only_enqueues(self) -> bool:
        """Return whether the next fill only queues work for a device.

        Return False if the next slot has no memory yet, because its allocation takes time.
        """
        slot = self.slots.get(-1 if self.ring.next_slot is None else self.ring.next_slot)
        return slot is not None and self._filler.only_enqueues(slot)

    # Methods of worker threads, and of a consumer that fills a slot

    def claim(self) -> tuple[Fill, Any] | None:
        """Return a `Fill` and its task; None without a free slot or a task.

        If no task is left, record the end of the data.
        """
        fill = self.ring.start_fill()
        if fill is None:
            return None
        try:
            task = next(self._tasks, _NO_TASK)
        except BaseException:
            self.ring.cancel_fill(fill)
            raise
        if task is not _NO_TASK:
            return fill, task
        self.ring.mark_end_of_data(fill.slot)
        self.take_condition.notify()
        return None

    def open_slot(self, fill: Fill, task: Any) -> Slot:
        """Return the slot of a fill, and allocate it if it is new.

        If the task is a `_TaskFailure`, raise its error.
        """
        if isinstance(task, _TaskFailure):
            raise task.error
        slot = self.slots.get(fill.slot)
        if slot is None:
            slot = self._make_slot()
            with self.lock:
                self.slots[fill.slot] = slot
                self.ring.mark_allocated(fill.slot)
        return slot

    def report_filled(self, fill: Fill, *, is_end: bool) -> None:
        """Make a filled slot available to the consumer.

        If `is_end` is True, no rows were left for the slot. Then record the end of the data instead.
        """
        with self.lock:
            # Batches of variable size may be larger than planned. Then use fewer slots, to stay within the budget.
            slot = self.slots[fill.slot]
            self.ring.slots = max(1, min(self.ring.slots, self._budget_nbytes // slot.nbytes - LENT_SLOTS))
            if is_end:
                self.ring.mark_end_of_data(fill.slot)
            else:
                self._record_partial_failure(self.ring.mark_filled(fill.slot), slot)
            # Do not wake the consumer for each group of a stream, because it would take the interpreter lock from the
            # thread that reads. Instead, the consumer looks for a group every `runner.POLL_SECONDS`.
            if is_end or not self._filler.reads_in_order or self.ring.is_full:
                self.take_condition.notify()

    def report_failed(self, fill: Fill, error: BaseException) -> None:
        """Record the error of a fill, which `deliver` raises when the consumer requests the group."""
        with self.lock:
            sequence = self.ring.mark_failed(fill.slot)
            if sequence is not None:
                self.errors.setdefault(sequence, error)
            self.take_condition.notify()

    def _record_partial_failure(self, sequence: int | None, slot: Slot) -> None:
        """Record the error of a partly filled slot, which `deliver` raises after this group."""
        error, slot.partial_failure = slot.partial_failure, None
        if error is not None and sequence is not None:
            self.errors[sequence + 1] = error

    # Methods of the consumer

    def deliver(self) -> Slot | None:
        """Return the slot of the next group, or None if it is not ready.

        Raise the error of the group if its fill failed.
        """
        error = self.errors.pop(self.ring.next_sequence, None)
        if error is not None:
            self.ring.set_end(self.ring.next_sequence)
            reject_stop_iteration(error)
            raise error
        slot_id = self.ring.deliver()
        if slot_id is None:
            return None
        if not self.next_fill_only_enqueues():
            self.fill_condition.notify()
        return self.slots[slot_id]

    def reclaim(self) -> None:
        """Free slots that the consumer has released, and close slots that the ring has dropped.

        If the engine cannot reclaim released slots now, they stay lent until a later call.
        """
        released = [slot_id for slot_id in self.ring.lent_slots if self.slots[slot_id].lease.is_released]
        if released and self._engine.reclaim([self.slots[slot_id].memory for slot_id in released]):
            for slot_id in released:
                self.ring.release(slot_id)
        self.ring.drop_oldest_lent()
        for slot_id in [slot_id for slot_id in self.slots if self.ring.state(slot_id) is None]:
            self.slots.pop(slot_id).close()


@dataclass(frozen=True, slots=True)
class _TaskFailure:
    """Stands for a task that `SlotFiller.tasks` could not yield because of an error."""

    error: Exception


def _catch_failure(tasks: Iterator[Any]) -> Iterator[Any]:
    """Yield the tasks; if the iterator raises an error, yield a `_TaskFailure` with the error.

    So the consumer gets the error when it requests the group of the missing task, and earlier groups are not lost.
    """
    try:
        yield from tasks
    except Exception as error:
        yield _TaskFailure(error)


def reject_stop_iteration(error: BaseException) -> None:
    """Raise a RuntimeError if the error is a StopIteration, which would end the epoch silently."""
    if isinstance(error, StopIteration):
        raise RuntimeError(
            "a map or a source raised StopIteration, which would end the epoch. Raise an error of another class."
        ) from error
