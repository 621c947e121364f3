"""The life of a slot, as pure code: events in, instructions out. No thread, no clock, no memory.

    free -> filling -> ready -> lent -> free

Groups are numbered in the order they must be delivered. A worker asks for something to fill, the consumer asks for
the next group; the ring says which slot, or that there is nothing to do yet. Whoever drives it holds a lock.

A slot that the consumer keeps is the consumer's memory: the ring counts how many are lent, forgets the oldest beyond a
limit and asks for fresh ones in their place, so that keeping everything works and nothing waits for ever.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum

from forebay.pipeline.plan import USUALLY_LENT

__all__ = ["Fill", "Ring", "RingError", "SlotState"]


class RingError(AssertionError):
    """An event that cannot happen to a slot in its state: a fault of the driver, never of the user."""


class SlotState(Enum):
    FREE = "free"
    FILLING = "filling"
    READY = "ready"
    LENT = "lent"


@dataclass(frozen=True, slots=True)
class Fill:
    """Fill this slot with that group."""

    slot: int
    sequence: int


@dataclass(slots=True)
class Ring:
    """Slots by number; at most `slots` of them are filling or ready at a time."""

    slots: int
    lent_limit: int = 8
    oldest_first: bool = False  # else the slot that was let go last, whose memory is still in the processor's caches
    _states: dict[int, SlotState] = field(default_factory=dict)
    _free: list[int] = field(default_factory=list)
    _filling: dict[int, int] = field(default_factory=dict)  # slot -> sequence; -1 when its group is no longer wanted
    _ready: dict[int, int] = field(default_factory=dict)  # sequence -> slot
    _lent: OrderedDict[int, None] = field(default_factory=OrderedDict)
    _names: int = 0
    _unmade: set[int] = field(default_factory=set)  # named, and not there yet
    _to_fill: int = 0
    _to_deliver: int = 0
    _last: int | None = None  # the sequence after the last group, once known

    # What a worker says

    def fill(self) -> Fill | None:
        """Something to fill, if a slot is free, or may be made, and there is a group left."""
        if self._last is not None and self._to_fill >= self._last:
            return None
        if self.full:
            return None
        slot = self._free.pop(self._at) if self._free else self._fresh()
        fill = Fill(slot, self._to_fill)
        self._to_fill += 1
        self._states[slot] = SlotState.FILLING
        self._filling[slot] = fill.sequence
        return fill

    def made(self, slot: int) -> None:
        """A slot that had only a name is there now."""
        self._unmade.discard(slot)

    def filled(self, slot: int) -> int | None:
        """The slot now holds its group; the number of that, where it is still wanted."""
        self.made(slot)
        sequence = self._filling.pop(self._expect(slot, SlotState.FILLING))
        if sequence < 0:
            self._set_free(slot)
            return None
        self._states[slot] = SlotState.READY
        self._ready[sequence] = slot
        return sequence

    def emptied(self, slot: int) -> None:
        """There was nothing to fill the slot with: its group is the end."""
        sequence = self._filling.pop(self._expect(slot, SlotState.FILLING))
        if sequence >= 0:
            self.end(sequence)
        self._set_free(slot)

    def failed(self, slot: int) -> int | None:
        """The slot could not be filled; the number of its group, where that is still wanted."""
        sequence = self._filling.pop(self._expect(slot, SlotState.FILLING))
        self._set_free(slot)
        return None if sequence < 0 else sequence

    def unfill(self, fill: Fill) -> None:
        """Take `fill` back, before anything else was asked: the same group is asked for again."""
        del self._filling[self._expect(fill.slot, SlotState.FILLING)]
        self._to_fill = fill.sequence
        self._set_free(fill.slot)

    def end(self, sequence: int) -> None:
        """No group comes at or after this one."""
        self._last = sequence if self._last is None else min(self._last, sequence)

    # What the consumer says

    def deliver(self) -> int | None:
        """The slot of the next group, in order, if it is ready; it is lent from now on."""
        slot = self._ready.pop(self._to_deliver, None)
        if slot is None:
            return None
        self._to_deliver += 1
        self._states[slot] = SlotState.LENT
        self._lent[slot] = None
        return slot

    def release(self, slot: int) -> None:
        """Nobody sees the slot's memory any more."""
        del self._lent[self._expect(slot, SlotState.LENT)]
        self._set_free(slot)

    def forget(self) -> list[int]:
        """The slots that have been kept so long that they are the consumer's for good."""
        kept = []
        while len(self._lent) > self.lent_limit:
            slot, _ = self._lent.popitem(last=False)
            del self._states[slot]
            kept.append(slot)
        return kept

    def restart(self) -> None:
        """Forget all groups not delivered yet, and count from nothing again."""
        for slot in self._ready.values():
            self._set_free(slot)
        self._ready.clear()
        self._filling = dict.fromkeys(self._filling, -1)
        self._to_fill = self._to_deliver = 0
        self._last = None

    # What anybody may ask

    @property
    def next_sequence(self) -> int:
        """The group the consumer gets next."""
        return self._to_deliver

    @property
    def full(self) -> bool:
        """Whether nothing more can be filled until something is delivered."""
        return len(self._filling) + len(self._ready) >= self.slots

    @property
    def next_slot(self) -> int | None:
        """The slot that would be filled next, where one that was used before is free for it."""
        return self._free[self._at] if self._free and not self.full else None

    @property
    def ended(self) -> bool:
        """Whether the consumer has had everything."""
        return self._last is not None and self._to_deliver >= self._last

    @property
    def lent(self) -> tuple[int, ...]:
        return tuple(self._lent)

    def state(self, slot: int) -> SlotState | None:
        """None for a slot that was forgotten or never was."""
        return self._states.get(slot)

    @property
    def _at(self) -> int:
        """Which of the free slots is filled next."""
        return 0 if self.oldest_first else -1

    def _fresh(self) -> int:
        self._unmade.add(self._names)
        self._names += 1
        return self._names - 1

    def _set_free(self, slot: int) -> None:
        """A slot that has only a name yet is none: it would come round, and be made in place of one that is there."""
        if slot in self._unmade:
            self._unmade.remove(slot)
            del self._states[slot]
            return
        self._states[slot] = SlotState.FREE
        self._free.append(slot)
        self._trim()

    def _trim(self) -> None:
        """Give up free slots beyond those that go round: the consumer gave back what it had kept."""
        while self._free and len(self._states) - len(self._lent) > self.slots + USUALLY_LENT:
            del self._states[self._free.pop(0)]

    def _expect(self, slot: int, state: SlotState) -> int:
        if self._states.get(slot) is not state:
            raise RingError(f"slot {slot} is {self._states.get(slot)}, not {state}")
        return slot
