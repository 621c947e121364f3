"""Steps that become longer during a run: how much they grow, and which line causes it.

Noise, jumps and pauses are no growth. If the machine becomes slower, no line causes the growth.
"""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.doctor.histories import BACKWARD, FORWARD, SAVE, growing, noisy, recorded, usual, with_pauses

from forebay.doctor.analyse.drift import Drift, find_drift, find_growing_line

seeds = st.integers(0, 1 << 32)


def drift_of(history):
    """Return the growth of the step time over the blocks of a history, or None."""
    return find_drift(history.blocks)


def growing_line(history):
    drift = drift_of(history)
    return find_growing_line(history, drift) if drift else None


@given(st.floats(5, 20), st.floats(3, 10), st.integers(600, 2_000))
def test_a_line_that_grows_is_found_with_its_times(first_ms, factor, count):
    history = recorded(growing(count, first_ms, first_ms * factor, other_ms=first_ms))
    drift, line = drift_of(history), growing_line(history)
    growth_ms = first_ms * (factor - 1)
    assert drift.first_seconds == pytest.approx(2 * first_ms / 1e3, rel=0.1)
    assert drift.last_seconds == pytest.approx((2 * first_ms + growth_ms) / 1e3, rel=0.1)
    assert drift.seconds_per_step == pytest.approx(growth_ms / 2 / 1e3, rel=0.1)
    assert line.line == 2
    assert 0 <= line.first_seconds < line.last_seconds <= drift.last_seconds


def test_the_growth_before_the_history_counts_too():
    """Steps grow from 5 to 25 ms. The history begins with step 300 of 1,000, which takes 11 ms."""
    history = recorded(growing(1_000, 5, 25, other_ms=0)[300:])
    assert drift_of(history).first_seconds == pytest.approx(0.011, rel=0.1)
    assert find_drift(history.blocks, steps_before=300).first_seconds == pytest.approx(0.0055, rel=0.1)


@given(seeds)
def test_disturbed_first_steps_do_not_change_the_time_of_the_first_steps(seed):
    steps = noisy(growing(1_000, 5, 30), 0.1, seed)
    disturbed = [[(frame, ms * 3) for frame, ms in step] if at < 40 else step for at, step in enumerate(steps)]
    assert drift_of(recorded(disturbed)).first_seconds == pytest.approx(0.01, rel=0.3)


@given(seeds)
def test_growth_is_found_among_noise(seed):
    history = recorded(noisy(growing(1_000, 5, 30), seed=seed))
    assert drift_of(history).last_seconds == pytest.approx(0.035, rel=0.3)
    assert growing_line(history).line == 2


@given(seeds, st.floats(0.05, 0.6))
def test_random_step_times_are_no_growth(seed, spread):
    assert drift_of(recorded(noisy([usual()] * 800, spread, seed))) is None


@example(968, 2.0, 0.2, 1007)  # the third quarter contains the jump, and its median is between both levels
@given(st.integers(50, 1_550), st.floats(1.3, 5), st.sampled_from([0.0, 0.2]), seeds)
def test_one_jump_of_the_step_time_is_no_growth(at, factor, spread, seed):
    steps = [usual() for _ in range(at)] + [usual(10 * factor) for _ in range(1_600 - at)]
    assert drift_of(recorded(noisy(steps, spread, seed))) is None


def test_growth_is_found_if_other_work_disturbs_a_part_of_the_run():
    steps = [
        [(frame, ms * (1.6 if 200 < at < 500 else 1)) for frame, ms in step]
        for at, step in enumerate(growing(1_000, 5, 60))
    ]
    history = recorded(steps)
    assert drift_of(history) is not None
    assert growing_line(history).line == 2


@given(st.integers(1, 100), st.floats(1.5, 20))
def test_slow_first_or_last_steps_are_no_growth(count, factor):
    steps = [usual(10 * factor) for _ in range(count)] + [usual() for _ in range(700)]
    assert drift_of(recorded(steps)) is None
    assert drift_of(recorded([*reversed(steps)])) is None


@given(st.integers(10, 200), st.floats(0.1, 3))
def test_a_last_batch_of_another_size_in_each_epoch_is_no_growth(epoch_steps, factor):
    steps = [usual(10 * factor) if step % epoch_steps == epoch_steps - 1 else usual() for step in range(900)]
    assert drift_of(recorded(steps)) is None


@given(st.integers(3, 12), st.floats(1.5, 5))
def test_steps_that_become_longer_only_within_each_epoch_are_no_growth(epochs, factor):
    epoch_steps = 1_200 // epochs
    steps = [usual(10 * (1 + (factor - 1) * (step % epoch_steps) / epoch_steps)) for step in range(1_200)]
    assert drift_of(recorded(steps)) is None


@given(seeds, st.floats(1.3, 3))
def test_if_the_machine_becomes_slower_no_line_is_found(seed, factor):
    steps = [usual(10 * (1 + (factor - 1) * step / 1_500)) for step in range(1_500)]
    history = recorded(noisy(steps, 0.05, seed))
    drift = Drift(first_seconds=0.01, last_seconds=0.01 * factor, mean_seconds=0.005 * (1 + factor), steps=1_500)
    assert find_growing_line(history, drift) is None


def test_steps_that_become_shorter_are_no_growth():
    assert drift_of(recorded(growing(800, 30, 5))) is None


def test_pauses_are_no_growth():
    assert drift_of(recorded(with_pauses(900, 20, 300))) is None


def test_growth_is_found_in_a_run_with_pauses():
    steps = [[*([(SAVE, 200)] if at % 50 == 0 else []), *step] for at, step in enumerate(growing(1_500, 5, 25))]
    history = recorded(steps)
    assert drift_of(history).last_seconds == pytest.approx(0.03, rel=0.15)
    assert growing_line(history).line == 2


@pytest.mark.slow
def test_the_growth_of_a_long_run_is_measured():
    """Steps grow from 2 to 6 ms, with 4 ms on average."""
    steps = [[(FORWARD, 1), (BACKWARD, 1 + step / 10_000)] for step in range(40_000)]
    drift = drift_of(recorded(steps))
    assert (drift.first_seconds, drift.last_seconds) == pytest.approx((0.002, 0.006), rel=0.05)
    assert drift.seconds_per_step == pytest.approx(0.002, rel=0.05)


def test_too_few_steps_are_no_growth():
    assert drift_of(recorded(growing(100, 5, 50))) is None


def test_growth_without_samples_has_no_line():
    history = recorded(growing(800, 5, 30), sample_seconds=1e6)
    assert drift_of(history) is not None
    assert growing_line(history) is None
