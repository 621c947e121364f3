"""The time of a step by line: from recorded calls and from samples. The rest of the time has no line."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.captures import JAX, TORCH, download, jax_loop, loop, ops, run, sampled, upload

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.step_lines import longest_host_line, step_lines
from forebay.doctor.model.events import EventKind, HostSample


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


def test_a_line_with_few_samples_gets_only_a_part_of_its_time():
    capture = sampled(loop(frameworks=TORCH), (14, "numpy.sort", 10))
    lines, other, _ = seconds_of(replace(capture, samples=capture.samples[-1:]))
    assert lines[14] == pytest.approx(10e-3 / 3)
    assert other == pytest.approx(10e-3 * 2 / 3)


def test_lines_with_few_samples_in_the_profiled_steps_get_their_share_from_all_steps():
    """The sampler was late in the profiled steps, so one sample of line 14 stands for most of their time."""
    capture = jax_loop(ms=10)
    ends = [event.end for event in capture.events if event.kind == EventKind.STEP]
    late = [HostSample(ends[-1] - 1, 300_000_000, 1, 14, "a"), HostSample(ends[-1], 5_000_000, 1, 15, "b")]
    both = [HostSample(end - line, 5_000_000, 1, line, "a") for end in ends[4:10] for line in [14, 15] * 6]
    first = replace(capture.window, start=ends[-6], end=ends[-1], anchor=capture.events[-1].site)
    lines, _, _ = seconds_of(replace(capture, samples=tuple(sorted([*both, *late])), window=first))
    assert lines[14] < 2 * 10 * lines[15]


def test_lines_name_recorded_calls_and_sampled_functions():
    capture = sampled(loop(download("Tensor.item", 1), frameworks=TORCH), (14, "numpy.sort", 2))
    calls = {name for each in step_lines(CaptureView(capture)).lines for name, _ in each.functions}
    assert calls == {"Tensor.item", "numpy.sort"}


def test_without_a_loop_there_are_no_lines():
    assert seconds_of(loop(steps=0)) == ({}, 0.0, 0.0)


def test_the_longest_line_of_the_host_is_no_compiled_call_and_no_wait():
    capture = sampled(jax_loop(run(ms=5, line=3), download(ms=3, line=4)), (14, "jax._src.numpy.stack", 2))
    longest = longest_host_line(CaptureView(capture))
    assert (longest.line.number, longest.seconds) == (14, pytest.approx(2e-3 * 78 / 80))


def test_a_conversion_is_work_of_the_host():
    longest = longest_host_line(CaptureView(jax_loop(run(ms=4), upload(ms=6, line=5))))
    assert (longest.line.number, longest.seconds) == (5, pytest.approx(6e-3))


def test_operations_that_compute_before_they_return_are_not_work_of_the_host():
    capture = loop(ops(100, 1, api="torch operations", line=14), frameworks=TORCH)
    assert longest_host_line(CaptureView(sampled(capture, (14, "torch.matmul", 5), (14, "", 4)))) is None


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
