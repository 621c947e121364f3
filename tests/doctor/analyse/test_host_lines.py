"""The time of the host outside of recorded calls, by line."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.captures import JAX, LOOP, MS, OTHER, STEP_LINE, TORCH, loop, run, run_of, sampled, script

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.costs import unexplained_seconds
from forebay.doctor.analyse.host_lines import host_lines, run_lines
from forebay.doctor.analyse.loop_samples import trusted_share
from forebay.doctor.model.capture import Window
from forebay.doctor.model.events import HostSample

TRUSTED = 78 / 80  # `trusted_share` of a line with 78 samples; `sampled` adds 78 samples to each line
LOOP_CODE = script("for x in xs:", *["    f(x)"] * 30, first=10)


def lines_of(capture):
    return {each.line.number: each for each in host_lines(CaptureView(capture))}


def test_the_time_of_a_line_is_that_of_its_samples():
    found = lines_of(sampled(loop(frameworks=TORCH), (14, "gc.collect", 6), (15, "numpy.sort", 4)))
    assert found[14].seconds == pytest.approx(6e-3 * TRUSTED)
    assert found[15].seconds == pytest.approx(4e-3 * TRUSTED)


def test_the_function_with_most_time_comes_first():
    found = lines_of(sampled(loop(frameworks=TORCH), (14, "gc.collect", 2), (14, "numpy.sort", 8)))
    assert found[14].function == "numpy.sort"
    assert [name for name, _ in found[14].functions] == ["numpy.sort", "gc.collect"]


def test_only_the_time_outside_of_recorded_calls_belongs_to_lines():
    found = lines_of(sampled(loop(run(ms=7), frameworks=JAX), (14, "numpy.sort", 3)))
    assert found[14].seconds == pytest.approx(3e-3 * TRUSTED)


def test_a_line_with_few_samples_never_takes_the_whole_step():
    capture = sampled(loop(frameworks=TORCH), (14, "time.sleep", 10))
    seconds = {
        count: lines_of(replace(capture, samples=capture.samples[-count:]))[14].seconds for count in (20, 40, 60)
    }
    assert seconds == pytest.approx({20: 10e-3 * 20 / 22, 40: 10e-3 * 40 / 42, 60: 10e-3 * 60 / 62})


@given(st.integers(1, 10**6))
def test_more_samples_are_trusted_more(samples):
    assert 0 < trusted_share(samples) < trusted_share(samples + 1) < 1


def test_samples_inside_recorded_calls_do_not_count():
    assert lines_of(sampled(loop(run(ms=10), frameworks=JAX), (14, "numpy.sort", 3))) == {}


def with_short_window(capture, *samples):
    """Return the capture with a window of the last ten steps. Earlier steps have one sample per (line, function)."""
    ends = [event.end for event in capture.events if event.kind == "step"]
    window = Window(start=ends[-11], end=ends[-1], anchor=("step", "optimizer.step", STEP_LINE))
    found = [HostSample(end - MS // 2, MS, LOOP, line, function) for end in ends[5:-10] for line, function in samples]
    return replace(capture, window=window, samples=tuple(found))


def test_profiled_steps_with_few_samples_use_the_samples_of_other_steps():
    capture = loop(run("jax.jit", 4, line=14), frameworks=JAX, facts=LOOP_CODE)
    short = with_short_window(capture, (14, ""), (14, "jax.f"), (15, "numpy.sort"), (16, ""))
    found, steps = lines_of(short), len(short.samples) // 4
    assert [found[line].seconds for line in (15, 16)] == pytest.approx([2.5e-3 * trusted_share(steps)] * 2)
    # Line 14 has half of the samples, so 5 of 10 ms. The compiled call takes 4 of these 5 ms, and first those of the
    # samples without a function name.
    assert dict(found[14].functions) == pytest.approx({"": 0.0, "jax.f": 1e-3 * trusted_share(2 * steps)})


def test_samples_on_lines_outside_of_the_loop_do_not_count():
    capture = loop(run("jax.jit", 4, line=14), frameworks=JAX, facts=LOOP_CODE)
    assert set(lines_of(with_short_window(capture, (14, "jax.f"), (15, "jax.g"), (3, "numpy.load")))) == {14, 15}


@given(st.lists(st.tuples(st.integers(-1, 39), st.sampled_from(["", "a", "b"])), min_size=1, max_size=12))
def test_samples_of_other_steps_give_lines_at_most_the_unexplained_time(samples):
    view = CaptureView(with_short_window(loop(run("jax.jit", 4, line=14), frameworks=JAX), *samples))
    assert sum(each.seconds for each in host_lines(view)) <= unexplained_seconds(view) * (1 + 1e-9)


def test_without_a_loop_there_are_no_lines():
    assert lines_of(loop(steps=0)) == {}


@given(st.lists(st.tuples(st.integers(-1, 30), st.sampled_from(["", "a", "b"]), st.floats(0.01, 50)), min_size=1))
def test_all_lines_together_take_at_most_the_unexplained_time(lines):
    view = CaptureView(sampled(loop(run(ms=4), frameworks=JAX), *lines))
    total = sum(each.seconds for each in host_lines(view))
    assert total <= unexplained_seconds(view) * (1 + 1e-9)
    if all(line >= 0 for line, *_ in lines):
        assert total >= unexplained_seconds(view) * TRUSTED * (1 - 1e-9)


def test_the_lines_of_a_run_without_a_loop_have_their_share_of_the_run():
    lines = run_lines(CaptureView(run_of((14, "torch.load", 6), (15, "", 2))))
    assert [(each.line.number, each.function) for each in lines] == [(14, "torch.load"), (15, "")]
    assert [each.seconds for each in lines] == pytest.approx([0.6, 0.2])


def test_other_threads_of_a_run_do_not_count():
    capture = run_of((14, "torch.load", 6))
    other = [HostSample(at * MS, MS, OTHER, 20) for at in range(100)]
    lines = run_lines(CaptureView(replace(capture, samples=(*capture.samples, *other))))
    assert [each.line.number for each in lines] == [14]


def test_a_run_with_a_loop_or_with_few_samples_has_no_lines():
    assert run_lines(CaptureView(sampled(loop(frameworks=TORCH), (14, "gc.collect", 6)))) == ()
    capture = run_of((14, "torch.load", 6))
    assert run_lines(CaptureView(replace(capture, samples=capture.samples[:19]))) == ()


@given(st.lists(st.tuples(st.integers(-1, 50), st.integers(0, 10**10), st.sampled_from([LOOP, OTHER])), max_size=200))
def test_all_lines_of_any_run_take_at_most_the_time_of_the_run(samples):
    capture = replace(run_of(), samples=tuple(HostSample(0, length, thread, line) for line, length, thread in samples))
    total = sum(each.seconds for each in run_lines(CaptureView(capture)))
    assert total <= capture.seconds * (1 + 1e-9)
