"""The ring: a state machine that decides which slot is filled or delivered next.

    free -> filling -> ready -> lent -> free

The ring is pure code. It knows slots by their ids and uses no thread, no clock and no slot memory. The caller holds a
lock during every call.

Groups have sequence numbers, from 0 on, in the order of delivery. A worker thread calls `start_fill` to get a slot and
the sequence number of the group with which to fill it. The consumer calls `deliver` to get the slot of the next group.
Both methods return None if the caller must wait or no group is left.

A slot is lent while the consumer holds batches of it. If more than `lent_limit` slots are lent, the ring drops the
slots that have been lent longest, and uses new slots instead. So a consumer may keep every batch, and no thread waits
until the consumer drops one.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum

from forebay.pipeline.plan import LENT_SLOTS

__all__ = ["Fill", "Ring", "RingError", "SlotState"]


class RingError(AssertionError):
    """Raised for an event that a slot's state does not allow: a bug in Forebay."""


class SlotState(Enum):
    FREE = "free"
    FILLING = "filling"
    READY = "ready"
    LENT = "lent"


@dataclass(frozen=True, slots=True)
class Fill:
    """The instruction to fill one slot with one group."""

    slot: int  # id of the slot
    sequence: int  # sequence number of the group


@dataclass(slots=True)
class Ring:
    """The states of all slots. At most `slots` are filling or ready at a time."""

    slots: int
    lent_limit: int = 8  # number of lent slots above which the ring drops the oldest of them
    oldest_first: bool = False  # False: reuse the slot released last, because its memory is still in the CPU caches
    _states: dict[int, SlotState] = field(default_factory=dict)  # id of a slot -> its state
    _free_slots: list[int] = field(default_factory=list)  # ids, the slot released last at the end
    # id of a slot -> sequence number of the group that a thread fills; -1 if a restart has dropped the group
    _filling_sequences: dict[int, int] = field(default_factory=dict)
    _ready_slots: dict[int, int] = field(default_factory=dict)  # sequence number -> id of a slot
    _lent_slots: OrderedDict[int, None] = field(default_factory=OrderedDict)  # ids, the slot lent first at the start
    _next_id: int = 0  # of the next new slot
    _unallocated: set[int] = field(default_factory=set)  # ids of slots that have no memory yet
    _next_to_fill: int = 0  # sequence number
    _next_to_deliver: int = 0  # sequence number
    _end: int | None = None  # the sequence number after the last group; None while unknown

    # Events of worker threads

    def start_fill(self) -> Fill | None:
        """Return the next slot and group to fill.

        Return None if the ring is full or no group is left to fill.
        """
        if self._end is not None and self._next_to_fill >= self._end:
            return None
        if self.is_full:
            return None
        slot = self._free_slots.pop(self._free_index) if self._free_slots else self._new_slot()
        fill = Fill(slot, self._next_to_fill)
        self._next_to_fill += 1
        self._states[slot] = SlotState.FILLING
        self._filling_sequences[slot] = fill.sequence
        return fill

    def mark_allocated(self, slot: int) -> None:
        """Record that the memory of a new slot was allocated."""
        self._unallocated.discard(slot)

    def mark_filled(self, slot: int) -> int | None:
        """Record that a slot contains its group.

        Return the sequence number of the group, or None if a restart dropped the group.
        """
        self.mark_allocated(slot)
        sequence = self._filling_sequences.pop(self._expect(slot, SlotState.FILLING))
        if sequence < 0:
            self._set_free(slot)
            return None
        self._states[slot] = SlotState.READY
        self._ready_slots[sequence] = slot
        return sequence

    def mark_end_of_data(self, slot: int) -> None:
        """Record that no rows were left for this slot, so its group does not exist."""
        sequence = self._filling_sequences.pop(self._expect(slot, SlotState.FILLING))
        if sequence >= 0:
            self.set_end(sequence)
        self._set_free(slot)

    def mark_failed(self, slot: int) -> int | None:
        """Record that a thread could not fill a slot because of an error.

        Return the sequence number of the group, or None if a restart dropped the group.
        """
        sequence = self._filling_sequences.pop(self._expect(slot, SlotState.FILLING))
        self._set_free(slot)
        return None if sequence < 0 else sequence

    def cancel_fill(self, fill: Fill) -> None:
        """Undo `start_fill`. The next call of `start_fill` returns the same group again."""
        del self._filling_sequences[self._expect(fill.slot, SlotState.FILLING)]
        self._next_to_fill = fill.sequence
        self._set_free(fill.slot)

    def set_end(self, sequence: int) -> None:
        """Record that no group with this sequence number or a later one exists."""
        self._end = sequence if self._end is None else min(self._end, sequence)

    # Events of the consumer

    def deliver(self) -> int | None:
        """Lend the slot of the next group and return its id.

        Return None if the group is not ready.
        """
        slot = self._ready_slots.pop(self._next_to_deliver, None)
        if slot is None:
            return None
        self._next_to_deliver += 1
        self._states[slot] = SlotState.LENT
        self._lent_slots[slot] = None
        return slot

    def release(self, slot: int) -> None:
        """Record that the consumer has dropped all batches of this slot."""
        del self._lent_slots[self._expect(slot, SlotState.LENT)]
        self._set_free(slot)

    def drop_oldest_lent(self) -> list[int]:
        """Drop the longest lent slots until `lent_limit` are lent, and return their ids.

        The memory of a dropped slot stays allocated while the consumer holds its batches.
        """
        dropped = []
        while len(self._lent_slots) > self.lent_limit:
            slot, _ = self._lent_slots.popitem(last=False)
            del self._states[slot]
            dropped.append(slot)
        return dropped

    def restart(self) -> None:
        """Drop all groups that were not delivered, and start again with sequence number 0."""
        for slot in self._ready_slots.values():
            self._set_free(slot)
        self._ready_slots.clear()
        self._filling_sequences = dict.fromkeys(self._filling_sequences, -1)
        self._next_to_fill = self._next_to_deliver = 0
        self._end = None

    # Queries

    @property
    def next_sequence(self) -> int:
        """The sequence number of the group that the consumer gets next."""
        return self._next_to_deliver

    @property
    def is_full(self) -> bool:
        """True if no slot can be filled until a group is delivered."""
        return len(self._filling_sequences) + len(self._ready_slots) >= self.slots

    @property
    def next_slot(self) -> int | None:
        """Id of the free slot for the next `start_fill`, if a group is left to fill.

        None if the ring is full, or if `start_fill` would use a new slot.
        """
        return self._free_slots[self._free_index] if self._free_slots and not self.is_full else None

    @property
    def has_ended(self) -> bool:
        """True if the consumer has received all groups, or all groups before a failed one."""
        return self._end is not None and self._next_to_deliver >= self._end

    @property
    def lent_slots(self) -> tuple[int, ...]:
        """Ids of the lent slots, oldest first."""
        return tuple(self._lent_slots)

    def state(self, slot: int) -> SlotState | None:
        """Return the state of a slot; None if the ring has no such slot."""
        return self._states.get(slot)

    @property
    def _free_index(self) -> int:
        """Index in `_free_slots` of the slot to fill next."""
        return 0 if self.oldest_first else -1

    def _new_slot(self) -> int:
        self._unallocated.add(self._next_id)
        self._next_id += 1
        return self._next_id - 1

    def _set_free(self, slot: int) -> None:
        """Make a slot free, or drop its id if the slot has no memory.

        A free id without memory might be used before an allocated slot, which would allocate memory needlessly.
        """
        if slot in self._unallocated:
            self._unallocated.remove(slot)
            del self._states[slot]
            return
        self._states[slot] = SlotState.FREE
        self._free_slots.append(slot)
        self._trim()

    def _trim(self) -> None:
        """Drop free slots above the planned number.

        There are too many of them after the consumer has dropped many batches at once, or `slots` was reduced.
        """
        while self._free_slots and len(self._states) - len(self._lent_slots) > self.slots + LENT_SLOTS:
            del self._states[self._free_slots.pop(0)]

    def _expect(self, slot: int, state: SlotState) -> int:
        if self._states.get(slot) is not state:
            raise RingError(f"slot {slot} is {self._states.get(slot)}, not {state}. Report this bug of Forebay.")
        return slot
