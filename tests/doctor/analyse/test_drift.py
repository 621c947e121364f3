"""Steps that become longer: the growth and its line, and no accusation of noise, jumps or a slower machine."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.histories import BACKWARD, FORWARD, SAVE, growing, noisy, recorded, usual, with_pauses

from forebay.doctor.analyse.drift import Drift, find_drift, find_growing_line

seeds = st.integers(0, 1 << 32)


def growing_line(history):
    drift = find_drift(history.blocks)
    return find_growing_line(history, drift) if drift else None


@given(st.floats(5, 20), st.floats(3, 10), st.integers(600, 2_000))
def test_a_line_that_grows_is_found_with_its_times(first, factor, count):
    history = recorded(growing(count, first, first * factor, other_ms=first))
    drift, line = find_drift(history.blocks), growing_line(history)
    assert drift.first_seconds < 2 * first / 1e3 * 1.4 * factor
    assert drift.last_seconds > drift.first_seconds * 1.2
    assert line.line == 2
    assert 0 < line.first_seconds < line.last_seconds <= drift.last_seconds


@given(seeds)
def test_growth_is_found_among_noise(seed):
    history = recorded(noisy(growing(1_000, 5, 30), seed=seed))
    assert find_drift(history.blocks).last_seconds == pytest.approx(0.03, rel=0.3)
    assert growing_line(history).line == 2


@given(seeds, st.floats(0.05, 0.6))
def test_noise_does_not_grow(seed, spread):
    assert find_drift(recorded(noisy([usual()] * 800, spread, seed)).blocks) is None


@given(st.integers(50, 1_550), st.floats(1.3, 5), st.sampled_from([0.0, 0.2]), seeds)
def test_a_jump_is_no_growth(at, factor, spread, seed):
    steps = [usual() for _ in range(at)] + [usual(10 * factor) for _ in range(1_600 - at)]
    assert find_drift(recorded(noisy(steps, spread, seed)).blocks) is None


def test_growth_is_found_if_other_work_disturbs_a_part_of_the_run():
    steps = [
        [(frame, ms * (1.6 if 200 < at < 500 else 1)) for frame, ms in step]
        for at, step in enumerate(growing(1_000, 5, 60))
    ]
    history = recorded(steps)
    assert find_drift(history.blocks) is not None
    assert growing_line(history).line == 2


@given(st.integers(1, 100), st.floats(1.5, 20))
def test_a_warm_up_is_no_growth(count, factor):
    steps = [usual(10 * factor) for _ in range(count)] + [usual() for _ in range(700)]
    assert find_drift(recorded(steps).blocks) is None
    assert find_drift(recorded([*reversed(steps)]).blocks) is None


@given(st.integers(10, 200), st.floats(0.1, 3))
def test_another_last_batch_of_each_epoch_is_no_growth(rows, factor):
    steps = [usual(10 * factor) if step % rows == rows - 1 else usual() for step in range(900)]
    assert find_drift(recorded(steps).blocks) is None


@given(st.integers(3, 12), st.floats(1.5, 5))
def test_growth_that_starts_again_in_each_epoch_is_no_growth(epochs, factor):
    rows = 1_200 // epochs
    steps = [usual(10 * (1 + (factor - 1) * (step % rows) / rows)) for step in range(1_200)]
    assert find_drift(recorded(steps).blocks) is None


@given(seeds, st.floats(1.3, 3))
def test_a_machine_that_becomes_slower_accuses_no_line(seed, factor):
    steps = [usual(10 * (1 + (factor - 1) * step / 1_500)) for step in range(1_500)]
    history = recorded(noisy(steps, 0.05, seed))
    drift = Drift(0.01, 0.01 * factor, 0.005 * factor, 1_500)
    assert find_growing_line(history, drift) is None


def test_steps_that_become_shorter_are_no_growth():
    assert find_drift(recorded(growing(800, 30, 5)).blocks) is None


def test_pauses_are_no_growth():
    assert find_drift(recorded(with_pauses(900, 20, 300)).blocks) is None


def test_a_slow_growth_is_found_beside_pauses():
    steps = [[*([(SAVE, 200)] if at % 50 == 0 else []), *step] for at, step in enumerate(growing(1_500, 5, 25))]
    history = recorded(steps)
    assert find_drift(history.blocks).last_seconds == pytest.approx(0.0275, rel=0.15)
    assert growing_line(history).line == 2


def test_a_long_run_shows_the_same_growth():
    steps = [[(FORWARD, 1), (BACKWARD, 1 + step / 10_000)] for step in range(40_000)]
    drift = find_drift(recorded(steps).blocks)
    assert (drift.first_seconds, drift.last_seconds) == pytest.approx((0.0025, 0.0055), rel=0.05)
    assert drift.seconds_per_step == pytest.approx(0.0015, rel=0.05)


def test_few_steps_have_no_growth():
    assert find_drift(recorded(growing(100, 5, 50)).blocks) is None


def test_growth_without_samples_has_no_line():
    history = recorded(growing(800, 5, 30), sample_seconds=1e6)
    assert find_drift(history.blocks) is not None
    assert growing_line(history) is None
