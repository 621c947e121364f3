"""Step times and ratios of the runs of public scripts."""

from dataclasses import replace

import pytest
from tests.doctor.captures import LOOP, MS, OTHER, capture_of
from tests.wild import step_clock
from tests.wild.measure import compare, profiling_cost, reported_share, sampled_share, step_seconds, steps_between

from forebay.doctor.model.capture import Window
from forebay.doctor.model.events import HostSample


def marks(count, *, milliseconds=2):
    return [number * milliseconds * MS for number in range(count)]


def test_a_long_block_of_steps_does_not_change_the_step_time():
    times = marks(100)
    late = [time + 500 * MS for time in times[75:]]
    assert step_seconds(times[:75] + late) == pytest.approx(0.002)


def test_a_call_that_makes_several_steps_marks_each_of_them(monkeypatch):
    times = iter([0, 500 * MS, 1000 * MS])
    monkeypatch.setattr(step_clock, "_marks", [])
    monkeypatch.setattr(step_clock, "perf_counter_ns", lambda: next(times))
    step_clock.mark()
    step_clock.mark(50)
    step_clock.mark(50)
    assert step_seconds(step_clock._marks) == pytest.approx(0.010)


def test_the_step_time_of_a_short_run_is_the_median_of_its_single_steps():
    assert step_seconds(marks(20)) == pytest.approx(0.002)
    assert step_seconds(marks(12)) is None


def test_steps_outside_the_limits_do_not_count():
    assert steps_between(marks(50), 0, 20 * MS) == pytest.approx(0.002)
    assert steps_between(marks(50), 0, 2 * MS) is None


def test_the_error_compares_speed_ups():
    verdict = {"step_seconds": 0.010, "predicted_seconds": [0.004, 0.005]}
    result = compare([0.020, 0.022, 0.021], [0.010, 0.010, 0.011], verdict)
    assert result["speed_up"] == pytest.approx(2.1)
    assert result["predicted_speed_up"] == pytest.approx([2.0, 2.5])
    assert result["is_inside"]
    assert result["error"] == pytest.approx(2.25 / 2.1 - 1)


def test_without_a_prediction_there_is_no_error():
    assert compare([0.02], [0.01], {"step_seconds": 0.01})["error"] is None


def test_rows_without_a_line_do_not_count():
    rows = [{"line": 3, "share_of_step": 0.25}, {"line": None, "share_of_step": 0.5}]
    assert reported_share({"crossings": rows, "host_lines": rows[:1]}) == 0.5


def capture_with_samples(*samples):
    """Return a capture whose profiled part lasts from 100 to 200 ms, with samples of 20 ms."""
    found = [HostSample(ms * MS, 20 * MS, thread, 0) for ms, thread in samples]
    return replace(capture_of([]), window=Window(100 * MS, 200 * MS), samples=tuple(found))


def test_samples_outside_the_window_and_of_other_threads_do_not_count():
    capture = capture_with_samples((50, LOOP), (120, LOOP), (140, LOOP), (160, OTHER), (300, LOOP))
    assert sampled_share(capture) == pytest.approx(0.4)
    assert sampled_share(capture_with_samples()) is None


def test_profiled_and_unprofiled_steps_are_compared_with_a_run_without_the_doctor():
    profiled = [100 * MS + time for time in marks(21, milliseconds=3)]
    unprofiled = [200 * MS + time for time in marks(60)]
    cost = profiling_cost(marks(100), profiled + unprofiled, capture_with_samples())
    assert cost["profiled"] == pytest.approx(1.5)
    assert cost["unprofiled"] == pytest.approx(1.0)
    assert cost["run"] is None
