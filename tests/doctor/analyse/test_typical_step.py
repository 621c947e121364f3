"""The parts of a typical step: shares of the profiled steps, without a few steps that compile."""

from dataclasses import replace

import pytest
from hypothesis import given
from tests.doctor.any_captures import captures
from tests.doctor.captures import LOOP, MS, batch, loop, run

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.costs import cost_of
from forebay.doctor.analyse.step_lines import step_lines
from forebay.doctor.model.events import EventKind, LedgerEvent
from forebay.doctor.report.transfers import transfers_of


def waiting(**given):
    """Build a loop of 10 ms per step that waits 3 ms for a batch and 5 ms for a compiled call."""
    return loop(batch("tf.data", 3, line=9), run(ms=5, line=9), ms=10, **given)


def slow_in_step(capture, number, *, compiles):
    """Make one step 400 ms longer. In this time the step compiles, or no hook records what it does."""
    ends = [event.end for event in capture.events if event.kind == EventKind.STEP]
    start = ends[number]
    shift = [
        event._replace(start=event.start + 400 * MS, end=event.end + 400 * MS) if event.end > start else event
        for event in capture.events
    ]
    compilation = LedgerEvent("compile", "tf.function", 9, LOOP, start, start + 400 * MS)
    events = sorted([*shift, *([compilation] if compiles else [])], key=lambda event: event.end)
    window = replace(capture.window, end=max(event.end for event in events))
    return CaptureView(replace(capture, events=tuple(events), window=window))


@pytest.mark.parametrize("untraced", [(), (20e-3,) * 9, (5e-3,) * 9])
def test_parts_add_up_to_the_unprofiled_step(untraced):
    view = CaptureView(waiting(untraced=untraced))
    parts = view.host_parts
    assert sum(parts.values()) == pytest.approx(view.step_seconds)
    assert parts["waiting for input"] == pytest.approx(0.3 * view.step_seconds)
    assert parts["compiled calls"] == pytest.approx(0.5 * view.step_seconds)


@pytest.mark.parametrize("compiles", [True, False])
def test_one_long_step_does_not_decide_the_parts(compiles):
    view = slow_in_step(waiting(), 3, compiles=compiles)
    assert view.host_parts["waiting for input"] == pytest.approx(0.3 * view.step_seconds, rel=0.1)
    assert view.host_parts["compiled calls"] == pytest.approx(0.5 * view.step_seconds, rel=0.1)


def test_a_single_step_that_compiles_does_not_count():
    view = slow_in_step(waiting(), 3, compiles=True)
    assert view.host_parts["compiling"] == 0
    assert view.host_parts["waiting for input"] == pytest.approx(0.3 * view.step_seconds)


def test_all_reports_state_the_same_time_for_a_wait():
    view = CaptureView(waiting(untraced=(20e-3,) * 9))
    (site,) = view.sites_of(EventKind.INPUT)
    (transfer,) = transfers_of(view)
    (line,) = [each for each in step_lines(view).lines if each.line == site.line]
    part = view.host_parts["waiting for input"]
    assert cost_of(view, site.events) == pytest.approx(part)
    assert (transfer.seconds, transfer.share) == (pytest.approx(part), pytest.approx(0.3))
    assert dict(line.functions)["tf.data"] == pytest.approx(part)


@given(captures)
def test_the_lines_of_any_step_add_up_to_it(capture):
    view = CaptureView(capture)
    found = step_lines(view)
    total = sum(each.seconds for each in found.lines) + found.other_seconds + found.unknown_seconds
    assert total == pytest.approx(view.step_seconds if sum(view.host_parts.values()) else 0)
