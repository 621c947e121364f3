"""Rare long steps (pauses): their period, cost and lines. Noise is no pause."""

import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.doctor.histories import BACKWARD, CALL, FORWARD, FRAMES, SAVE, recorded, usual, with_pauses

from forebay.doctor.analyse.pauses import find_pauses, find_period
from forebay.doctor.model.step_history import LongStep, StackFrame, StepBlock, StepHistory

seeds = st.integers(0, 1 << 32)


@given(st.integers(0, 500), st.integers(20, 2_000), st.integers(4, 50))
def test_the_period_of_regular_steps_is_found(first, period, count):
    assert find_period([first + period * number for number in range(count)]) == period


@given(st.integers(20, 500), st.sets(st.integers(2, 38), max_size=10))
def test_missing_steps_do_not_hide_the_period(period, missing):
    positions = [period * number for number in range(40) if number not in missing]
    assert find_period(positions) == period


@given(seeds)
def test_random_steps_have_no_period(seed):
    rng = random.Random(seed)
    positions = sorted(rng.sample(range(10_000), 40))
    assert find_period(positions) == 0


def test_few_random_steps_rarely_have_a_period():
    rng = random.Random(0)
    found = sum(bool(find_period(sorted(rng.sample(range(1_000), rng.randint(3, 12))))) for _ in range(1_000))
    assert found < 50  # of 1,000 groups


@given(st.integers(2, 64), st.integers(0, 63), st.integers(8, 40))
def test_steps_that_were_timed_together_still_have_a_period(resolution, first, count):
    period = 10 * resolution
    positions = [(first + period * number) // resolution * resolution for number in range(count)]
    assert abs(find_period(positions, resolution) - period) < resolution


@given(st.integers(8, 60), st.floats(8, 500), st.floats(3, 30))
def test_periodic_pauses_are_found_with_their_line_and_cost(every, ms, usual_ms):
    assume(ms > 0.7 * usual_ms)
    (pause,) = find_pauses(recorded(with_pauses(every * 12, every, ms, usual_ms=usual_ms)))
    assert pause.period == every
    assert pause.seconds == pytest.approx((ms + usual_ms) / 1e3, rel=0.01)
    assert pause.usual_seconds == pytest.approx(usual_ms / 1e3, rel=0.01)
    assert pause.seconds_per_step == pytest.approx(ms / every / 1e3, rel=0.1)
    assert [(line.line, line.inner_line) for line in pause.lines] == [(3, 4)]


@given(seeds)
def test_irregular_pauses_are_found_with_their_line(seed):
    rng = random.Random(seed)
    steps = [[(SAVE, 200), *usual()] if rng.random() < 0.03 else usual() for _ in range(1_000)]
    (pause,) = find_pauses(recorded(steps))
    assert [line.line for line in pause.lines] == [3]
    assert pause.seconds_per_step == pytest.approx(0.2 * sum(len(step) == 3 for step in steps) / 1_000, rel=0.1)


@given(seeds, st.sampled_from(["uniform", "normal", "heavy"]))
def test_noise_is_no_pause(seed, kind):
    rng = random.Random(seed)
    factor = {
        "uniform": lambda: rng.uniform(0.8, 1.2),
        "normal": lambda: max(0.2, rng.gauss(1, 0.2)),
        "heavy": lambda: rng.paretovariate(2.5),
    }[kind]
    series = [[(FORWARD, 4 * factor()), (BACKWARD, 6 * factor())] for _ in range(600)]
    assert [pause for pause in find_pauses(recorded(series)) if pause.period or pause.lines] == []


@given(seeds)
def test_a_periodic_pause_is_found_among_noise(seed):
    rng = random.Random(seed)
    steps = with_pauses(800, 25, 60)
    noisy = [[(frame, ms * rng.paretovariate(5)) for frame, ms in step] for step in steps]
    pause, *others = find_pauses(recorded(noisy))
    assert (pause.period, [line.line for line in pause.lines], others) == (25, [3], [])


@given(st.integers(1, 31))
def test_a_warm_up_is_no_pause(count):
    steps = [usual(100) for _ in range(count // 4 + 1)] + [usual() for _ in range(300)]
    assert find_pauses(recorded(steps)) == []


def test_two_kinds_of_pauses_are_found_separately():
    frames = (*FRAMES, StackFrame(0, 7))
    steps = [
        [*([(SAVE, 300)] if step % 100 == 99 else []), *([(6, 30)] if step % 30 == 0 else []), *usual()]
        for step in range(900)
    ]
    found = find_pauses(recorded(steps, frames=frames))
    assert [(pause.period, [line.line for line in pause.lines]) for pause in found] == [(100, [3]), (30, [7])]


def test_lines_of_the_same_steps_are_one_pause():
    frames = (*FRAMES, StackFrame(0, 7))
    steps = [[*([(SAVE, 60), (6, 30)] if step % 30 == 29 else []), *usual()] for step in range(600)]
    (pause,) = find_pauses(recorded(steps, frames=frames))
    assert [line.line for line in pause.lines] == [3, 7]
    assert pause.seconds_per_step == pytest.approx(0.09 / 30, rel=0.1)


def test_a_line_that_runs_in_every_step_is_no_pause_even_if_its_time_varies():
    steps = [[(FORWARD, 4), (BACKWARD, 30 if step % 7 in (2, 5) else 6), (CALL, 1)] for step in range(500)]
    assert [pause.lines for pause in find_pauses(recorded(steps)) if pause.lines] == []


def test_without_samples_of_usual_steps_no_line_belongs_only_to_long_steps():
    long_steps = (LongStep(19, 0.005, (SAVE,)), LongStep(39, 0.005, (SAVE,)))
    blocks = (StepBlock(60, 0.07, 0.001),)
    history = StepHistory(FRAMES, blocks, long_steps, 2, 0.01, 0.008, ((SAVE, 8_000_000),))
    assert find_pauses(history) == []  # FRAMES[0], the caller of the loop, is also in all samples


def test_long_steps_that_are_as_frequent_as_others_are_no_pauses():
    assert find_pauses(recorded(with_pauses(600, 2, 30))) == []


def test_pauses_are_found_in_steps_that_were_timed_together():
    blocks = [usual(100) if number % 5 else [(SAVE, 80), *usual(100)] for number in range(100)]
    (pause,) = find_pauses(recorded(blocks, steps=10))
    assert (pause.period, [line.line for line in pause.lines]) == (50, [3])
    assert pause.seconds_per_step == pytest.approx(0.08 / 50, rel=0.2)


def test_pauses_that_grow_have_a_first_and_a_last_duration():
    steps = [[(SAVE, 50 + step / 2), *usual()] if step % 20 == 19 else usual() for step in range(600)]
    (pause,) = find_pauses(recorded(steps))
    assert pause.last_seconds > 2 * pause.first_seconds


frames = st.lists(st.tuples(st.integers(-1, 9), st.integers(-1, 50), st.sampled_from(["", "torch.save"])), max_size=10)
amounts = st.lists(st.tuples(st.integers(-1, 20), st.integers(0, 1 << 62)), max_size=8).map(tuple)
seconds = st.sampled_from([0.0, 1e-9, 0.01, 1e10])


@given(
    frames.map(lambda rows: tuple(StackFrame(min(row[0], at - 1), *row[1:]) for at, row in enumerate(rows))),
    st.lists(st.builds(StepBlock, st.integers(1, 1 << 48), seconds, seconds, amounts), max_size=12).map(tuple),
    st.lists(
        st.builds(LongStep, st.integers(0, 1 << 48), seconds, st.lists(st.integers(-1, 20), max_size=3).map(tuple)),
        max_size=12,
    ).map(tuple),
    st.integers(0, 1 << 48),
    seconds,
    amounts,
    st.integers(1, 1 << 48),
)
def test_pauses_of_any_history_cost_at_most_its_time(frames, blocks, long_steps, count, seconds, samples, resolution):
    history = StepHistory(frames, blocks, long_steps, count, seconds, seconds, samples, resolution)
    costs = [pause.seconds_per_step * history.steps for pause in find_pauses(history)]
    assert all(0 <= cost <= history.seconds * (1 + 1e-9) for cost in costs)
