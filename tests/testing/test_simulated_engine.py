"""The simulated engine passes `EngineTests`, and raises HazardError if a slot is misused."""

import time
from itertools import islice

import numpy as np
import pytest

import forebay as fb
from forebay.testing import EngineTests, HazardError, SimulatedEngine


class TestSimulatedEngine(EngineTests):
    def make_engine(self):
        return SimulatedEngine()


class TestSlowSimulatedEngine(EngineTests):
    def make_engine(self):
        return SimulatedEngine(bytes_per_second=1e6, latency_seconds=1.0, consumer_seconds=5.0)


def send_slot(engine):
    memory = engine.open_slot(64)
    memory.host[:] = bytes(range(64))
    engine.send(memory)
    return memory


def test_writing_a_slot_during_its_copy_is_a_hazard():
    engine = SimulatedEngine()
    memory = send_slot(engine)
    memory.host[0] = 255
    with pytest.raises(HazardError, match="written while its copy was in flight"):
        engine.await_arrival(memory)


def test_lending_a_slot_twice_is_a_hazard():
    engine = SimulatedEngine()
    memory = send_slot(engine)
    engine.await_arrival(memory)
    with pytest.raises(HazardError, match="lent twice"):
        engine.await_arrival(memory)


def test_sending_a_slot_that_is_lent_is_a_hazard():
    engine = SimulatedEngine()
    memory = send_slot(engine)
    engine.await_arrival(memory)
    with pytest.raises(HazardError, match="still lent"):
        engine.send(memory)


def test_lending_a_slot_that_was_never_sent_is_a_hazard():
    engine = SimulatedEngine()
    with pytest.raises(HazardError, match="lent but never sent"):
        engine.await_arrival(engine.open_slot(64))


def test_device_memory_is_poisoned_until_a_copy_arrives():
    engine = SimulatedEngine()
    memory = send_slot(engine)
    assert set(memory.device[:]) == {0xDB}
    engine.await_arrival(memory)
    assert memory.device[:] == bytes(range(64))


def test_virtual_time_advances_for_copies():
    engine = SimulatedEngine(bytes_per_second=1e6, latency_seconds=0.5)
    with fb.from_arrays(np.zeros((1000, 100))).batch(100).feed("numpy", device=engine) as feed:
        for _ in feed:
            pass
    assert engine.clock.now >= 0.5
    assert engine.copies >= 1


def test_leaving_an_epoch_early_lends_no_further_slot():
    with fb.from_arrays(np.arange(4000)).batch(8).feed("numpy", device=SimulatedEngine()) as feed:
        for _ in range(5):
            list(islice(feed, 4))
            while not feed._runner._exchange.ring.is_full:
                time.sleep(0.001)
        assert sum(len(batch) for batch in feed) == 4000
