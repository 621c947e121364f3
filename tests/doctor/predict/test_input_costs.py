"""Batches that a thread or other processes make while the step computes on the CPU."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.captures import MS, OTHER, TORCH, batch, build, loop, prepare

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.model.events import PYTHON_CODE, EventKind, HostSample
from forebay.doctor.predict import changes, input_costs
from forebay.doctor.predict.build_timeline import background_seconds, build_timeline
from forebay.doctor.predict.cure_changes import make_less_in_python
from forebay.doctor.predict.timeline import steady_step_seconds

WAIT, STEP = 8e-3, 20e-3  # seconds per step


def view_of(*, ms=20, function="", busy=1.0, foreign=0.0, cores=8, **detail):
    """Return a loop that waits 8 ms for each batch of 16 rows. During the wait, its thread executes `function`."""
    facts = {"busy_cores": busy, "foreign_cores": foreign}
    waiting = batch(ms=8, line=9, workers=0, **{"batch_rows": 16, "nbytes": 4096} | detail)
    capture = loop(waiting, ms=ms, frameworks=TORCH, facts=facts, machine={"cores": cores})
    waits = [event for event in capture.events if event.kind == EventKind.INPUT]
    samples = [HostSample(event.start + MS, MS, event.thread, 9, function) for event in waits]
    return CaptureView(replace(capture, samples=tuple(samples)))


def site_of(view):
    (site,) = view.sites_of(EventKind.INPUT)
    return site


def step_times(view, outcomes):
    """Return the step times in seconds of the best and the worst outcome."""
    timeline = build_timeline(view)
    best, worst = (steady_step_seconds(outcome(timeline)) for outcome in outcomes)
    return best, worst


def in_thread(**given):
    view = view_of(**given)
    return step_times(view, input_costs.prefetch_in_thread(view, site_of(view), WAIT))


def in_processes(batch_seconds=WAIT, **given):
    view = view_of(**given)
    return step_times(view, input_costs.prefetch_in_processes(view, site_of(view), batch_seconds))


def test_the_python_work_of_the_producer_and_of_the_step_add_up():
    best, worst = in_thread(function=PYTHON_CODE)
    assert min(best, worst) >= STEP
    best, worst = in_thread(function="numpy.log1p")
    assert best == pytest.approx(STEP - WAIT + input_costs.FEED_LOOP_SECONDS[0])
    assert STEP - WAIT < worst < STEP


def test_a_producer_that_waits_for_a_file_needs_no_python():
    assert in_thread(runnable=0.0)[1] == pytest.approx(STEP - WAIT + input_costs.FEED_LOOP_SECONDS[1])
    assert in_thread(runnable=0.0) < in_thread(runnable=8e-3, function=PYTHON_CODE)


def test_a_step_takes_at_least_its_cpu_time_on_all_cores():
    best, _ = in_thread(function="numpy.log1p", busy=1.9, cores=2)
    assert best >= 1.9 * STEP / 2


def test_in_the_worst_outcome_cores_of_other_programs_are_not_free():
    idle, loaded = (in_thread(runnable=0.0, busy=0.8, foreign=foreign, cores=2) for foreign in (0.0, 1.2))
    assert idle[0] <= loaded[0] < STEP
    assert idle[1] < loaded[1]
    assert loaded[1] > STEP  # the thread may get no time on the cores that other programs use


SHARES = st.floats(0.05, 1)


@given(SHARES, SHARES, st.integers(1, 16), st.sampled_from([in_thread, in_processes]))
def test_no_step_is_shorter_than_all_cpu_time_divided_by_the_cores(busy_share, foreign_share, cores, outcomes):
    """The rest of the step, the makers of batches and other programs compete for the same cores."""
    busy = busy_share * cores
    foreign = foreign_share * (cores - busy)
    best, worst = outcomes(busy=busy, foreign=foreign, cores=cores, runnable=0.0)
    assert busy * STEP / cores <= best * (1 + 1e-9) <= worst * (1 + 2e-9)
    idle_best, idle_worst = outcomes(busy=busy, foreign=0.0, cores=cores, runnable=0.0)
    assert idle_best <= best * (1 + 1e-9)
    assert idle_worst <= worst * (1 + 1e-9)


def test_workers_gain_something_for_certain_only_if_other_programs_leave_core_time_free():
    """The loop keeps one of two cores busy. Other programs use none of the cores, a quarter, or half of them."""
    idle, quarter, half = (view_of(busy=1.0, foreign=foreign, cores=2) for foreign in (0.0, 0.5, 1.0))
    offered = [
        input_costs.shortens_step(view, input_costs.prefetch_in_processes(view, site_of(view), WAIT))
        for view in (idle, quarter, half)
    ]
    assert offered == [True, True, False]


def test_without_a_measured_cpu_time_the_step_may_stay_as_long_as_now():
    assert in_thread(busy=None)[1] >= STEP
    assert in_processes(busy=None)[1] >= STEP


def test_workers_gain_nothing_if_the_step_uses_all_cores():
    best, worst = in_processes(busy=2.0, cores=2)
    assert min(best, worst) >= STEP
    view = view_of(busy=2.0, cores=2)
    assert not input_costs.shortens_step(view, input_costs.prefetch_in_processes(view, site_of(view), WAIT))


def test_a_batch_of_many_bytes_takes_time_to_arrive_from_a_worker():
    small, large = (in_processes(nbytes=nbytes)[0] for nbytes in (4096, 84_000_000))
    assert small < STEP - WAIT + 1e-3
    assert large >= 40e-3


def test_the_start_of_the_workers_counts_in_a_short_run():
    built = build(line=4, dataset_rows=1600)  # an epoch of 100 steps
    waiting = batch(ms=8, line=9, workers=0, batch_rows=16, nbytes=4096, built_at=4)
    facts = {"busy_cores": 1.0, "foreign_cores": 0.0}
    view = CaptureView(loop(waiting, ms=20, before=[built], frameworks=TORCH, facts=facts))
    short, unknown = step_times(view, input_costs.prefetch_in_processes(view, site_of(view), WAIT)), in_processes()
    assert short[0] == pytest.approx(unknown[0] + input_costs.START_SECONDS[0] / 100)
    assert short[1] == pytest.approx(unknown[1] + input_costs.START_SECONDS[1] / 100)


def test_a_row_of_a_source_costs_more_than_a_row_of_a_loader():
    view = view_of(function="numpy.log1p")
    site = site_of(view)
    plain = step_times(view, input_costs.prefetch_in_thread(view, site, WAIT))
    slower = step_times(view, input_costs.prefetch_in_thread(view, site, WAIT, row_seconds=1e-3))
    assert slower[1] == pytest.approx(plain[1] + 16e-3)


@pytest.mark.parametrize(("rows", "runnable", "cheap"), [(16, 8e-3, False), (160, 8e-3, True), (160, 1e-3, False)])
def test_rows_are_cheap_if_a_thread_makes_many_in_a_short_time(rows, runnable, cheap):
    view = view_of(batch_rows=rows, runnable=runnable)
    assert input_costs.makes_cheap_rows(view, site_of(view), WAIT) is cheap


def background(busy_cores=1.5):
    """Return a loop of steps of 20 ms that wait 1 ms for a batch. Another thread makes each batch in 16 ms."""
    made = prepare("row", 16, line=10, thread=OTHER)
    waiting = batch("tf.data", 1, line=9)
    return CaptureView(loop(made, waiting, ms=20, machine={"cores": 2}, facts={"busy_cores": busy_cores}))


def test_recorded_producers_limit_a_step_unless_a_cure_scales_or_replaces_them():
    view = background()
    timeline = build_timeline(view)
    assert background_seconds(view) == pytest.approx(16e-3)
    assert steady_step_seconds(timeline) == pytest.approx(STEP)
    assert steady_step_seconds(changes.remove_work(STEP)(timeline)) == pytest.approx(16e-3)
    assert steady_step_seconds(changes.scale_time(0.5)(timeline)) == pytest.approx(STEP / 2)
    assert steady_step_seconds(changes.prefetch_input(producer_seconds=0.0)(timeline)) == pytest.approx(19e-3)


def test_threads_that_take_turns_count_as_one_producer():
    view = background()
    events = [
        event._replace(thread=OTHER + index % 2 * (event.kind == EventKind.PREPARE)) if event.thread == OTHER else event
        for index, event in enumerate(view.capture.events)
    ]
    assert background_seconds(CaptureView(replace(view.capture, events=tuple(events)))) == pytest.approx(16e-3)


def test_less_python_in_another_thread_saves_at_most_the_time_of_that_thread():
    view = background()
    best, worst = step_times(view, make_less_in_python(view, site_of(view), 16e-3))
    assert best == pytest.approx((1.5 * STEP - 16e-3) / 2)  # the CPU time that remains, on two cores
    assert worst == pytest.approx(STEP)
    view = background(busy_cores=1.0)
    assert step_times(view, make_less_in_python(view, site_of(view), 16e-3))[0] == pytest.approx(STEP - 16e-3)
