"""The states of slots, as pure code: events in, instructions out.

This module uses no threads, no clock and no slot memory.

    free -> filling -> ready -> lent -> free

Groups have sequence numbers in the order of delivery. A worker thread requests a slot to fill, the consumer requests
the next group; the ring answers with a slot, or with None if there is nothing to do yet. The caller holds a lock.

The ring counts the slots that are lent to the consumer. If the consumer keeps more than a limit, the ring drops the
oldest of them and uses new slots instead. So a consumer may keep every batch, and nothing waits forever.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum

from forebay.pipeline.plan import LENT_SLOTS

__all__ = ["Fill", "Ring", "RingError", "SlotState"]


class RingError(AssertionError):
    """An event that is impossible in the state of a slot.

    It is a bug of Forebay, never of the user.
    """


class SlotState(Enum):
    FREE = "free"
    FILLING = "filling"
    READY = "ready"
    LENT = "lent"


@dataclass(frozen=True, slots=True)
class Fill:
    """An instruction: fill this slot with the group of this sequence number."""

    slot: int
    sequence: int


@dataclass(slots=True)
class Ring:
    """Slots by id. At most `slots` of them are filling or ready at a time."""

    slots: int
    lent_limit: int = 8
    oldest_first: bool = False  # False: reuse the slot released last, because its memory is still in the CPU caches
    _states: dict[int, SlotState] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)
    _filling: dict[int, int] = field(default_factory=dict)  # slot -> sequence; -1 if its group is not needed any more
    _ready: dict[int, int] = field(default_factory=dict)  # sequence -> slot
    _lent: OrderedDict[int, None] = field(default_factory=OrderedDict)
    _next_id: int = 0
    _unallocated: set[int] = field(default_factory=set)  # ids whose slot has no memory yet
    _to_fill: int = 0
    _to_deliver: int = 0
    _last: int | None = None  # the sequence number after the last group, once known

    # Events of worker threads

    def fill(self) -> Fill | None:
        """Return what to fill next; None without a slot or a group."""
        if self._last is not None and self._to_fill >= self._last:
            return None
        if self.full:
            return None
        slot = self._free.pop(self._free_index) if self._free else self._new_slot()
        fill = Fill(slot, self._to_fill)
        self._to_fill += 1
        self._states[slot] = SlotState.FILLING
        self._filling[slot] = fill.sequence
        return fill

    def allocated(self, slot: int) -> None:
        """Record that a new slot has memory now."""
        self._unallocated.discard(slot)

    def filled(self, slot: int) -> int | None:
        """Record that a slot holds its group.

        Return the sequence number, or None if the group is not needed.
        """
        self.allocated(slot)
        sequence = self._filling.pop(self._expect(slot, SlotState.FILLING))
        if sequence < 0:
            self._set_free(slot)
            return None
        self._states[slot] = SlotState.READY
        self._ready[sequence] = slot
        return sequence

    def end_of_data(self, slot: int) -> None:
        """Record that no data was left for this slot, so its group does not exist."""
        sequence = self._filling.pop(self._expect(slot, SlotState.FILLING))
        if sequence >= 0:
            self.end(sequence)
        self._set_free(slot)

    def failed(self, slot: int) -> int | None:
        """Record that filling failed.

        Return the sequence number, or None if the group is not needed.
        """
        sequence = self._filling.pop(self._expect(slot, SlotState.FILLING))
        self._set_free(slot)
        return None if sequence < 0 else sequence

    def cancel_fill(self, fill: Fill) -> None:
        """Take `fill` back. The next call of `fill()` returns the same group again."""
        del self._filling[self._expect(fill.slot, SlotState.FILLING)]
        self._to_fill = fill.sequence
        self._set_free(fill.slot)

    def end(self, sequence: int) -> None:
        """Record that no group has this sequence number or a later one."""
        self._last = sequence if self._last is None else min(self._last, sequence)

    # Events of the consumer

    def deliver(self) -> int | None:
        """Lend the slot of the next group, or return None if it is not ready."""
        slot = self._ready.pop(self._to_deliver, None)
        if slot is None:
            return None
        self._to_deliver += 1
        self._states[slot] = SlotState.LENT
        self._lent[slot] = None
        return slot

    def release(self, slot: int) -> None:
        """Record that the consumer holds no batch of this slot any more."""
        del self._lent[self._expect(slot, SlotState.LENT)]
        self._set_free(slot)

    def forget(self) -> list[int]:
        """Drop and return the oldest lent slots beyond the limit. The consumer keeps their memory."""
        dropped = []
        while len(self._lent) > self.lent_limit:
            slot, _ = self._lent.popitem(last=False)
            del self._states[slot]
            dropped.append(slot)
        return dropped

    def restart(self) -> None:
        """Drop all groups that were not delivered, and begin again with sequence number 0."""
        for slot in self._ready.values():
            self._set_free(slot)
        self._ready.clear()
        self._filling = dict.fromkeys(self._filling, -1)
        self._to_fill = self._to_deliver = 0
        self._last = None

    # Queries

    @property
    def next_sequence(self) -> int:
        """The sequence number of the group that the consumer gets next."""
        return self._to_deliver

    @property
    def full(self) -> bool:
        """True if nothing can be filled until a group is delivered."""
        return len(self._filling) + len(self._ready) >= self.slots

    @property
    def next_slot(self) -> int | None:
        """The allocated slot that `fill()` would return next, or None."""
        return self._free[self._free_index] if self._free and not self.full else None

    @property
    def ended(self) -> bool:
        """True if the consumer has received all groups."""
        return self._last is not None and self._to_deliver >= self._last

    @property
    def lent(self) -> tuple[int, ...]:
        return tuple(self._lent)

    def state(self, slot: int) -> SlotState | None:
        """Return the state of a slot; None if the ring does not have it."""
        return self._states.get(slot)

    @property
    def _free_index(self) -> int:
        """Index of the free slot that is filled next."""
        return 0 if self.oldest_first else -1

    def _new_slot(self) -> int:
        self._unallocated.add(self._next_id)
        self._next_id += 1
        return self._next_id - 1

    def _set_free(self, slot: int) -> None:
        """Free a slot if it was allocated.

        Other ids are dropped: they would be reused before allocated slots.
        """
        if slot in self._unallocated:
            self._unallocated.remove(slot)
            del self._states[slot]
            return
        self._states[slot] = SlotState.FREE
        self._free.append(slot)
        self._trim()

    def _trim(self) -> None:
        """Drop surplus free slots after the consumer released batches that it had kept for long."""
        while self._free and len(self._states) - len(self._lent) > self.slots + LENT_SLOTS:
            del self._states[self._free.pop(0)]

    def _expect(self, slot: int, state: SlotState) -> int:
        if self._states.get(slot) is not state:
            raise RingError(f"slot {slot} is {self._states.get(slot)}, not {state}")
        return slot
