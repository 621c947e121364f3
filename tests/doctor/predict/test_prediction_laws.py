"""Laws of every prediction, for generated timelines and any combination of cures."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forebay.doctor.predict import call_changes, changes, upload_changes
from forebay.doctor.predict.kernel_changes import scale_kernels
from forebay.doctor.predict.simulate import WARM_CACHE_FACTOR, predict
from forebay.doctor.predict.timeline import (
    DeviceOperation,
    HostAction,
    Timeline,
    least_step_seconds,
    steady_step_seconds,
)

TOLERANCE = 1 + 1e-9  # for rounding errors
LINES, KINDS = (2, 3), ("work", "launch", "run", "input", "upload", "download", "sync", "move", "compile")
seconds = st.floats(0, 10e-3, allow_subnormal=False)
operations = st.builds(
    DeviceOperation,
    seconds=seconds,
    stream=st.sampled_from([0, 1]),
    engine=st.sampled_from(["compute", "host to device", "device to host"]),
    line=st.sampled_from(LINES),
    nbytes=st.integers(0, 1 << 24),
    is_pageable=st.booleans(),
)


host_actions = st.builds(
    HostAction, seconds, line=st.sampled_from(LINES), kind=st.sampled_from(KINDS), sleeps=st.booleans()
)


@st.composite
def timelines(draw):
    """Draw a timeline of one to four steps, in which each operation is queued once and awaited at most once."""
    queued = draw(st.lists(operations, max_size=8))
    actions = []
    for _ in range(draw(st.integers(1, 4))):
        actions += draw(st.lists(host_actions, min_size=1, max_size=4))
        actions.append(HostAction(draw(seconds), ends_step=True))
    for index in range(len(queued)):
        queueing = draw(st.integers(0, len(actions) - 1))
        actions[queueing] = replace(actions[queueing], queued_operations=(*actions[queueing].queued_operations, index))
        awaiting = draw(st.integers(queueing, len(actions) - 1))
        if awaiting > queueing and draw(st.booleans()):
            actions[awaiting] = replace(actions[awaiting], awaited_operations=(index,))
    return Timeline(tuple(actions), tuple(queued), producer_seconds=draw(st.just(0.0) | seconds))


cures = st.one_of(
    st.builds(changes.remove_calls, st.sampled_from(LINES), st.just(KINDS)),
    st.builds(changes.remove_work, seconds),
    st.builds(changes.remove_waits_of_line, st.sampled_from(LINES)),
    st.builds(lambda producer: changes.prefetch_input(producer_seconds=producer), seconds),
    st.builds(changes.speed_up_producers, st.floats(0, 1)),
    st.builds(
        lambda per_operation, share: changes.launch_as_graph(seconds_per_operation=per_operation, device_share=share),
        st.floats(0, 1e-5),
        st.floats(0.5, 1),
    ),
    st.builds(lambda share: scale_kernels(lambda _: True, share), st.floats(0, 1)),
    st.builds(changes.compute_on_host, seconds),
    st.builds(upload_changes.remove_uploads, st.sampled_from(LINES)),
    st.builds(upload_changes.overlap_copies, st.sampled_from(LINES)),
    st.builds(lambda line: upload_changes.page_lock_copies(line, bytes_per_second=5e10), st.sampled_from(LINES)),
    st.builds(
        lambda line, producer: call_changes.hide_calls(line, ("upload", "input"), producer_seconds=producer),
        st.sampled_from(LINES),
        seconds,
    ),
)


def with_cures(timeline, chosen):
    """Apply the chosen cures in order."""
    return changes.chain(chosen)(timeline)


def stream_seconds(timeline, stream):
    """Return the seconds that the queued operations of a stream take."""
    queued = [index for action in timeline.actions for index in action.queued_operations]
    return sum(timeline.operations[index].seconds for index in queued if timeline.operations[index].stream == stream)


@given(timelines(), st.lists(cures, max_size=4))
def test_a_step_is_never_shorter_than_the_remaining_work(timeline, chosen):
    after = with_cures(timeline, chosen)
    step, count = steady_step_seconds(after) * TOLERANCE, after.step_count
    assert step >= sum(action.seconds for action in after.actions) / count
    assert all(step >= stream_seconds(after, stream) / count for stream in {each.stream for each in after.operations})
    assert step >= after.least_seconds


@given(timelines(), st.lists(cures, max_size=4), st.floats(0, 0.5))
def test_no_prediction_is_below_the_shortest_possible_step_of_the_cured_timeline(timeline, chosen, model_error):
    measured = steady_step_seconds(timeline)
    prediction = predict(timeline, chosen, measured=measured, error=model_error)
    after = with_cures(timeline, chosen)
    least_seconds = least_step_seconds(after)  # of the host, a stream or a copy engine, whichever is busiest
    assert prediction.low <= prediction.high * TOLERANCE
    # With warm CPU caches, Python work takes at least WARM_CACHE_FACTOR of its measured time.
    assert prediction.low * TOLERANCE >= min(measured, least_seconds * WARM_CACHE_FACTOR)
    assert prediction.low * TOLERANCE >= after.least_seconds  # the time that the producers of batches need


@given(timelines(), st.floats(0, 0.5))
def test_a_cure_without_an_effect_predicts_the_measured_step(timeline, model_error):
    measured = steady_step_seconds(timeline)
    prediction = predict(timeline, [call_changes.unchanged], measured=measured, error=model_error)
    assert (prediction.low, prediction.high) == (measured, measured)


@given(timelines(), st.lists(cures, max_size=3), cures)
def test_a_further_cure_never_lowers_the_step_time_that_producers_of_batches_need(timeline, chosen, last):
    assert with_cures(timeline, [*chosen, last]).min_step_seconds >= with_cures(timeline, chosen).min_step_seconds


@given(timelines())
def test_the_shortest_possible_step_of_a_timeline_is_at_most_its_simulated_step(timeline):
    assert least_step_seconds(timeline) <= steady_step_seconds(timeline) * TOLERANCE


def test_computing_on_the_host_does_not_shorten_waits_for_input():
    """The loop waits for input for 7 of 10 ms."""
    actions = (
        HostAction(7e-3, kind="input"),
        HostAction(2e-3, (0,), kind="launch"),
        HostAction(0.0, awaited_operations=(0,), kind="sync", line=2),
        HostAction(0.0, ends_step=True),
    )
    timeline = Timeline(actions, (DeviceOperation(1e-3),))
    prediction = predict(timeline, [changes.compute_on_host(0.0)], measured=10e-3, error=0.0)
    assert prediction.low == pytest.approx(7e-3)


def test_a_graph_is_not_faster_than_its_kernels():
    """The kernels take 1.7 ms, so a step does too, even if launching them as a graph takes no time."""
    timeline = Timeline((HostAction(3e-3, (0,), kind="launch", ends_step=True),), (DeviceOperation(1.7e-3),))
    prediction = predict(timeline, [changes.launch_as_graph(seconds_per_operation=0.0)], measured=3e-3, error=0.0)
    assert prediction.low == pytest.approx(1.7e-3)
