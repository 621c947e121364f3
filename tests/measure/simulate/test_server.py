"""A server agrees with a simulation event by event, and counts all work once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.measure.simulate.cases import event_by_event

from forebay.measure.simulate.server import Server

BATCHES = st.lists(st.tuples(st.floats(0, 100), st.floats(0.01, 10)), min_size=1, max_size=20)


@given(BATCHES, st.integers(1, 5))
def test_a_server_agrees_with_the_event_simulation(batches, channels):
    arrivals, services = np.array(batches).T
    done = Server("any", 1, channels).serve(arrivals, services)
    np.testing.assert_allclose(done, event_by_event(arrivals.tolist(), services.tolist(), channels), rtol=1e-9)


@given(BATCHES, st.integers(1, 3))
def test_copies_of_a_server_are_independent(batches, channels):
    arrivals, services = np.array(batches).T
    alone = Server("one", 1, channels).serve(arrivals, services)
    both = Server("two", 2, channels).serve(np.tile(arrivals, 2), np.tile(services, 2))
    np.testing.assert_allclose(both, np.tile(alone, 2))


def test_a_step_is_served_after_the_previous_step():
    server = Server("link", 1)
    server.serve(np.array([0.0]), np.array([5.0]))
    assert server.serve(np.array([1.0]), np.array([2.0])) == pytest.approx([7.0])


def test_two_channels_serve_two_batches_at_the_same_time():
    done = Server("workers", 1, 2).serve(np.zeros(3), np.full(3, 2.0))
    assert sorted(done) == [2.0, 2.0, 4.0]


def test_batches_are_served_in_order_of_arrival():
    done = Server("disk", 1).serve(np.array([2.0, 0.0, 1.0]), np.ones(3))
    assert done.tolist() == [3.0, 1.0, 2.0]


@given(BATCHES, st.integers(1, 4))
def test_work_is_counted_once(batches, channels):
    arrivals, services = np.array(batches).T
    server = Server("any", 1, channels)
    server.serve(arrivals, services)
    assert server.busy_seconds == pytest.approx(services.sum())
