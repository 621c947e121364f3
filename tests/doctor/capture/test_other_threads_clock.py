"""The CPU time of other threads, from readings of made-up clocks."""

import pytest

from forebay.doctor.capture import thread_readings
from forebay.doctor.capture.thread_readings import INTERVAL_NS, OtherThreadsClock


@pytest.fixture
def clock(monkeypatch):
    """A clock of a loop that is busy all the time, while other threads keep half a core busy."""
    readings = {"now": 0}
    monkeypatch.setattr(thread_readings.time, "process_time", lambda: 1.5 * readings["now"] / 1e9)
    monkeypatch.setattr(thread_readings.time, "thread_time", lambda: readings["now"] / 1e9)
    clock = OtherThreadsClock()

    def read(now):
        readings["now"] = now
        clock.read(now)

    return clock, read


def test_the_time_of_the_loop_does_not_count(clock):
    clock, read = clock
    for number in range(10):
        read(number * INTERVAL_NS)
    assert clock.other_cores(0, 9 * INTERVAL_NS) == pytest.approx(0.5)
    assert clock.other_cores(3 * INTERVAL_NS, 5 * INTERVAL_NS) == pytest.approx(0.5)


def test_without_two_readings_nothing_is_known(clock):
    clock, read = clock
    assert clock.other_cores(0, 10) is None
    read(0)
    read(INTERVAL_NS - 1)  # too soon for another reading
    assert clock.other_cores(0, INTERVAL_NS) is None


def test_the_number_of_readings_is_limited(clock, monkeypatch):
    monkeypatch.setattr(thread_readings, "MAX_READINGS", 3)
    clock, read = clock
    for number in range(10):
        read(number * INTERVAL_NS)
    assert clock.other_cores(3 * INTERVAL_NS, 9 * INTERVAL_NS) is None


def test_readings_of_another_thread_do_not_mix_with_those_of_the_loop(clock, monkeypatch):
    clock, read = clock
    for number in range(6):
        monkeypatch.setattr(thread_readings, "get_ident", lambda number=number: 2 if number == 5 else 1)
        read(number * INTERVAL_NS)
    assert clock.other_cores(0, 5 * INTERVAL_NS) == pytest.approx(0.5)
