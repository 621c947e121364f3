"""The CPU time of other threads and the runnable time of a thread, from simulated clocks."""

import pytest

from forebay.doctor.capture import thread_readings
from forebay.doctor.capture.thread_readings import INTERVAL_NS, OtherThreadsClock, RunnableClock


@pytest.fixture
def clock(monkeypatch):
    """Return the clock of a loop that is always busy, and a function that reads it. Other threads use half a core."""
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


def test_without_two_readings_the_cores_of_other_threads_are_unknown(clock):
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


def test_readings_in_another_thread_than_the_loop_do_not_count(clock, monkeypatch):
    clock, read = clock
    for number in range(6):
        monkeypatch.setattr(thread_readings, "get_ident", lambda number=number: 2 if number == 5 else 1)
        read(number * INTERVAL_NS)
    assert clock.other_cores(0, 5 * INTERVAL_NS) == pytest.approx(0.5)


def test_a_thread_is_runnable_while_it_waits_for_a_core(monkeypatch, tmp_path):
    path = tmp_path / "schedstat"
    path.write_text("111 5000 1\n")
    monkeypatch.setattr(thread_readings, "_THREAD_FILE", path)
    monkeypatch.setattr(thread_readings.time, "thread_time_ns", lambda: 700)
    clock = RunnableClock()
    assert clock.read() == 5700
    path.write_text("222 9000 1\n")
    assert clock.read() == 9700


@pytest.mark.parametrize("name", ["missing", "empty", "other"])
def test_without_a_readable_file_a_thread_is_runnable_for_its_cpu_time(monkeypatch, tmp_path, name):
    (tmp_path / "empty").write_text("")
    (tmp_path / "other").write_text("unexpected text")
    monkeypatch.setattr(thread_readings, "_THREAD_FILE", tmp_path / name)
    monkeypatch.setattr(thread_readings.time, "thread_time_ns", lambda: 700)
    assert RunnableClock().read() == 700
