"""The device view of a capture, compared with simulated programs of known timing."""

from dataclasses import replace
from itertools import count
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor import device_rig as rig
from tests.doctor.device_rig import COPY_STREAM, OTHER, US

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.intervals import Intervals, find_innermost
from forebay.doctor.analyse.step_parts import split_recorded_step
from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.events import LedgerEvent
from forebay.doctor.report.sentences import describe_parts

MB = 1_000_000


def view(program, **options):
    return CaptureView(rig.run(program, **options)).device


def uploads_and_reads(machine):
    """Upload 8 MB of pageable memory in 1 ms, compute for 1 ms, read the loss back, and run Python for 0.2 ms."""
    machine.upload(8 * MB, line=2)
    machine.launch(500)
    machine.launch(500)
    machine.read(4, line=3)
    machine.python(200)


def waits_for_input(machine):
    machine.wait_for_input(700, line=1)
    machine.upload(55 * MB, line=2, pinned=True)
    machine.launch(300)
    machine.synchronize(line=4)


def launch_bound(machine):
    for _ in range(50):
        machine.python(3)
        machine.launch(2, host_us=4)


def by_another_thread(machine):
    machine.upload(8 * MB, line=2, thread=OTHER)
    machine.upload(4 * MB, line=6, thread=OTHER)
    machine.launch(100)
    machine.read(4, line=3, thread=OTHER)


def test_a_pause_at_the_start_of_the_recording_does_not_count():
    pauses = count()

    def program(machine):
        if machine.tracing and next(pauses) == 1:
            machine.python(100_000)
        uploads_and_reads(machine)

    device_view = view(program)
    assert len(device_view) == rig.TRACED - 1
    assert device_view.seconds == pytest.approx(view(uploads_and_reads).seconds, rel=0.01)


def test_without_records_there_is_no_device_view():
    assert CaptureView(rig.capture_of([])).device is None


def test_the_view_contains_whole_steps_and_counts_their_operations():
    device_view = view(uploads_and_reads)
    assert len(device_view) == 10
    assert device_view.kernels_per_step == 2
    assert device_view.is_launch.sum() == 20


def test_copied_bytes_are_those_of_uploads_and_read_backs():
    assert view(uploads_and_reads).copied_nbytes == 8 * MB + 4


def test_every_copied_byte_has_a_line():
    device_view = view(uploads_and_reads)
    assert device_view.coverage("host to device") == device_view.coverage("device to host") == 1.0
    assert device_view.coverage("device to device") is None


def test_a_copy_without_an_event_has_no_line():
    assert view(lambda machine: machine.upload(8 * MB, has_event=False)).coverage("host to device") == 0.0


def test_copies_by_a_framework_thread_are_matched_by_their_size():
    device_view = view(by_another_thread)
    copies = ~device_view.is_kernel
    assert {*zip(device_view.lines[copies], device_view.operations["nbytes"][copies], strict=True)} == {
        (2, 8 * MB),
        (6, 4 * MB),
        (3, 4),
    }


def test_a_copy_without_an_upload_event_gets_the_line_of_the_nearest_ops_event():
    capture = rig.run(lambda machine: machine.upload(8 * MB, has_event=False))
    counted = [LedgerEvent("ops", "jax operations", 6, rig.LOOP, edge, edge + US) for edge in capture.window.traced]
    device_view = CaptureView(replace(capture, events=(*capture.events, *counted))).device
    assert device_view.coverage("host to device") == 1.0
    assert set(device_view.lines) == {6}


def test_a_step_is_no_shorter_than_its_device_work():
    numbers = count()

    def program(machine):
        machine.launch(400, host_us=350)
        machine.launch(400, host_us=350)
        if next(numbers) % 5 == 4:
            machine.synchronize()

    view = CaptureView(rig.run(program, launch_cost=100 * US))
    assert median(view.unprofiled_seconds) < 750e-6
    assert view.step_seconds == pytest.approx(800e-6)


def test_a_device_without_lag_completes_every_step():
    assert view(uploads_and_reads).steps_done == len(view(uploads_and_reads)) == 10


def test_a_device_that_lags_completes_fewer_steps_than_the_loop():
    """The loop queues 2 ms of work every 1.2 ms, so the device completes six steps while the loop makes ten."""
    numbers = count()

    def program(machine):
        machine.upload(55 * MB, pinned=True)
        machine.launch(1000)
        machine.python(1200)
        if next(numbers) % 20 == 19:
            machine.synchronize()

    device_view = view(program)
    assert (len(device_view), device_view.steps_done) == (10, 6)
    assert device_view.kernels_per_step == 1
    assert device_view.copied_nbytes == 55 * MB


@pytest.mark.parametrize("kernels", [24, 36])
def test_a_device_that_lags_far_behind_has_the_step_time_of_its_kernels(kernels):
    """The loop launches 100 us of work in 17 us, so the device completes one or two steps while the loop makes ten."""
    program = rig.running_ahead(*range(100 - kernels // 2, 100 + kernels - kernels // 2), host_us=17)
    view = CaptureView(rig.without_unfinished(rig.run(program)))
    device_seconds = kernels * 99.5e-6
    assert view.device.kernels_per_step == pytest.approx(kernels, rel=0.01)
    assert view.device.steps_done == pytest.approx(10 * 17 / 100, rel=0.2)
    assert view.device.bound_seconds == pytest.approx(device_seconds, rel=0.05)
    assert view.device.is_whole_step.tolist()[:3] == [True, False, False]


def test_a_device_that_starts_with_an_empty_queue_may_still_determine_the_step_time():
    recorded, queue = count(), rig.running_ahead(*[100] * 24, host_us=17)

    def program(machine):
        number = next(recorded) if machine.tracing else -1
        machine.python(700 if number == 1 else 0)
        queue(machine)
        if number == 0:
            machine.synchronize()

    device_view = CaptureView(rig.without_unfinished(rig.run(program))).device
    assert device_view.busy_share < 0.9
    assert device_view.bound_seconds == pytest.approx(2.4e-3, rel=0.05)


def test_without_operations_between_the_steps_there_is_no_device_view():
    capture = rig.run(uploads_and_reads)
    damaged = CaptureView(replace(capture, window=replace(capture.window, traced=capture.window.traced[::-1])))
    assert damaged.device is None
    assert damaged.step_seconds > 0


def test_the_device_is_busy_while_it_copies_or_computes():
    device_view = view(uploads_and_reads)
    assert device_view.computing_intervals.length == 10 * 1000 * US
    assert device_view.copying("host to device").length == 10 * 1000 * US
    assert device_view.busy_share == pytest.approx(2.001 / (device_view.seconds * 1e3))


def test_idle_time_belongs_to_the_wait_that_caused_it():
    gaps = {(gap.cause, gap.line): gap.seconds for gap in view(uploads_and_reads).idle_times}
    assert gaps["device to host", 3] == pytest.approx(200e-6, rel=0.1)
    assert ("Python", -1) not in gaps


def test_idle_time_during_an_input_wait_belongs_to_the_input():
    first = view(waits_for_input).idle_times[0]
    assert (first.cause, first.line) == ("waiting for input", 1)
    assert first.seconds == pytest.approx(700e-6)


def test_idle_time_of_a_launch_bound_loop_belongs_to_launching():
    gaps = {gap.cause: gap.seconds for gap in view(launch_bound).idle_times}
    assert gaps["launching"] == pytest.approx(50 * 5e-6, rel=0.02)  # one of the 50 gaps is before the first kernel


def test_launches_by_another_thread_count_as_launching():
    def program(machine):
        for _ in range(50):
            machine.python(3)
            machine.launch(2, host_us=4, thread=OTHER)

    assert view(program).idle_times[0].cause == "launching"
    assert view(program).idle_times[0].seconds == pytest.approx(50 * 5e-6, rel=0.02)


def test_long_work_between_two_launches_counts_as_python():
    def program(machine):
        machine.launch(100)
        machine.python(900)

    gaps = {gap.cause: gap.seconds for gap in view(program).idle_times}
    assert gaps["Python"] == pytest.approx(800e-6, rel=0.02)


def test_gaps_and_busy_time_add_up_to_the_step():
    for program in (uploads_and_reads, waits_for_input, launch_bound):
        device_view = view(program)
        idle = sum(gap.seconds for gap in device_view.idle_times)
        assert idle + device_view.busy_share * device_view.seconds == pytest.approx(device_view.seconds)


def test_a_step_that_is_unfinished_when_recording_ends_is_left_out():
    capture = rig.run(uploads_and_reads)
    records = capture.device.records
    late = records["start"] >= capture.window.traced[-2]
    records["start"][late] += 10**12
    assert len(CaptureView(capture).device) == 9


def test_copies_on_a_separate_stream_overlap_with_kernels():
    def program(machine):
        machine.launch(1000)
        machine.upload(10 * MB, pinned=True, stream=COPY_STREAM)
        machine.python(1100)

    device_view = view(program)
    assert device_view.busy_intervals.length == device_view.computing_intervals.length


def test_two_hundred_thousand_records_are_analysed():
    capture = rig.capture_of_kernels(steps=50, kernels=2000)
    device_view = CaptureView(capture).device
    assert len(capture.device.records) == 200_000
    assert device_view.kernels_per_step == 2000
    assert np.count_nonzero(device_view.lines == 5) == pytest.approx(100_000 / 2, rel=0.01)
    assert sum(gap.seconds for gap in device_view.idle_times) == pytest.approx(1e-3 - 2000 * 75e-9, rel=0.01)


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair))), max_size=12)


def integers_in(intervals):
    """Return the integers that are inside one of the intervals."""
    return {at for start, end in intervals for at in range(start, end)}


def intervals_of(pairs):
    return Intervals([start for start, _ in pairs], [end for _, end in pairs])


@given(spans, spans)
def test_interval_operations_equal_operations_on_sets(some, others):
    first, second = intervals_of(some), intervals_of(others)
    assert first.length == len(integers_in(some))
    assert first.intersection(second).length == len(integers_in(some) & integers_in(others))
    assert first.difference(second).length == len(integers_in(some) - integers_in(others))
    assert first.gaps_between(0, 80).length == 80 - len(integers_in(some))
    assert first.covered_lengths([10], [50]).tolist() == [len(integers_in(some) & set(range(10, 50)))]
    assert first.contains(np.arange(80)).tolist() == [at in integers_in(some) for at in range(80)]


def test_a_time_belongs_to_the_innermost_of_nested_intervals():
    starts, ends = np.array([0, 10, 30]), np.array([100, 20, 40])
    assert find_innermost(starts, ends, np.array([5, 15, 25, 35, 200])).tolist() == [0, 1, 0, 2, -1]


def shares(program, **options):
    parts = CaptureView(rig.run(program, **options)).step_parts
    whole = sum(parts.values())
    return {name: value / whole for name, value in parts.items()}


def test_parts_of_a_step_match_the_program():
    view = CaptureView(rig.run(uploads_and_reads))
    parts = view.step_parts
    assert sum(parts.values()) == pytest.approx(view.step_seconds)
    assert parts["computing"] == pytest.approx(1e-3, rel=0.01)
    assert parts["host to device"] == pytest.approx(1e-3, rel=0.02)
    assert parts["device to host"] == pytest.approx(0.21e-3, rel=0.1)
    assert parts["waiting for input"] == 0.0


def test_shares_of_a_launch_bound_step_exclude_the_recording_overhead():
    true, recorded = shares(launch_bound), shares(launch_bound, launch_cost=5 * US)
    assert recorded["computing"] == pytest.approx(true["computing"], abs=0.01)
    assert recorded["launching"] == pytest.approx(true["launching"], abs=0.05)


@pytest.mark.parametrize("factor", [0.1, 0.3, 0.49, 0.7, 1.3])
def test_no_part_is_negative_for_any_step_time(factor):
    view = CaptureView(rig.run(launch_bound, launch_cost=5 * US))
    assert min(split_recorded_step(view.device, factor * view.device.seconds).values()) >= 0.0


def test_the_report_states_that_recorded_steps_took_a_different_time():
    capture = rig.run(uploads_and_reads)
    slow = replace(capture.window, untraced=tuple(2 * seconds for seconds in capture.window.untraced))
    assert ", which took " in describe_parts(diagnose(replace(capture, window=slow)))
    assert ", which took " not in describe_parts(diagnose(capture))


def test_without_device_records_a_step_consists_of_host_parts():
    capture = rig.replace(rig.run(uploads_and_reads), device=None)
    assert CaptureView(capture).step_parts == CaptureView(capture).host_parts
