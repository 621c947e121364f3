"""Simulated step times of timelines with known schedules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor.predict.timelines import READ, UPLOAD, median_step, steps, uploads

from forebay.doctor.predict.changes import (
    chain,
    launch_as_graph,
    prefetch_input,
    remove_calls,
    remove_waits_of_line,
    remove_work,
)
from forebay.doctor.predict.check_changes import check_on_device
from forebay.doctor.predict.simulate import predict
from forebay.doctor.predict.timeline import DeviceOperation, HostAction, Timeline, simulate_steps, steady_step_seconds
from forebay.doctor.predict.upload_changes import (
    gather_on_device,
    merge_uploads,
    narrow_dtype,
    overlap_copies,
    page_lock_copies,
    prefetch_batches,
    prefetch_conversion,
    prefetch_uploads,
    remove_uploads,
)


def launch_bound(first):
    """The host needs 5 s to queue work for which the device needs 2 s."""
    return [HostAction(5.0, (first,), kind="launch", ends_step=True)], [DeviceOperation(2.0)]


def device_bound(first):
    """Wait for the previous step; the device needs 5 s."""
    return [HostAction(1.0, (first,), awaited_operations=(first - 1,), kind="launch", ends_step=True)], [
        DeviceOperation(5.0)
    ]


def reads_back(first):
    """Queue 4 s of device work in 1 s, wait for it, then run Python for 2 s."""
    actions = [
        HostAction(1.0, (first,), kind="launch"),
        HostAction(0.0, awaited_operations=(first,), line=READ, kind="download"),
        HostAction(2.0, ends_step=True),
    ]
    return actions, [DeviceOperation(4.0)]


def waits_for_input(first):
    return [HostAction(6.0, kind="input"), HostAction(4.0, ends_step=True)], []


def test_a_launch_bound_step_takes_the_time_of_the_host():
    assert median_step(steps(launch_bound)) == 5.0


def test_a_device_bound_step_takes_the_time_of_the_device():
    assert median_step(steps(device_bound)) == 6.0


def test_reading_back_adds_the_wait():
    assert median_step(steps(reads_back)) == 7.0


def test_copies_of_one_direction_run_one_by_one_and_kernels_of_two_streams_overlap():
    copies = [DeviceOperation(2.0, stream=number, engine="host to device") for number in range(3)]
    kernels = [DeviceOperation(2.0, stream=number) for number in range(3)]
    assert simulate_steps(Timeline((HostAction(0.0, (0, 1, 2), ends_step=True),), tuple(copies))) == (6.0,)
    assert simulate_steps(Timeline((HostAction(0.0, (0, 1, 2), ends_step=True),), tuple(kernels))) == (2.0,)


def test_an_operation_waits_for_another_stream():
    operations = (DeviceOperation(3.0, stream=1), DeviceOperation(1.0, stream=2, dependencies=(0,)))
    assert simulate_steps(Timeline((HostAction(0.0, (0, 1), ends_step=True),), operations)) == (4.0,)


def test_without_the_upload_only_computation_remains():
    cured = remove_uploads(UPLOAD)(steps(uploads))
    assert median_step(cured) == 4.5


def test_removing_half_of_the_uploads_removes_part_of_the_time():
    timeline = steps(uploads)
    half = remove_uploads(UPLOAD, share=0.5)(timeline)
    assert (
        sum(simulate_steps(remove_uploads(UPLOAD)(timeline)))
        < sum(simulate_steps(half))
        < sum(simulate_steps(timeline))
    )


def test_a_deferred_read_lets_host_and_device_overlap():
    assert median_step(remove_waits_of_line(READ)(steps(reads_back))) == pytest.approx(
        4.0
    )  # the device needs 4 s, the host 3 s


def test_reading_every_tenth_step_costs_less_than_half_of_reading_every_step():
    timeline = steps(reads_back, count=100)
    every_step, never = sum(simulate_steps(timeline)), sum(simulate_steps(remove_waits_of_line(READ)(timeline)))
    every_tenth = sum(simulate_steps(remove_waits_of_line(READ, every=10)(timeline)))
    assert never < every_tenth < never + (every_step - never) * 0.5


def test_page_locked_copies_run_at_the_speed_of_the_link():
    cured = page_lock_copies(UPLOAD, bytes_per_second=300.0)(steps(uploads))
    assert median_step(cured) == pytest.approx(0.5 + 5.0, abs=0.6)


def test_an_overlapped_copy_shortens_the_step():
    fast = page_lock_copies(UPLOAD, bytes_per_second=100.0)
    cured = overlap_copies(UPLOAD)(fast(steps(uploads)))
    assert median_step(cured) < median_step(fast(steps(uploads)))


def test_prefetched_input_costs_only_the_time_beyond_the_step():
    assert steady_step_seconds(prefetch_input(producer_seconds=3.0)(steps(waits_for_input))) == 4.0
    assert steady_step_seconds(prefetch_input(producer_seconds=6.0)(steps(waits_for_input))) == 6.0


def test_with_a_cuda_graph_a_step_takes_the_time_of_the_device():
    assert median_step(launch_as_graph(seconds_per_operation=0.1)(steps(launch_bound))) == pytest.approx(2.0)


def test_a_compiled_program_takes_at_least_the_time_of_its_call():
    called = launch_as_graph(seconds_per_operation=0.0, seconds_per_step=3.0)(steps(launch_bound))
    assert median_step(called) == pytest.approx(3.0)
    assert median_step(
        launch_as_graph(seconds_per_operation=0.0, seconds_per_step=1e3)(steps(launch_bound))
    ) <= median_step(steps(launch_bound))


def test_half_the_bytes_take_half_the_time_of_the_copy():
    assert median_step(narrow_dtype(UPLOAD, share=0.5)(steps(uploads))) == pytest.approx(8.0 - 1.5 - 0.25)


def test_gathering_rows_on_the_device_leaves_gather_and_computation():
    cured = gather_on_device(UPLOAD, gather_bytes_per_second=3000.0)(steps(uploads))
    assert median_step(cured) == pytest.approx(
        0.5 + 4.0, abs=0.01
    )  # the gather takes 0.1 s, during the launch by the host


def test_prefetched_uploads_are_hidden_unless_the_producer_is_slower():
    fast = prefetch_uploads(UPLOAD, bytes_per_second=300.0, producer_bytes_per_second=1000.0)(steps(uploads))
    slow = prefetch_uploads(UPLOAD, bytes_per_second=300.0, producer_bytes_per_second=50.0)(steps(uploads))
    assert steady_step_seconds(fast) == pytest.approx(4.5, abs=0.01)
    assert steady_step_seconds(slow) == pytest.approx(6.0)


def test_batches_that_other_threads_make_cost_the_loop_nothing():
    def makes(first):
        actions, operations = uploads(first)
        return [HostAction(2.0), *actions], operations

    assert steady_step_seconds(steps(makes)) == pytest.approx(10.0)
    assert steady_step_seconds(
        prefetch_batches(UPLOAD, seconds=2.0, producer_seconds=0.5)(steps(makes))
    ) == pytest.approx(8.0)


def test_many_uploads_become_one():
    def several(first):
        parts = [uploads(first + 2 * number) for number in range(4)]
        actions = [action for step, _ in parts for action in step[:2]]  # without the launch
        return [*actions, HostAction(0.0, ends_step=True)], [each for _, operations in parts for each in operations]

    together = merge_uploads(UPLOAD, bytes_per_second=300.0, host_bytes_per_second=1200.0)(steps(several))
    assert median_step(steps(several)) == pytest.approx(4 * 3.5)
    assert median_step(together) == pytest.approx(0.5 + 4.0 + 1.0)


def test_a_batch_is_assembled_no_faster_than_its_upload_copies_the_bytes():
    def makes(first):
        actions = [
            HostAction(2.0),
            HostAction(1.5, line=UPLOAD, kind="upload"),
            HostAction(0.0, (first,), line=UPLOAD, kind="upload"),
            HostAction(0.0, ends_step=True),
        ]
        return actions, [DeviceOperation(0.1, engine="host to device", nbytes=100)]

    gather = gather_on_device(UPLOAD, gather_bytes_per_second=1e6, making_bytes_per_second=1e3)
    assert median_step(gather(steps(makes))) == pytest.approx(0.5, abs=0.01)


def test_batches_that_other_threads_make_are_still_uploaded_in_the_loop():
    fast = prefetch_conversion(UPLOAD, making_bytes_per_second=600.0, producer_bytes_per_second=600.0)
    assert median_step(fast(steps(uploads))) == pytest.approx(3.0 + 0.5 + 4.0, abs=0.01)
    slow = prefetch_conversion(UPLOAD, making_bytes_per_second=600.0, producer_bytes_per_second=37.5)
    assert steady_step_seconds(slow(steps(uploads))) == pytest.approx(8.0)


def test_calls_that_run_once_before_the_loop_cost_nothing():
    assert median_step(remove_calls(-1, ("input",))(steps(waits_for_input))) == 4.0


def test_a_simulation_with_a_large_error_is_not_reliable():
    assert predict(steps(reads_back), [], measured=7.0).is_reliable
    assert not predict(steps(reads_back), [], measured=8.0).is_reliable


def test_combined_cures_are_simulated_together_and_not_added():
    timeline = steps(uploads)
    both = [page_lock_copies(UPLOAD, bytes_per_second=300.0), remove_uploads(UPLOAD)]
    alone = predict(timeline, [remove_uploads(UPLOAD)], measured=8.0)
    assert predict(timeline, both, measured=8.0).low == pytest.approx(alone.low, rel=0.05)


actions = st.builds(
    HostAction,
    seconds=st.floats(0, 1),
    queued_operations=st.lists(st.integers(0, 5), max_size=3).map(tuple),
    awaited_operations=st.lists(st.integers(0, 5), max_size=2).map(tuple),
    line=st.sampled_from([UPLOAD, READ]),
    kind=st.sampled_from(["work", "upload", "download", "input", "launch"]),
    ends_step=st.booleans(),
)
operations = st.builds(
    DeviceOperation,
    seconds=st.floats(0, 1),
    stream=st.integers(0, 2),
    engine=st.sampled_from(["compute", "host to device", "device to host"]),
    nbytes=st.integers(0, 1000),
)
timelines = st.builds(
    Timeline, st.lists(actions, max_size=20).map(tuple), st.lists(operations, min_size=6, max_size=6).map(tuple)
)
CURES = [
    remove_uploads(UPLOAD),
    remove_calls(UPLOAD, ("upload", "input")),
    narrow_dtype(UPLOAD, share=0.5),
    prefetch_conversion(UPLOAD, making_bytes_per_second=1e3, producer_bytes_per_second=1e4),
    gather_on_device(UPLOAD, gather_bytes_per_second=1e6, making_bytes_per_second=1e3),
    prefetch_batches(UPLOAD, seconds=0.1, producer_seconds=0.1),
    prefetch_uploads(UPLOAD, bytes_per_second=1e4, producer_bytes_per_second=1e4, making_bytes_per_second=1e3),
    chain([remove_waits_of_line(READ), remove_uploads(UPLOAD)]),
    remove_waits_of_line(READ),
    page_lock_copies(UPLOAD, bytes_per_second=1e4),
    prefetch_input(producer_seconds=0.1),
    launch_as_graph(seconds_per_operation=1e-6),
    check_on_device(READ, bytes_per_second=1e4, passes=1, waits=False),
    check_on_device(READ, bytes_per_second=1e4, passes=4, waits=True, is_cautious=True),
]


@given(timelines)
def test_no_step_time_is_negative(timeline):
    assert all(length >= 0 for length in simulate_steps(timeline))


@given(timelines, st.sampled_from(CURES))
def test_no_cure_makes_a_script_slower(timeline, cure):
    assert sum(simulate_steps(cure(timeline))) <= sum(simulate_steps(timeline)) + 1e-9


def test_removed_work_shortens_a_step_that_the_host_limits():
    assert median_step(remove_work(1.5)(steps(reads_back))) == pytest.approx(5.5)


def test_more_work_than_a_step_has_cannot_be_removed():
    assert median_step(remove_work(100.0)(steps(reads_back))) == pytest.approx(5.0)


@given(seconds=st.floats(0, 20))
def test_removed_work_never_makes_a_step_shorter_than_the_device_needs(seconds):
    assert steady_step_seconds(remove_work(seconds)(steps(device_bound))) >= 5.0
