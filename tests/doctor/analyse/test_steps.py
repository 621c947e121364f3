"""The steps of a capture and the parts of a step, in which every nanosecond counts once.

`Steps.anchor` is the kind, API and line of the event that ends a step.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.steps import PARTS, REST, find_steps
from forebay.doctor.analyse.typical_step import split_step
from forebay.doctor.model.capture import Capture, Window
from forebay.doctor.model.events import LedgerEvent

MAIN, OTHER = 1, 2


def capture(events, window=None):
    """Return a capture; without a window, the script ended before the doctor found its steps."""
    return Capture("train.py", (), "done", 1.0, {}, {}, window or Window(), (), tuple(events))


def step(end, thread=MAIN):
    return LedgerEvent("step", "optimizer.step", 0, thread, end, end)


def test_only_steps_inside_the_profiled_window_count():
    events = [step(end) for end in range(0, 1000, 10)]
    window = Window(100, 200, ("step", "optimizer.step", 0))
    steps = find_steps(capture(events, window))
    assert steps.edges == tuple(range(100, 210, 10))
    assert steps.seconds == 10 / 1e9


def test_a_script_without_a_window_skips_only_its_first_steps():
    steps = find_steps(capture(step(end) for end in range(0, 100, 10)))
    assert steps.edges == tuple(range(20, 100, 10))


def test_without_step_events_the_most_frequent_call_site_ends_the_steps():
    uploads = [LedgerEvent("upload", "tf.constant", 5, MAIN, at, at + 2) for at in range(0, 100, 10)]
    other = [LedgerEvent("download", "Tensor.numpy", 6, MAIN, at, at + 2) for at in range(0, 40, 10)]
    events = sorted(uploads + other, key=lambda event: event.end)
    assert find_steps(capture(events)).anchor == ("upload", "tf.constant", 5)


def burst(line, first, gap=1000):
    """Return 20 uploads of one line, every `gap` nanoseconds."""
    return [LedgerEvent("upload", "Tensor.to", line, MAIN, at, at + 500) for at in range(first, first + 20 * gap, gap)]


def test_a_burst_of_transfers_on_one_line_is_not_a_loop():
    assert find_steps(capture(burst(3, 0))) is None
    assert find_steps(capture([*burst(3, 0), *burst(4, 100_000)])) is None


def conversions(lines, rows, first=0, gap=30_000):
    """Return the uploads of `rows` rows: one upload per row and line, with `gap` nanoseconds after each."""
    starts = range(first, first + rows * len(lines) * (gap + 10_000), gap + 10_000)
    return [
        LedgerEvent("upload", "torch.tensor", lines[n % len(lines)], MAIN, at, at + 10_000)
        for n, at in enumerate(starts)
    ]


def reads(count, first, gap=1_000_000, line=6):
    """Return the read-backs of a loop of `count` steps."""
    return [
        LedgerEvent("download", "Tensor.item", line, MAIN, at, at + 10) for at in range(first, first + count * gap, gap)
    ]


@pytest.mark.parametrize("rows", [50, 400, 4_000])
@pytest.mark.parametrize("lines", [(3,), (3, 4)])
def test_a_loop_that_only_converts_rows_is_not_the_training_loop(rows, lines):
    assert find_steps(capture(conversions(lines, rows))) is None


def test_rows_that_are_converted_three_times_are_not_the_training_loop():
    several = [*conversions([3], 50), *reads(1, 10**8), *conversions([3], 50, 2 * 10**8), *reads(1, 3 * 10**8)]
    assert find_steps(capture([*several, *conversions([3], 50, 4 * 10**8)])) is None


@pytest.mark.parametrize("rows", [50, 400])
def test_the_training_loop_after_a_loop_that_converts_rows_is_found(rows):
    assert find_steps(capture([*conversions([3], rows), *reads(20, 10**9, gap=10_000_000)])).anchor == (
        "download",
        "Tensor.item",
        6,
    )
    marks = [step(end) for end in range(10**9, 2 * 10**9, 10**8)]
    assert find_steps(capture([*conversions([3], rows), *marks])).anchor[0] == "step"


def test_a_loop_that_computes_between_its_conversions_is_the_training_loop():
    assert find_steps(capture(conversions([3], 50, gap=1_100_000))).anchor == ("upload", "torch.tensor", 3)
    pairs = zip(conversions([3], 400, gap=60_000), reads(400, 40_000, gap=70_000), strict=True)
    assert find_steps(capture([event for pair in pairs for event in pair])) is not None


def test_a_loop_of_cupy_is_found_although_the_hooks_record_none_of_its_operations():
    uploads = [
        LedgerEvent("upload", "cupy.array", 3, MAIN, at, at + 3_000_000) for at in range(0, 60 * 3_050_000, 3_050_000)
    ]
    facts = {"frameworks": {"cupy": {}}}
    assert find_steps(replace(capture(uploads), facts=facts)).anchor == ("upload", "cupy.array", 3)
    assert find_steps(replace(capture(uploads[:10]), facts=facts)) is None
    assert find_steps(replace(capture(reads(400, 0, gap=50_000)), facts=facts)).anchor[0] == "download"


def test_a_sample_of_a_loop_that_only_converts_rows_is_not_the_training_loop():
    """The detector takes a sample of 0.25 s, and the script ends before the detector can reject the site."""
    events = conversions([3], 8_000)
    sample = Window(events[10].end, events[7_000].end, ("upload", "torch.tensor", 3))
    assert find_steps(capture(events, sample)) is None
    timed = Window(sample.start, sample.end, sample.anchor, untraced=(4e-5,) * 60)
    assert find_steps(capture(events, timed)).anchor == sample.anchor


def test_transfers_of_one_line_over_a_longer_time_are_a_loop():
    assert find_steps(capture(burst(3, 0, gap=5_000_000))).anchor == ("upload", "Tensor.to", 3)


def test_a_burst_does_not_hide_a_loop():
    reads = [LedgerEvent("download", "Tensor.item", 6, MAIN, at, at + 2) for at in range(0, 10**9, 10**8)]
    assert find_steps(capture([*burst(3, 0), *reads])).anchor == ("download", "Tensor.item", 6)


def test_a_script_without_a_loop_has_no_steps():
    assert find_steps(capture([])) is None
    assert find_steps(capture([step(1), step(2)])) is None
    assert find_steps(capture([LedgerEvent("build", "Dataset", 1, MAIN, at, at) for at in range(100)])) is None


def test_in_a_loop_with_only_ops_events_each_of_them_is_a_step():
    frequent = [LedgerEvent("ops", "tf operations", 5, MAIN, at, at + 4) for at in range(0, 200, 5)]
    few = [LedgerEvent("ops", "tf operations", 6, MAIN, at, at + 4) for at in range(200, 290, 5)]
    assert find_steps(capture(few)) is None
    assert find_steps(capture(frequent + few)).edges == tuple(range(44, 200, 5))


def test_operations_during_a_compilation_mark_no_steps():
    operations = [LedgerEvent("ops", "tf operations", 5, MAIN, at, at + 4) for at in range(0, 200, 5)]
    compilation = LedgerEvent("compile", "tf.function", 5, MAIN, 0, 150)
    assert find_steps(capture([*operations, compilation])) is None


@pytest.mark.parametrize(("kind", "seconds"), [("input", 26e-9), ("sync", 10e-9)])
def test_only_if_batches_arrive_in_bursts_the_step_time_is_the_mean(kind, seconds):
    """Steps of 10 ns; before every fourth of them, the loop waits for 64 ns."""
    events, now = [], 0
    for number in range(40):
        wait = 0 if number % 4 else 64
        events += [LedgerEvent(kind, "DataLoader", 3, MAIN, now, now + wait), step(now + wait + 10)]
        now += wait + 10
    view = CaptureView(capture(events, Window(10, now, ("step", "optimizer.step", 0))))
    assert view.step_seconds == pytest.approx(seconds, rel=0.05)
    assert view.input_comes_in_bursts == (kind == "input")


def test_events_of_other_threads_are_not_part_of_a_step():
    events = [step(end) for end in range(0, 100, 10)]
    events += [LedgerEvent("prepare", "row", 1, OTHER, 0, 90), LedgerEvent("input", "DataLoader", 1, OTHER, 0, 90)]
    steps = find_steps(capture(events))
    assert split_step(steps, events)[REST] == pytest.approx(10e-9)


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(set().union(*PARTS.values()))), st.integers(0, 120), st.integers(0, 60)),
        max_size=30,
    )
)
def test_parts_of_a_step_with_overlapping_events_add_up_to_it(events):
    marks = [step(end) for end in range(0, 110, 10)]
    recorded = [*marks, *(LedgerEvent(kind, "api", 1, MAIN, start, start + length) for kind, start, length in events)]
    steps = find_steps(capture(marks))
    parts = split_step(steps, recorded)
    assert abs(sum(parts.values()) - 10 / 1e9) < 1e-15
    assert all(value >= 0 for value in parts.values())


def steps_with_pauses(count, pauses):
    """Return the steps of a loop of `count` steps. Steps in `pauses` take 500 ns, all others 10 ns."""
    lengths = [500 if number in pauses else 10 for number in range(count)]
    ends = [sum(lengths[:number]) for number in range(count + 1)]
    window = Window(start=-1, end=10**9, anchor=("step", "optimizer.step", 0))
    return find_steps(capture([step(end) for end in ends], window))


def test_only_the_longest_series_of_steps_between_two_pauses_counts():
    steps = steps_with_pauses(40, {9, 35})
    assert len(steps) == 35 - 9 - 1
    assert steps.end - steps.start == 250


def test_long_steps_that_recur_often_are_part_of_the_loop():
    assert len(steps_with_pauses(40, {*range(0, 40, 5)})) == 40


def test_a_loop_of_short_epochs_keeps_all_its_steps():
    """Each epoch has less than a fifth of the steps, which is too few to measure."""
    assert len(steps_with_pauses(60, {*range(9, 60, 11)})) == 60


def read_every_tenth_step():
    """Return a capture with steps of 10 ns. Every tenth step also waits 400 ns for the device work of ten steps."""
    events, now = [], 0
    for number in range(60):
        now += 10
        if number % 10 == 9:
            events.append(LedgerEvent("download", "float(array)", 1, MAIN, now, now + 400))
            now += 400
        events.append(step(now))
    return capture(events, Window(start=-1, end=10**9, anchor=("step", "optimizer.step", 0)))


def test_a_loop_that_runs_ahead_of_the_device_reports_its_mean_step_time():
    view = CaptureView(read_every_tenth_step())
    assert len(view.steps) == 59
    assert view.runs_ahead
    assert view.step_seconds == pytest.approx(50e-9, rel=0.05)
    assert sum(view.step_parts.values()) == pytest.approx(view.step_seconds)


def test_a_loop_that_waits_in_every_step_does_not_run_ahead():
    reads = [LedgerEvent("download", "float(array)", 1, MAIN, end - 9, end) for end in range(10, 400, 10)]
    events = [event for read in reads for event in (read, step(read.end))]
    assert not CaptureView(capture(events, Window(-1, 10**9, ("step", "optimizer.step", 0)))).runs_ahead


def acting_and_learning(episodes, acts, updates, learn_ns=100):
    """Return the events and the window of a script that reads actions back and then learns from them in a burst."""
    now, events = 0, []
    for _ in range(episodes):
        for _ in range(acts):
            now += 5_000
            events.append(LedgerEvent("download", "int(array)", 7, MAIN, now - 100, now))
        for _ in range(updates):
            now += learn_ns
            events.append(LedgerEvent("run", "jax.jit", 9, MAIN, now - 50, now))
    return events, Window(start=0, end=now, anchor=("run", "jax.jit", 9), untraced=(1.0,) * 20)


def test_a_loop_between_bursts_of_steps_counts_if_it_takes_most_of_the_time():
    view = CaptureView(capture(*acting_and_learning(episodes=5, acts=20, updates=20)))
    assert view.steps.anchor[2] == 7
    assert view.step_seconds == pytest.approx(5e-6)
    assert view.unprofiled_seconds == ()


@pytest.mark.parametrize(
    "script",
    [
        {"episodes": 2, "acts": 20, "updates": 20},  # one pause: perhaps the end of an epoch
        {"episodes": 20, "acts": 1, "updates": 1},  # one loop with two calls
        {"episodes": 5, "acts": 20, "updates": 20, "learn_ns": 20_000},  # learning takes most of the time
    ],
)
def test_other_pauses_do_not_change_the_loop(script):
    view = CaptureView(capture(*acting_and_learning(**script)))
    assert view.steps.anchor[2] == 9
    assert view.unprofiled_seconds
