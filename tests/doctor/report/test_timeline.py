"""The numbers behind the page's timeline, and the lanes they lie in."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.report import report_samples as samples

from forebay.doctor.model.events import Event
from forebay.doctor.report.timeline import MOST_EVENTS, timeline_of
from forebay.doctor.report.tracks import lanes_of

TIMES = st.tuples(st.integers(0, 1000), st.integers(0, 100))


def drawn(timeline):
    return sum(len(row["starts"]) for lane in timeline["lanes"] for row in lane["rows"])


def test_the_loop_comes_first_and_what_is_inside_something_stands_below_it():
    lanes = lanes_of(samples.ordinary().case, samples.ordinary().case.capture.events)
    assert [lane.name for lane in lanes] == ["the loop", "thread 2"]
    assert [event.api for event in lanes[0].rows[0][:3]] == ["DataLoader", "torch.tensor", "Tensor.item"]
    assert {event.api for event in lanes[0].rows[1]} == {"row"}


@given(st.lists(TIMES))
def test_nothing_overlaps_within_a_row_and_nothing_is_lost(times):
    events = [Event("upload", "a", 0, 1, start, start + length) for start, length in times]
    lanes = lanes_of(samples.no_loop().case, events)
    rows = [row for lane in lanes for row in lane.rows]
    assert all(before.end <= after.start for row in rows for before, after in pairwise(row))
    assert sorted(event for row in rows for event in row) == sorted(events)


def test_times_are_counted_from_the_first_event_in_steps_of_100_ns():
    timeline = timeline_of(samples.ordinary().case)
    row = timeline["lanes"][0]["rows"][0]
    assert list(accumulate(row["starts"]))[:4] == [0, 20_000, 90_000, 110_000]
    assert row["lengths"][:3] == [20_000, 60_000, 10_000]
    assert timeline["length"] == 51 * 110_000
    assert timeline["steps"][:2] == [110_000, 220_000]


def test_what_is_few_is_shown_whole():
    timeline = timeline_of(samples.ordinary().case)
    assert timeline["told"] == "All 306 events of the run."
    assert drawn(timeline) == 5 * 51  # ends of steps are no events of a lane


@pytest.mark.parametrize("steps", [4000, 20_000])
def test_what_is_much_is_shown_by_whole_steps(steps):
    timeline = timeline_of(samples.large(steps).case)
    shown = len(timeline["steps"]) - 1
    assert timeline["told"].startswith(f"The first {shown:,} of {steps - 1:,} steps")
    assert MOST_EVENTS - 10 <= drawn(timeline) * 6 / 5 <= MOST_EVENTS


def test_a_step_that_is_too_much_is_shown_by_its_longest_events():
    events = [event._replace(end=event.start + 10 + place) for place, event in enumerate(samples.crowd(30_000))]
    timeline = timeline_of(samples.verdict_of(samples.capture_of([*events, *samples.steps_of(20)])).case)
    assert timeline["told"].startswith("The 20,000 longest of 30,0")
    assert drawn(timeline) <= MOST_EVENTS


def test_a_run_without_steps_is_shown_by_its_longest_events():
    timeline = timeline_of(samples.verdict_of(samples.capture_of(samples.crowd(30_000, "prepare"), steps=0)).case)
    assert timeline["told"] == "The 20,000 longest of 30,000 events of the run."


def test_steps_that_the_device_recorded_are_looked_at_first():
    timeline = timeline_of(samples.streaming().case)
    assert [lane["name"] for lane in timeline["lanes"]][-2:] == ["cuda:0 stream 7", "cuda:0 stream 13"]
    assert len(timeline["steps"]) == 31
    assert timeline["first_step"] == 20


def test_of_too_many_events_those_are_kept_that_the_device_recorded():
    timeline = timeline_of(samples.streaming(kernels=5000).case)
    assert timeline["told"] == "The first 3 of 10 steps: 15,021 events of 50,196 that were seen in all."
    assert timeline["first_step"] == 0


def test_nothing_is_an_empty_timeline():
    timeline = timeline_of(samples.no_framework().case)
    assert (timeline["lanes"], timeline["length"], timeline["steps"]) == ([], 0, [])
