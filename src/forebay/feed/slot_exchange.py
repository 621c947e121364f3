"""Passes slots between worker threads and the consumer.

A worker claims a slot and a task, and reports the slot as filled or failed. The consumer delivers groups in order and
reclaims slots whose lease is released. An error is raised when the consumer reaches its group.
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

__all__ = ["SlotExchange"]

_NO_TASK = object()


class SlotExchange:
    """The state that worker threads and the consumer share. One lock guards it.

    The caller holds the lock, except in `open_slot`, `report_filled` and `report_failed`, which take it.
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
        # A device may run behind the host and still read the slot released last, so reuse the oldest slot first.
        self.ring = Ring(slots, oldest_first=engine.is_device)
        self.slots: dict[int, Slot] = {}
        self.errors: dict[int, BaseException] = {}  # by the sequence number of their group
        self._tasks: Iterator[Any] = iter(())
        # Reentrant: the garbage collector may close a feed on a thread that holds the lock.
        self.lock = threading.RLock()
        self.may_fill = threading.Condition(self.lock)
        self.may_take = threading.Condition(self.lock)

    def restart(self, cursor: Cursor) -> None:
        """Drop everything that was not delivered, and begin again at the cursor."""
        self.ring.restart()
        self.errors.clear()
        self._tasks = _with_failure(self._filler.tasks(cursor))

    def next_fill_only_enqueues(self) -> bool:
        """Tell whether the consumer may fill the next slot at little cost.

        The answer is False if the slot has no memory yet: only worker threads allocate slots.
        """
        slot = self.slots.get(-1 if self.ring.next_slot is None else self.ring.next_slot)
        return slot is not None and self._filler.only_enqueues(slot)

    # Worker threads, and the consumer when it fills a slot

    def claim(self) -> tuple[Fill, Any] | None:
        """Return a slot to fill and its task; None if either is missing."""
        fill = self.ring.fill()
        if fill is None:
            return None
        try:
            task = next(self._tasks, _NO_TASK)
        except BaseException:
            self.ring.cancel_fill(fill)
            raise
        if task is not _NO_TASK:
            return fill, task
        self.ring.end_of_data(fill.slot)
        self.may_take.notify()
        return None

    def open_slot(self, fill: Fill, task: Any) -> Slot:
        """Return the slot of a fill, and allocate it if it is new.

        Raise the error if the task is a failure.
        """
        if isinstance(task, _TaskFailure):
            raise task.error
        slot = self.slots.get(fill.slot)
        if slot is None:
            slot = self._make_slot()
            with self.lock:
                self.slots[fill.slot] = slot
                self.ring.allocated(fill.slot)
        return slot

    def report_filled(self, fill: Fill, *, is_end: bool) -> None:
        """Make a filled slot available to the consumer, or record the end of the data."""
        with self.lock:
            # Batches of variable size may outgrow the plan: then fewer of them are kept ready.
            slot = self.slots[fill.slot]
            self.ring.slots = max(1, min(self.ring.slots, self._budget_nbytes // slot.nbytes - LENT_SLOTS))
            if is_end:
                self.ring.end_of_data(fill.slot)
            else:
                self._record_partial_failure(self.ring.filled(fill.slot), slot)
            # Do not wake the consumer for each group of a stream: it would take the interpreter lock from the
            # reading thread. The consumer polls instead (POLL_SECONDS of the runner).
            if is_end or not self._filler.reads_in_order or self.ring.full:
                self.may_take.notify()

    def report_failed(self, fill: Fill, error: BaseException) -> None:
        """Record an error, which the consumer gets when it reaches the group."""
        with self.lock:
            sequence = self.ring.failed(fill.slot)
            if sequence is not None:
                self.errors.setdefault(sequence, error)
            self.may_take.notify()

    def _record_partial_failure(self, sequence: int | None, slot: Slot) -> None:
        """Record the error of a slot between its filled batches and the next group."""
        error, slot.partial_failure = slot.partial_failure, None
        if error is not None and sequence is not None:
            self.errors[sequence + 1] = error

    # The consumer

    def deliver(self) -> Slot | None:
        """Return the slot of the next group, or None if it is not ready.

        Raise the error of the group if its fill failed.
        """
        error = self.errors.pop(self.ring.next_sequence, None)
        if error is not None:
            self.ring.end(self.ring.next_sequence)
            raise _wrap_stop_iteration(error)
        number = self.ring.deliver()
        if number is None:
            return None
        if not self.next_fill_only_enqueues():
            self.may_fill.notify()
        return self.slots[number]

    def reclaim(self) -> None:
        """Reuse slots that the consumer released, and drop slots that it keeps for long."""
        released = [number for number in self.ring.lent if self.slots[number].lease.released]
        if released and self._engine.reclaim([self.slots[number].memory for number in released]):
            for number in released:
                self.ring.release(number)
        self.ring.forget()
        for number in [number for number in self.slots if self.ring.state(number) is None]:
            self.slots.pop(number).close()


@dataclass(frozen=True, slots=True)
class _TaskFailure:
    """Takes the place of a task whose rows could not be determined."""

    error: Exception


def _with_failure(tasks: Iterator[Any]) -> Iterator[Any]:
    """Yield the tasks, and the error that ended them.

    The error is raised where its group would come.
    """
    try:
        yield from tasks
    except Exception as error:
        yield _TaskFailure(error)


def _wrap_stop_iteration(error: BaseException) -> BaseException:
    """Turn a StopIteration of a map into an error, as generators do.

    Otherwise it would end the epoch silently.
    """
    if not isinstance(error, StopIteration):
        return error
    wrapped = RuntimeError("a map raised StopIteration. Only a generator may end with it; raise another error.")
    wrapped.__cause__ = error
    return wrapped
