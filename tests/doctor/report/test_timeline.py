"""The data of the timeline in the HTML page: events, tracks and rows."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.report import report_samples as samples

from forebay.doctor.model.events import LedgerEvent
from forebay.doctor.report.timeline import MAX_EVENTS, timeline_data
from forebay.doctor.report.tracks import tracks_of

TIMES = st.tuples(st.integers(0, 1000), st.integers(0, 100))


def count_drawn_events(timeline):
    return sum(len(row["starts"]) for track in timeline["tracks"] for row in track["rows"])


def test_the_loop_is_first_and_nested_events_are_below():
    tracks = tracks_of(samples.ordinary().view, samples.ordinary().view.capture.events)
    assert [track.name for track in tracks] == ["the loop", "thread 2"]
    assert [event.api for event in tracks[0].rows[0][:3]] == ["DataLoader", "torch.tensor", "Tensor.item"]
    assert {event.api for event in tracks[0].rows[1]} == {"row"}


@given(st.lists(TIMES))
def test_events_of_a_row_do_not_overlap_and_none_is_lost(times):
    events = [LedgerEvent("upload", "a", 0, 1, start, start + length) for start, length in times]
    tracks = tracks_of(samples.no_loop().view, events)
    rows = [row for track in tracks for row in track.rows]
    assert all(before.end <= after.start for row in rows for before, after in pairwise(row))
    assert sorted(event for row in rows for event in row) == sorted(events)


def test_times_are_counted_from_the_first_event_in_ticks_of_100_ns():
    timeline = timeline_data(samples.ordinary().view)
    row = timeline["tracks"][0]["rows"][0]
    assert list(accumulate(row["starts"]))[:4] == [0, 20_000, 90_000, 110_000]
    assert row["lengths"][:3] == [20_000, 60_000, 10_000]
    assert timeline["length"] == 51 * 110_000
    assert timeline["steps"][:2] == [110_000, 220_000]


def test_few_events_are_shown_completely():
    timeline = timeline_data(samples.ordinary().view)
    assert timeline["summary"] == "All 306 events of the run."
    assert count_drawn_events(timeline) == 5 * 51  # step ends are not drawn on a track


@pytest.mark.slow
@pytest.mark.parametrize("steps", [4000, 20_000])
def test_many_events_are_shown_in_whole_steps(steps):
    timeline = timeline_data(samples.large(steps).view)
    shown = len(timeline["steps"]) - 1
    assert timeline["summary"].startswith(f"The first {shown:,} of {steps - 1:,} steps")
    assert MAX_EVENTS - 10 <= count_drawn_events(timeline) * 6 / 5 <= MAX_EVENTS


def test_a_step_with_too_many_events_shows_the_longest():
    events = [event._replace(end=event.start + 10 + place) for place, event in enumerate(samples.short_events(30_000))]
    timeline = timeline_data(samples.diagnosis_of(samples.capture_of([*events, *samples.steps_of(20)])).view)
    assert timeline["summary"].startswith("The 20,000 longest of 30,0")
    assert count_drawn_events(timeline) <= MAX_EVENTS


def test_a_run_without_steps_shows_its_longest_events():
    timeline = timeline_data(
        samples.diagnosis_of(samples.capture_of(samples.short_events(30_000, "prepare"), steps=0)).view
    )
    assert timeline["summary"] == "The 20,000 longest of 30,000 events of the run."


def test_recorded_steps_are_shown_first():
    timeline = timeline_data(samples.streaming().view)
    assert [track["name"] for track in timeline["tracks"]][-2:] == ["cuda:0 stream 7", "cuda:0 stream 13"]
    assert len(timeline["steps"]) == 31
    assert timeline["first_step"] == 20


@pytest.mark.slow
def test_recorded_steps_remain_if_there_are_too_many_events():
    timeline = timeline_data(samples.streaming(kernels=5000).view)
    assert timeline["summary"] == "The first 3 of 10 steps: 15,021 events of 50,196 in the run."
    assert timeline["first_step"] == 0


def test_without_events_the_timeline_is_empty():
    timeline = timeline_data(samples.no_framework().view)
    assert (timeline["tracks"], timeline["length"], timeline["steps"]) == ([], 0, [])
