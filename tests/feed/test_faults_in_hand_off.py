"""Slots, hand-offs and device maps that fail: the batch does not count as received."""

import numpy as np
import pytest
from tests.support.received import collect_rows, rows_of

import forebay as fb
from forebay.errors import DeviceMemoryError, FeedError
from forebay.testing import SimulatedEngine


@pytest.fixture
def feed():
    """A feed of 400 rows on a simulated device."""
    with fb.from_arrays(np.arange(400)).batch(8).feed("numpy", device=SimulatedEngine()) as feed:
        yield feed


def fail_at(failing, error):
    """Return device transforms that raise `error` for the batch with number `failing`."""

    def fail(leaves, key):
        if leaves[0][0] == 8 * failing:
            raise error("on purpose")
        return leaves[0]

    return fail


def assert_resumes_after(error, feed, epoch):
    """Assert that an epoch ends with this error.

    Also assert that the feed then resumes after the last received row.
    """
    got = []
    with pytest.raises(error):
        collect_rows(epoch, got)
    with pytest.raises(FeedError, match="this iteration has ended"):
        next(epoch)
    feed.load_state_dict(feed.state_dict())
    assert got + rows_of(feed) == list(range(400))


def test_a_slot_that_could_not_be_allocated_is_not_reused_before_free_slots(feed):
    ring = feed._runner._exchange.ring
    feed._runner._exchange.report_failed(ring.start_fill(), DeviceMemoryError("no room for another slot"))
    assert ring.next_slot is None  # the ring has no free slot, so it will make a new one
    assert sum(len(batch) for batch in feed) == 400


@pytest.mark.parametrize("failing", [0, 1, 9, 30])
def test_a_batch_that_could_not_be_handed_off_does_not_count_as_received(feed, failing):
    epoch = iter(feed)
    hand_off, calls = epoch._hand_off, []

    def fail_once(roots):
        calls.append(roots)
        if len(calls) == failing + 1:
            raise MemoryError("no room for another array")
        return hand_off(roots)

    epoch._hand_off = fail_once
    assert_resumes_after(MemoryError, feed, epoch)


@pytest.mark.parametrize("failing", [0, 1, 30])
def test_a_device_map_that_raises_stop_iteration_does_not_end_the_epoch(feed, failing):
    epoch = iter(feed)
    epoch._device_transforms = fail_at(failing, StopIteration)
    assert_resumes_after(RuntimeError, feed, epoch)


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("failing", [0, 1, 30])
def test_a_batch_whose_device_map_failed_does_not_count_as_received(feed, failing, error):
    epoch = iter(feed)
    epoch._device_transforms = fail_at(failing, error)
    assert_resumes_after(error, feed, epoch)


def test_a_hand_off_that_raises_stop_iteration_does_not_end_the_epoch():
    with fb.from_arrays(np.arange(400)).batch(8).feed("numpy") as feed:
        epoch = iter(feed)
        next(epoch)
        epoch._hand_off = lambda roots: next(iter(()))
        with pytest.raises(RuntimeError, match="StopIteration"):
            rows_of(epoch)
