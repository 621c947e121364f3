"""A station does what the same station does event by event, and never loses or invents work."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.measure.simulate.cases import event_by_event

from forebay.measure.simulate.server import Station

BATCHES = st.lists(st.tuples(st.floats(0, 100), st.floats(0.01, 10)), min_size=1, max_size=20)


@given(BATCHES, st.integers(1, 5))
def test_a_station_is_done_when_events_say_so(batches, servers):
    arrivals, services = np.array(batches).T
    done = Station("any", 1, servers).serve(arrivals, services)
    np.testing.assert_allclose(done, event_by_event(arrivals.tolist(), services.tolist(), servers), rtol=1e-9)


@given(BATCHES, st.integers(1, 3))
def test_stations_side_by_side_know_nothing_of_each_other(batches, servers):
    arrivals, services = np.array(batches).T
    alone = Station("one", 1, servers).serve(arrivals, services)
    both = Station("two", 2, servers).serve(np.tile(arrivals, 2), np.tile(services, 2))
    np.testing.assert_allclose(both, np.tile(alone, 2))


def test_a_step_is_served_after_the_one_before():
    station = Station("link", 1)
    station.serve(np.array([0.0]), np.array([5.0]))
    assert station.serve(np.array([1.0]), np.array([2.0])) == pytest.approx([7.0])


def test_two_servers_take_two_batches_at_a_time():
    done = Station("workers", 1, 2).serve(np.zeros(3), np.full(3, 2.0))
    assert sorted(done) == [2.0, 2.0, 4.0]


def test_the_first_to_come_is_the_first_to_be_served():
    done = Station("disk", 1).serve(np.array([2.0, 0.0, 1.0]), np.ones(3))
    assert done.tolist() == [3.0, 1.0, 2.0]


@given(BATCHES, st.integers(1, 4))
def test_work_is_counted_once(batches, servers):
    arrivals, services = np.array(batches).T
    station = Station("any", 1, servers)
    station.serve(arrivals, services)
    assert station.busy_seconds == pytest.approx(services.sum())
