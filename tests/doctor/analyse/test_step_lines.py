"""All time of a step by line: recorded calls, samples, and what has no line."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.captures import JAX, TORCH, download, loop, run, sampled

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.step_lines import step_lines


def seconds_of(capture):
    found = step_lines(CaptureView(capture))
    return {each.line.number: each.seconds for each in found.lines}, found.other_seconds, found.unknown_seconds


def test_a_compiled_call_has_its_line():
    capture = loop(run(ms=7), frameworks=JAX)
    line = next(event.line for event in capture.events if event.kind == "run")
    number = CaptureView(capture).line(line).number
    lines, _, unknown = seconds_of(sampled(capture, (14, "numpy.sort", 3)))
    assert lines[number] == pytest.approx(7e-3)
    assert lines[14] == pytest.approx(3e-3 * 78 / 80)
    assert unknown == pytest.approx(0.0, abs=1e-9)


def test_time_without_samples_has_no_line():
    lines, other, unknown = seconds_of(loop(run(ms=7), frameworks=JAX))
    assert sum(lines.values()) == pytest.approx(7e-3)
    assert (other, unknown) == (0.0, pytest.approx(3e-3))


def test_what_few_samples_do_not_show_is_time_of_other_lines():
    capture = sampled(loop(frameworks=TORCH), (14, "numpy.sort", 10))
    lines, other, _ = seconds_of(replace(capture, samples=capture.samples[-1:]))
    assert lines[14] == pytest.approx(10e-3 / 3)
    assert other == pytest.approx(10e-3 * 2 / 3)


def test_a_line_names_its_recorded_call_and_its_sampled_functions():
    capture = sampled(loop(download("Tensor.item", 1), frameworks=TORCH), (14, "numpy.sort", 2))
    calls = {name for each in step_lines(CaptureView(capture)).lines for name, _ in each.functions}
    assert calls == {"Tensor.item", "numpy.sort"}


def test_without_a_loop_there_are_no_lines():
    assert seconds_of(loop(steps=0)) == ({}, 0.0, 0.0)


@given(
    st.lists(st.tuples(st.integers(-1, 30), st.sampled_from(["", "a", "b"]), st.floats(0.01, 50))),
    st.lists(st.sampled_from([run(ms=2), run(ms=4, line=3), download("Tensor.item", 1)]), max_size=3),
    st.integers(0, 200),
)
def test_all_lines_and_the_rest_take_the_time_of_a_step(lines, calls, kept):
    capture = sampled(loop(*calls, frameworks=JAX), *lines)
    view = CaptureView(replace(capture, samples=capture.samples[:kept]))
    found = step_lines(view)
    seconds = [each.seconds for each in found.lines]
    assert sum(seconds) + found.other_seconds + found.unknown_seconds == pytest.approx(view.step_seconds)
    assert min(*seconds, found.other_seconds, found.unknown_seconds, 0.0) >= 0.0
    assert seconds == sorted(seconds, reverse=True)
