"""The history recorder keeps the exact times of few steps, and needs bounded memory for many steps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.histories import FORWARD, SAVE, START, recorded, usual, with_pauses

from forebay.doctor.capture import history_recorder
from forebay.doctor.capture.history_recorder import HistoryRecorder
from forebay.doctor.model.step_history import StepHistory

durations = st.lists(st.floats(0.1, 50), min_size=5, max_size=400)


@given(durations)
def test_a_history_contains_all_steps_and_all_time(milliseconds):
    history = recorded([[(FORWARD, ms)] for ms in milliseconds])
    assert history.steps == len(milliseconds)
    assert history.seconds == pytest.approx(sum(milliseconds) / 1e3, rel=1e-4)


@given(durations)
def test_the_usual_step_time_is_between_the_shortest_and_the_longest(milliseconds):
    history = recorded([[(FORWARD, ms)] for ms in milliseconds])
    assert all(min(milliseconds) * 0.999 <= block.usual * 1e3 <= max(milliseconds) * 1.001 for block in history.blocks)


@given(durations)
def test_at_most_half_of_the_steps_are_long(milliseconds):
    history = recorded([[(FORWARD, ms)] for ms in milliseconds])
    assert len(history.long_steps) == history.long_count <= history.steps / 2
    assert 0 <= history.long_excess <= history.long_seconds <= history.seconds * 1.0001


@pytest.mark.slow
def test_the_memory_for_a_long_run_is_bounded(monkeypatch):
    monkeypatch.setattr(history_recorder, "MAX_LONG_STEPS", 50)
    history = recorded(with_pauses(50_000, 20, 30, usual_ms=1), sample_seconds=0.05)
    assert len(history.blocks) <= history_recorder.MAX_BLOCKS
    assert (len(history.long_steps), history.long_count) == (50, 2_500)
    assert history.steps == 50_000
    assert [step.position for step in history.long_steps] == [*range(49_019, 50_000, 20)]


def test_samples_of_long_steps_are_separate():
    history = recorded(with_pauses(200, 20, 100))
    assert dict(history.long_samples)[SAVE] == pytest.approx(10 * 100e6, rel=0.2)
    assert all(SAVE not in dict(block.samples) for block in history.blocks)


def test_a_sample_whose_time_depends_on_a_step_end_counts_only_in_long_steps():
    recorder = HistoryRecorder()
    recorder.add_end(START, 0)
    for step in range(40):
        recorder.add_sample(START + step * 1_000_000 + 10, 7, is_random=False)
        recorder.add_end(START + (step + 1) * 1_000_000, 1)
    assert all(block.samples == () for block in recorder.history(()).blocks)


def test_a_discarded_step_has_no_time_but_counts_for_positions():
    recorder, now = HistoryRecorder(), START
    recorder.add_end(now, 0)
    for step in range(100):
        now += 40_000_000 if step % 10 == 9 else 1_000_000
        recorder.add_end(now, 0 if step == 50 else 1)
    history = recorder.history(())
    assert (history.steps, history.seconds) == (99, pytest.approx((90 - 1 + 10 * 40) / 1e3))
    assert [step.position for step in history.long_steps] == [*range(9, 100, 10)]


def test_a_long_step_is_found_among_steps_that_were_timed_together():
    blocks = [usual(100) if number % 5 else [(SAVE, 80), *usual(100)] for number in range(100)]
    history = recorded(blocks, steps=10)
    assert (history.steps, history.resolution, history.long_count) == (1_000, 10, 20)
    assert history.long_steps[0].seconds == pytest.approx(0.09)


def test_too_few_steps_have_no_history():
    assert recorded([usual()] * 4) is None
    assert recorded([usual()] * 5).steps == 5


def test_reading_the_history_does_not_change_it():
    recorder = HistoryRecorder()
    for step in range(50):
        recorder.add_end(START + step * 1_000_000, 1)
        recorder.history(())
    assert recorder.history(()) == recorder.history(())
    assert recorder.history(()).steps == 49


@given(durations)
def test_a_history_is_equal_after_a_conversion_to_json_and_back(milliseconds):
    history = recorded([[(FORWARD, ms)] for ms in milliseconds])
    assert StepHistory.from_json(history.to_json()) == history


def test_a_step_end_before_the_latest_step_end_is_ignored():
    recorder = HistoryRecorder()
    for step in range(100):
        recorder.add_end(START + step * 1_000_000, 1)
        recorder.add_end(START + (step - 5) * 1_000_000, 1)
    history = recorder.history(())
    assert all(block.seconds > 0 for block in history.blocks)
    assert history.seconds == pytest.approx(99e-3)
