"""The time of the host outside of recorded calls, by line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.captures import JAX, TORCH, loop, run, sampled

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.costs import unexplained_seconds
from forebay.doctor.analyse.host_lines import host_lines


def lines_of(capture):
    return {each.line.number: each for each in host_lines(CaptureView(capture))}


def test_a_line_has_the_time_of_its_samples():
    found = lines_of(sampled(loop(frameworks=TORCH), (14, "gc.collect", 6), (15, "numpy.sort", 4)))
    assert found[14].seconds == pytest.approx(6e-3)
    assert found[15].seconds == pytest.approx(4e-3)


def test_the_function_with_most_time_comes_first():
    found = lines_of(sampled(loop(frameworks=TORCH), (14, "gc.collect", 2), (14, "numpy.sort", 8)))
    assert found[14].function == "numpy.sort"
    assert [name for name, _ in found[14].functions] == ["numpy.sort", "gc.collect"]


def test_only_the_time_outside_of_recorded_calls_is_divided():
    found = lines_of(sampled(loop(run(ms=7), frameworks=JAX), (14, "numpy.sort", 3)))
    assert found[14].seconds == pytest.approx(3e-3)


def test_samples_inside_recorded_calls_do_not_count():
    assert lines_of(sampled(loop(run(ms=10), frameworks=JAX), (14, "numpy.sort", 3))) == {}


def test_without_a_loop_there_are_no_lines():
    assert lines_of(loop(steps=0)) == {}


@given(st.lists(st.tuples(st.integers(-1, 30), st.sampled_from(["", "a", "b"]), st.floats(0.01, 50)), min_size=1))
def test_all_lines_together_take_the_unexplained_time_at_most(lines):
    view = CaptureView(sampled(loop(run(ms=4), frameworks=JAX), *lines))
    total = sum(each.seconds for each in host_lines(view))
    assert total <= unexplained_seconds(view) * (1 + 1e-9)
    if all(line >= 0 for line, *_ in lines):
        assert total == pytest.approx(unexplained_seconds(view))
