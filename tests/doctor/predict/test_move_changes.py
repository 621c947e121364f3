"""Cures that keep data on the device: timelines that move it, and their step time with the cure."""

from dataclasses import replace

import pytest
from tests.doctor.predict.timelines import READ, UPLOAD, median_step, steps, uploads

from forebay.doctor.predict.changes import move_to_device
from forebay.doctor.predict.timeline import DeviceOperation, HostAction, steady_step_seconds
from forebay.doctor.predict.upload_changes import gather_on_device, prefetch_uploads


def calls(first):
    """Make a compiled call that runs an operation on the CPU.

    The device computes for 1 s and copies to the CPU for 3 s. The CPU works for 2 s and copies back for 3 s. Then the
    device computes for 1 s.
    """
    actions = [
        HostAction(0.5, (first,), kind="run"),
        HostAction(0.0, (first + 1,), kind="run"),
        HostAction(3.0 + 2.0, (first + 2,), kind="run"),
        HostAction(3.0, (first + 3,), kind="run"),
        HostAction(0.0, awaited_operations=(first + 3,), ends_step=True),
    ]
    to_host, to_device = (
        DeviceOperation(3.0, engine=engine, line=READ, nbytes=300) for engine in ("device to host", "host to device")
    )
    return actions, [DeviceOperation(1.0), to_host, to_device, DeviceOperation(1.0)]


def moves_implicitly(first):
    """Copy as `uploads` does, but as an implicit move by an operation on the device."""
    actions, operations = uploads(first)
    return [replace(action, kind="move") if action.line == UPLOAD else action for action in actions], operations


def test_host_work_on_moved_data_runs_on_the_device():
    def moves(first):
        actions = [
            HostAction(0.0, (first,), line=READ, kind="move"),
            HostAction(0.0, awaited_operations=(first,), line=READ, kind="move"),
            HostAction(2.0),
            HostAction(0.0, (first + 1,), line=UPLOAD, kind="move"),
            HostAction(0.0, awaited_operations=(first + 1,), line=UPLOAD, kind="move"),
            HostAction(0.5, ends_step=True),
        ]
        return actions, [DeviceOperation(3.0, engine="device to host"), DeviceOperation(3.0, engine="host to device")]

    assert median_step(steps(moves)) == pytest.approx(8.5)
    assert median_step(move_to_device(READ, UPLOAD, speedup=10.0)(steps(moves))) == pytest.approx(0.5, abs=0.01)


def test_host_work_after_another_launch_remains():
    def moves(first):
        actions = [
            HostAction(0.0, (first,), line=READ, kind="move"),
            HostAction(0.0, (first + 1,), kind="launch"),
            HostAction(2.0, ends_step=True),
        ]
        return actions, [DeviceOperation(1.0, engine="device to host"), DeviceOperation(0.1)]

    assert median_step(move_to_device(READ)(steps(moves))) == pytest.approx(2.0, abs=0.01)


def test_an_operation_on_the_device_of_its_data_moves_nothing():
    def moves(first):
        actions = [
            HostAction(1.0, (first,), line=UPLOAD, kind="move"),
            HostAction(0.0, awaited_operations=(first,), line=UPLOAD, kind="move"),
            HostAction(0.5, (first + 1,), kind="launch", ends_step=True),
        ]
        return actions, [DeviceOperation(3.0, engine="device to host", line=UPLOAD), DeviceOperation(1.0)]

    assert median_step(steps(moves)) == pytest.approx(4.5)
    assert median_step(move_to_device(UPLOAD, speedup=10.0)(steps(moves))) == pytest.approx(1.1, abs=0.01)


def test_cpu_work_inside_a_compiled_call_runs_on_the_device():
    assert median_step(steps(calls)) == pytest.approx(0.5 + 1.0 + 3.0 + 1.0 + 3.0 + 1.0)
    assert median_step(move_to_device(READ, speedup=10.0)(steps(calls))) == pytest.approx(0.5 + 1.0 + 0.2 + 1.0)


def test_copies_inside_a_compiled_call_are_removed():
    cured = move_to_device(READ)(steps(calls))
    assert {operation.engine for operation in cured.operations} == {"compute"}
    assert {operation.nbytes for operation in cured.operations} == {0}


def test_copies_of_a_compiled_call_for_other_lines_remain():
    assert move_to_device(UPLOAD)(steps(calls)) == steps(calls)


def test_rows_that_an_operation_moves_can_be_gathered_on_the_device():
    cured = gather_on_device(UPLOAD, gather_bytes_per_second=3000.0)(steps(moves_implicitly))
    assert median_step(steps(moves_implicitly)) == pytest.approx(8.0)
    assert median_step(cured) == pytest.approx(0.5 + 4.0, abs=0.01)


def test_data_that_an_operation_moves_can_be_prefetched():
    fast = prefetch_uploads(UPLOAD, bytes_per_second=300.0, producer_bytes_per_second=1000.0)(steps(moves_implicitly))
    slow = prefetch_uploads(UPLOAD, bytes_per_second=300.0, producer_bytes_per_second=50.0)(steps(moves_implicitly))
    assert steady_step_seconds(fast) == pytest.approx(4.5, abs=0.01)
    assert steady_step_seconds(slow) == pytest.approx(6.0)


def test_a_compiled_call_in_the_next_step_does_not_belong_to_the_moved_data():
    def calls_once(first):
        actions = [HostAction(1.0, (first,), kind="run"), HostAction(0.0, awaited_operations=(first,), ends_step=True)]
        return actions, [DeviceOperation(0.5, engine="device to host", line=READ)]

    assert median_step(steps(calls_once)) == pytest.approx(1.5)
    assert median_step(move_to_device(READ)(steps(calls_once))) == pytest.approx(1.0)
