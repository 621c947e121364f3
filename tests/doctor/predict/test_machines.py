"""Timelines that move data between host and device, and the step time once it stays on the device."""

from dataclasses import replace

import pytest
from tests.doctor.predict.timelines import READ, UPLOAD, steps, typical, uploads

from forebay.doctor.predict.changes import move_to_device
from forebay.doctor.predict.timeline import DeviceOperation, HostAction, steady_step_seconds
from forebay.doctor.predict.upload_changes import gather_on_device, prefetch_uploads


def calls(first):
    """Make a compiled call that runs an operation on the CPU.

    The device computes for 1 and copies for 3 to the CPU. The CPU works for 2 and copies back for 3. The device
    computes for 1.
    """
    actions = [
        HostAction(0.5, (first,), kind="run"),
        HostAction(0.0, (first + 1,), kind="run"),
        HostAction(3.0 + 2.0, (first + 2,), kind="run"),
        HostAction(3.0, (first + 3,), kind="run"),
        HostAction(0.0, awaited_operations=(first + 3,), ends_step=True),
    ]
    there, back = (
        DeviceOperation(3.0, engine=way, line=READ, nbytes=300) for way in ("device to host", "host to device")
    )
    return actions, [DeviceOperation(1.0), there, back, DeviceOperation(1.0)]


def pulls(first):
    """Make the upload of `uploads` an implicit move by an operation on the device."""
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

    assert typical(steps(moves)) == pytest.approx(8.5)
    assert typical(move_to_device(READ, UPLOAD, speedup=10.0)(steps(moves))) == pytest.approx(0.5, abs=0.01)


def test_work_after_another_launch_remains():
    def moves(first):
        actions = [
            HostAction(0.0, (first,), line=READ, kind="move"),
            HostAction(0.0, (first + 1,), kind="launch"),
            HostAction(2.0, ends_step=True),
        ]
        return actions, [DeviceOperation(1.0, engine="device to host"), DeviceOperation(0.1)]

    assert typical(move_to_device(READ)(steps(moves))) == pytest.approx(2.0, abs=0.01)


def test_an_operation_placed_with_its_data_moves_nothing():
    def moves(first):
        actions = [
            HostAction(1.0, (first,), line=UPLOAD, kind="move"),
            HostAction(0.0, awaited_operations=(first,), line=UPLOAD, kind="move"),
            HostAction(0.5, (first + 1,), kind="launch", ends_step=True),
        ]
        return actions, [DeviceOperation(3.0, engine="device to host", line=UPLOAD), DeviceOperation(1.0)]

    assert typical(steps(moves)) == pytest.approx(4.5)
    assert typical(move_to_device(UPLOAD, speedup=10.0)(steps(moves))) == pytest.approx(1.1, abs=0.01)


def test_cpu_work_inside_a_compiled_call_runs_on_the_device():
    assert typical(steps(calls)) == pytest.approx(0.5 + 1.0 + 3.0 + 1.0 + 3.0 + 1.0)
    assert typical(move_to_device(READ, speedup=10.0)(steps(calls))) == pytest.approx(0.5 + 1.0 + 0.2 + 1.0)


def test_copies_inside_a_compiled_call_are_removed():
    there = move_to_device(READ)(steps(calls))
    assert {operation.engine for operation in there.operations} == {"compute"}
    assert {operation.nbytes for operation in there.operations} == {0}


def test_copies_of_a_compiled_call_for_other_lines_remain():
    assert move_to_device(UPLOAD)(steps(calls)) == steps(calls)


def test_rows_that_an_operation_moves_can_be_gathered_on_the_device():
    cured = gather_on_device(UPLOAD, gather_bytes_per_second=3000.0)(steps(pulls))
    assert typical(steps(pulls)) == pytest.approx(8.0)
    assert typical(cured) == pytest.approx(0.5 + 4.0, abs=0.01)


def test_data_that_an_operation_moves_can_be_prefetched():
    fast = prefetch_uploads(UPLOAD, bytes_per_second=300.0, producer_bytes_per_second=1000.0)(steps(pulls))
    slow = prefetch_uploads(UPLOAD, bytes_per_second=300.0, producer_bytes_per_second=50.0)(steps(pulls))
    assert steady_step_seconds(fast) == pytest.approx(4.5, abs=0.01)
    assert steady_step_seconds(slow) == pytest.approx(6.0)


def test_a_compiled_call_in_the_next_step_does_not_belong_to_the_moved_data():
    def calls_once(first):
        actions = [HostAction(1.0, (first,), kind="run"), HostAction(0.0, awaited_operations=(first,), ends_step=True)]
        return actions, [DeviceOperation(0.5, engine="device to host", line=READ)]

    assert typical(steps(calls_once)) == pytest.approx(1.5)
    assert typical(move_to_device(READ)(steps(calls_once))) == pytest.approx(1.0)
