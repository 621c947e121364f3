"""The parts of a step that a report shows add up to the whole step."""

import math
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor import device_rig as rig
from tests.doctor.any_captures import captures

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.phases import parts_of_step
from forebay.doctor.diagnosis.diagnose import Diagnosis
from forebay.doctor.report import html, terminal
from forebay.doctor.report.document import to_document
from forebay.doctor.report.step_shares import SMALLER_PARTS, merge_small_parts, shares_of

ACTIONS = {
    "python": lambda machine, size: machine.python(size),
    "launch": lambda machine, size: machine.launch(size),
    "wait_for_input": lambda machine, size: machine.wait_for_input(size),
    "upload": lambda machine, size: machine.upload(size * 1000),
    "pinned_upload": lambda machine, size: machine.upload(size * 1000, pinned=True),
    "read": lambda machine, size: machine.read(size * 1000),
    "synchronize": lambda machine, size: machine.synchronize(),
    "call_compiled": lambda machine, size: machine.call_compiled(size),
    "upload_by_another_thread": lambda machine, size: machine.upload_by_another_thread(size * 1000, ready_us=size),
    "read_by_another_thread": lambda machine, size: machine.read_by_another_thread(),
}
steps_of_actions = st.lists(st.tuples(st.sampled_from(sorted(ACTIONS)), st.integers(0, 3000)), min_size=1, max_size=6)


def assert_shares_add_up(view):
    parts = parts_of_step(view)
    assert sum(parts.values()) == pytest.approx(sum(view.step_parts.values()))
    assert all(math.isfinite(seconds) and seconds >= 0 for seconds in parts.values())
    assert sum(shares_of(parts).values()) == pytest.approx(1 if sum(parts.values()) else 0)
    for smallest in (terminal.MIN_PART, html.MIN_PART):
        shown = sum(merge_small_parts(parts, smallest).values())
        assert sum(parts.values()) * (1 - smallest) <= shown + 1e-15
        assert shown <= sum(parts.values()) + 1e-15
    on_page = sum(part.share for part in html._make_step_parts(parts))
    assert on_page == pytest.approx(1 if sum(parts.values()) else 0)
    assert to_document(Diagnosis(view, ()))["parts_share"] == shares_of(parts)


@given(captures)
def test_the_parts_of_any_capture_add_up_to_a_step(capture):
    view = CaptureView(capture)
    assert_shares_add_up(view)
    assert sum(view.step_parts.values()) == pytest.approx(view.step_seconds)


@given(steps_of_actions, st.integers(1, 20), st.booleans(), st.sampled_from([0, 20_000]))
def test_the_parts_of_any_recorded_loop_add_up_to_its_step_time(actions, waits_every, has_calls, launch_cost):
    """If the loop rarely waits, it runs ahead of the device."""
    numbers = count(1)

    def program(machine):
        for name, size in actions:
            ACTIONS[name](machine, size)
        if next(numbers) % waits_every == 0 and machine.streams:
            machine.synchronize()

    capture = rig.run(program, launch_cost=launch_cost)
    view = CaptureView(capture if has_calls else rig.without_calls(capture))
    assert_shares_add_up(view)
    if view.device is not None:
        assert sum(view.step_parts.values()) == pytest.approx(view.step_seconds)


def test_a_loop_that_runs_ahead_of_the_device_has_parts_of_a_whole_step():
    numbers = count(1)

    def program(machine):
        machine.upload(55_000_000, pinned=True)
        machine.launch(1000)
        machine.python(1200)
        if next(numbers) % 20 == 0:
            machine.synchronize()

    view = CaptureView(rig.without_calls(rig.run(program)))
    assert view.median_seconds < 1.3e-3
    assert view.step_seconds == pytest.approx(2e-3, rel=0.02)
    assert sum(view.step_parts.values()) == pytest.approx(view.step_seconds)
    assert_shares_add_up(view)


def test_the_sum_of_small_parts_is_shown_if_it_is_large_enough():
    parts = {"computing": 0.98, **{f"part {number}": 0.004 for number in range(5)}}
    assert merge_small_parts(parts, 0.005) == {"computing": 0.98, SMALLER_PARTS: pytest.approx(0.02)}
    assert merge_small_parts({"computing": 0.998, "idle": 0.002}, 0.005) == {"computing": 0.998}
