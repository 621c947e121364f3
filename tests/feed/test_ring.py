"""The ring: properties of any sequence of events, and single cases."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from forebay.feed.ring import Fill, Ring, RingError, SlotState
from forebay.pipeline.plan import LENT_SLOTS


class RingMachine(RuleBasedStateMachine):
    """Causes events of worker threads and the consumer in any allowed order."""

    @initialize(slots=st.integers(1, 5), limit=st.integers(1, 4), oldest_first=st.booleans())
    def start(self, slots, limit, oldest_first):
        self.ring = Ring(slots, lent_limit=limit, oldest_first=oldest_first)
        self.allocated = set()  # slots that have memory
        self.content = {}  # slot -> the group written into it
        self.filling = {}  # slot -> the group being written; None after a restart
        self.lent = {}  # slot -> the group that is lent
        self.delivered = 0
        self.last = None

    @rule()
    def a_worker_starts_a_fill(self):
        expected, fresh = self.ring.next_slot, self.ring._next_id
        fill = self.ring.start_fill()
        if fill is None:
            return
        assert fill.slot == (fresh if expected is None else expected)
        assert fill.slot not in self.filling
        assert fill.slot not in self.lent
        self.content.pop(fill.slot, None)
        self.filling[fill.slot] = fill.sequence

    @precondition(lambda self: self.filling)
    @rule(data=st.data())
    def a_worker_finishes_a_fill(self, data):
        slot = data.draw(st.sampled_from(sorted(self.filling)))
        self.ring.mark_filled(slot)
        self.allocated.add(slot)
        self.content[slot] = self.filling.pop(slot)

    @precondition(lambda self: self.filling)
    @rule(data=st.data())
    def a_worker_reaches_the_end_of_data(self, data):
        slot, allocated = data.draw(st.sampled_from(sorted(self.filling))), data.draw(st.booleans())
        sequence = self.filling.pop(slot)
        if allocated:
            self.allocate_slot(slot)
        self.ring.mark_end_of_data(slot)
        assert self.ring.state(slot) in ((SlotState.FREE, None) if slot in self.allocated else (None,))
        if sequence is not None:
            self.last = sequence if self.last is None else min(self.last, sequence)

    def allocate_slot(self, slot):
        self.ring.mark_allocated(slot)
        self.allocated.add(slot)

    @rule()
    def the_consumer_takes_a_group(self):
        slot = self.ring.deliver()
        if slot is None:
            return
        assert self.content[slot] == self.delivered
        assert slot not in self.lent
        self.lent[slot] = self.delivered
        self.delivered += 1

    @precondition(lambda self: self.lent)
    @rule(data=st.data())
    def the_consumer_releases_a_slot(self, data):
        slot = data.draw(st.sampled_from(sorted(self.lent)))
        self.ring.release(slot)
        del self.lent[slot]

    @rule()
    def the_ring_drops_old_lent_slots(self):
        for slot in self.ring.drop_oldest_lent():
            del self.lent[slot]
            self.content.pop(slot, None)

    @rule()
    def the_ring_restarts(self):
        self.ring.restart()
        self.filling = dict.fromkeys(self.filling)
        self.content = {slot: group for slot, group in self.content.items() if slot in self.lent}
        self.delivered, self.last = 0, None

    @invariant()
    def lent_groups_stay_lent(self):
        assert set(self.ring.lent_slots) == set(self.lent)
        assert all(self.ring.state(slot) is SlotState.LENT for slot in self.lent)

    @invariant()
    def the_next_slot_is_free(self):
        slot = self.ring.next_slot
        assert slot is None or (self.ring.state(slot) is SlotState.FREE and not self.ring.is_full)

    @invariant()
    def the_number_of_busy_slots_is_bounded(self):
        busy = [slot for slot in range(self.ring._next_id) if self.ring.state(slot) not in (None, SlotState.LENT)]
        assert len(busy) <= self.ring.slots + LENT_SLOTS

    @invariant()
    def the_ring_ends_after_the_last_group(self):
        assert self.ring.has_ended == (self.last is not None and self.delivered >= self.last)


TestRing = RingMachine.TestCase
TestRing.settings = settings(stateful_step_count=60)


def test_groups_are_delivered_in_order_even_if_they_are_filled_in_another_order():
    ring = Ring(3)
    fills = [ring.start_fill() for _ in range(3)]
    for fill in reversed(fills):
        assert ring.deliver() is None
        ring.mark_filled(fill.slot)
    assert [ring.deliver() for _ in range(3)] == [fill.slot for fill in fills]


def test_a_consumer_that_keeps_everything_never_stops_the_ring():
    ring = Ring(2, lent_limit=3)
    for _ in range(100):
        ring.mark_filled(ring.start_fill().slot)
        assert ring.deliver() is not None
        ring.drop_oldest_lent()
    assert len(ring.lent_slots) == 3


def test_released_slots_are_reused():
    ring = Ring(2)
    used = set()
    for _ in range(100):
        fill = ring.start_fill()
        used.add(fill.slot)
        ring.mark_filled(fill.slot)
        ring.release(ring.deliver())
    assert len(used) == 1


@pytest.mark.parametrize(("oldest_first", "expected"), [(True, [0, 1, 2]), (False, [2, 1, 0])])
def test_the_oldest_or_the_newest_free_slot_is_filled_next(oldest_first, expected):
    ring = Ring(3, oldest_first=oldest_first)
    fills = [ring.start_fill() for _ in range(3)]
    for fill in fills:
        ring.mark_filled(fill.slot)
    for _ in fills:
        ring.release(ring.deliver())
    assert [ring.start_fill().slot for _ in fills] == expected


def test_a_failed_group_frees_its_slot():
    ring = Ring(1)
    assert ring.mark_failed(ring.start_fill().slot) == 0
    assert ring.start_fill().sequence == 1


def test_an_impossible_event_raises_a_ring_error():
    ring = Ring(1)
    fill = ring.start_fill()
    with pytest.raises(RingError):
        ring.release(fill.slot)


GIVE_UP = [Ring.mark_end_of_data, Ring.mark_failed, lambda ring, slot: ring.cancel_fill(Fill(slot, 0))]


@pytest.mark.parametrize("give_up", GIVE_UP, ids=["end of data", "failed", "canceled"])
@pytest.mark.parametrize(
    ("is_allocated", "next_slot", "filled"), [(False, None, 1), (True, 0, 0)], ids=["new", "allocated"]
)
def test_a_slot_is_reused_only_if_it_was_allocated(give_up, is_allocated, next_slot, filled):
    ring = Ring(2, oldest_first=True)
    slot = ring.start_fill().slot
    if is_allocated:
        ring.mark_allocated(slot)
    give_up(ring, slot)
    ring.restart()
    assert ring.next_slot == next_slot
    assert ring.start_fill().slot == filled


class FaultyRingMachine(RingMachine):
    """Also causes failures of worker threads, and checks the queries of the ring."""

    @initialize(slots=st.integers(1, 5), limit=st.integers(1, 4), oldest_first=st.booleans())
    def start(self, slots, limit, oldest_first):
        super().start(slots, limit, oldest_first)
        self.failed = set()  # groups since the last restart that will not be filled

    @precondition(lambda self: self.filling)
    @rule(data=st.data())
    def a_worker_fails(self, data):
        slot, allocated = data.draw(st.sampled_from(sorted(self.filling))), data.draw(st.booleans())
        sequence = self.filling.pop(slot)
        if allocated:
            self.allocate_slot(slot)
        assert self.ring.mark_failed(slot) == sequence
        assert slot in self.allocated or self.ring.state(slot) is None
        self.failed |= {sequence} - {None}

    @rule()
    def the_ring_restarts(self):
        super().the_ring_restarts()
        self.failed = set()

    @invariant()
    def no_group_after_a_failed_group_is_delivered(self):
        assert self.delivered <= min(self.failed, default=self.delivered)

    @invariant()
    def the_next_group_is_known(self):
        assert self.ring.next_sequence == self.delivered

    @invariant()
    def busy_slots_do_not_exceed_the_slot_count(self):
        states = [self.ring.state(slot) for slot in range(self.ring._next_id)]
        busy = states.count(SlotState.FILLING) + states.count(SlotState.READY)
        assert busy <= self.ring.slots
        assert self.ring.is_full == (busy == self.ring.slots)


TestFaultyRing = FaultyRingMachine.TestCase
TestFaultyRing.settings = settings(stateful_step_count=60)


def test_mark_filled_returns_the_sequence_number_of_the_group():
    ring = Ring(2)
    fills = [ring.start_fill(), ring.start_fill()]
    assert [ring.mark_filled(fill.slot) for fill in reversed(fills)] == [1, 0]


def test_a_group_from_before_a_restart_has_no_sequence_number_when_filled_or_failed():
    ring = Ring(3)
    fills = [ring.start_fill() for _ in range(3)]
    ring.restart()
    assert [ring.mark_filled(fills[0].slot), ring.mark_failed(fills[1].slot)] == [None, None]
    ring.mark_end_of_data(fills[2].slot)
    assert ring.deliver() is None
    assert not ring.has_ended
    assert ring.start_fill().sequence == 0


def test_groups_from_before_a_restart_still_occupy_their_slots():
    ring = Ring(1)
    fill = ring.start_fill()
    ring.restart()
    assert ring.is_full
    assert ring.start_fill() is None
    ring.mark_filled(fill.slot)
    assert ring.start_fill().slot == fill.slot


def test_the_first_of_several_ends_counts():
    ring = Ring(4)
    fills = [ring.start_fill() for _ in range(3)]
    ring.mark_end_of_data(fills[2].slot)
    ring.set_end(1)
    ring.set_end(3)
    ring.mark_filled(fills[0].slot)
    assert not ring.has_ended
    assert ring.deliver() == fills[0].slot
    assert ring.has_ended
    assert ring.start_fill() is None


def test_a_dropped_slot_cannot_be_released():
    ring = Ring(1, lent_limit=1)
    for _ in range(2):
        ring.mark_filled(ring.start_fill().slot)
        ring.deliver()
    (dropped,) = ring.drop_oldest_lent()
    assert ring.state(dropped) is None
    with pytest.raises(RingError):
        ring.release(dropped)


def test_there_is_no_next_slot_before_the_first_fill():
    assert Ring(2).next_slot is None


def test_a_released_slot_is_filled_next_and_the_query_changes_nothing():
    ring = Ring(2)
    ring.mark_filled(ring.start_fill().slot)
    slot = ring.deliver()
    assert ring.next_slot is None
    ring.release(slot)
    assert [ring.next_slot, ring.next_slot] == [slot, slot]
    assert ring.start_fill().slot == slot
    assert ring.next_slot is None


def test_a_slot_that_failed_or_found_no_data_is_filled_next():
    ring = Ring(2)
    failed, end_of_data = ring.start_fill(), ring.start_fill()
    for fill in (failed, end_of_data):
        ring.mark_allocated(fill.slot)
    ring.mark_failed(failed.slot)
    assert ring.next_slot == failed.slot
    ring.mark_end_of_data(end_of_data.slot)
    assert ring.next_slot == end_of_data.slot


def test_there_is_no_next_slot_while_the_ring_is_full():
    ring = Ring(1)
    ring.mark_filled(ring.start_fill().slot)
    lent = ring.deliver()
    ring.mark_filled(ring.start_fill().slot)
    ring.release(lent)
    assert ring.is_full
    assert ring.next_slot is None
    ring.deliver()
    assert ring.next_slot == lent


def test_ready_slots_are_filled_next_after_a_restart():
    ring = Ring(3)
    fills = [ring.start_fill() for _ in range(3)]
    ring.mark_filled(fills[1].slot)
    assert ring.next_slot is None
    ring.restart()
    assert ring.next_slot == fills[1].slot


def test_a_dropped_slot_is_never_filled_next():
    ring = Ring(1, lent_limit=1)
    for _ in range(3):
        ring.mark_filled(ring.start_fill().slot)
        ring.deliver()
        ring.drop_oldest_lent()
    assert ring.next_slot is None
