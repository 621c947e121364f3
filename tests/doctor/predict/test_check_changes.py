"""Timelines that read a large result to check it on the host, and the step time if the device checks it."""

from dataclasses import replace

import pytest
from tests.doctor import device_rig as rig
from tests.doctor.predict.timelines import READ, UPLOAD, median_step, steps

from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.predict.check_changes import check_on_device, check_seconds
from forebay.doctor.predict.simulate import GAIN_UNCERTAINTY
from forebay.doctor.predict.timeline import DeviceOperation, HostAction

MB, GB = 1_000_000, 1_000_000_000
WITH_WAIT = check_on_device(READ, bytes_per_second=100 * GB, passes=1, waits=True)
WITHOUT_WAIT = check_on_device(READ, bytes_per_second=100 * GB, passes=1, waits=False)
CAUTIOUS = check_on_device(READ, bytes_per_second=100 * GB, passes=4, waits=True, is_cautious=True)


def checks(first, *, then="launch"):
    """Compute for 4 s, read back for 3 s, check on the host for 5 s, then make a call of 0.5 s."""
    actions = [
        HostAction(0.5, (first,), kind="launch"),
        HostAction(0.0, (first + 1,), line=READ, kind="download"),
        HostAction(1.0, awaited_operations=(first + 1,), line=READ, kind="download"),
        HostAction(5.0),
        HostAction(0.5, line=UPLOAD, kind=then, ends_step=True),
    ]
    copy = DeviceOperation(3.0, engine="device to host", line=READ, nbytes=10 * GB, is_pageable=True)
    return actions, [DeviceOperation(4.0), copy]


def reads_and_checks(machine, *, on_device=False):
    """Check a large result on the host, or on the device and read only a number."""
    machine.launch(900)
    if on_device:
        machine.launch(10)
        machine.read(4, line=3)
    else:
        machine.read(16 * MB, line=3, api="Tensor.cpu")
        machine.python(2000)
    machine.launch(100)
    machine.python(200)


def cure_in(capture, beginning):
    diagnosis = diagnose(capture, ["host_check"])
    return next(cure for cure in diagnosis.main.cures if cure.title.startswith(beginning)), diagnosis.view.step_seconds


def test_host_work_after_a_read_back_is_removed_with_it():
    assert median_step(steps(checks)) == pytest.approx(0.5 + 4.0 + 3.0 + 1.0 + 5.0 + 0.5)
    assert median_step(WITH_WAIT(steps(checks))) == pytest.approx(0.5 + 4.0 + 0.1 + 0.5, abs=0.01)


def test_if_the_result_of_a_check_is_read_later_the_wait_is_removed():
    assert median_step(WITHOUT_WAIT(steps(checks))) == pytest.approx(4.0 + 0.1, abs=0.01)


def test_the_cautious_estimate_keeps_some_host_work():
    remaining = 0.5 + 4.0 + 4 * 0.1 + 5.0 * GAIN_UNCERTAINTY + 0.5
    assert median_step(CAUTIOUS(steps(checks))) == pytest.approx(remaining, abs=0.01)


def test_work_that_is_too_long_for_a_check_may_not_be_part_of_the_check():
    def works_longer(first):
        actions, operations = checks(first)
        return [*actions[:3], HostAction(200.0), actions[-1]], operations

    assert check_seconds(steps(works_longer), READ) == pytest.approx((10.0, 200.0))


def test_work_before_an_upload_may_belong_to_the_upload():
    timeline = steps(lambda first: checks(first, then="upload"))
    assert check_seconds(timeline, READ) == pytest.approx((0.0, 5.0))
    assert median_step(CAUTIOUS(timeline)) == pytest.approx(0.5 + 4.0 + 4 * 0.1 + 5.0 + 0.5, abs=0.01)


def test_work_after_the_next_call_is_not_part_of_the_check():
    def works_after_the_call(first):
        actions, operations = checks(first)
        return [*actions[:-1], replace(actions[-1], ends_step=False), HostAction(2.0, ends_step=True)], operations

    assert check_seconds(steps(works_after_the_call), READ) == pytest.approx((5.0 * (1 - GAIN_UNCERTAINTY), 5.0))


def test_a_copy_of_another_thread_is_not_a_call_of_the_loop():
    def copies_by_another_thread(first):
        actions, operations = checks(first)
        copy = HostAction(0.0, (first + 2,), kind="launch")
        return [*actions[:3], copy, *actions[3:]], [*operations, DeviceOperation(1.0, 5, "host to device")]

    assert check_seconds(steps(copies_by_another_thread), READ)[1] == pytest.approx(5.0)


def test_a_check_may_run_in_the_next_step():
    def ends_with_the_read(first):
        (launch, queue, wait, check, call), operations = checks(first)
        return [check, replace(call, ends_step=False), launch, queue, replace(wait, ends_step=True)], operations

    assert check_seconds(steps(ends_with_the_read), READ)[1] == pytest.approx(5.0)
    assert median_step(WITH_WAIT(steps(ends_with_the_read))) == pytest.approx(0.5 + 0.5 + 4.0 + 0.1, abs=0.01)


def test_a_line_without_a_read_back_has_no_check():
    assert check_seconds(steps(checks), UPLOAD) == (0.0, 0.0)


def test_the_predicted_range_contains_the_gain_of_the_cured_program():
    cure, step = cure_in(rig.run(reads_and_checks), "reduce it")
    expected = step - rig.step_seconds(lambda machine: reads_and_checks(machine, on_device=True))
    assert cure.low <= expected <= cure.high
    assert cure.basis.startswith("A simulation of the recorded steps")
    assert cure.basis.endswith(
        ". Assumption: the host work between this copy and the next call (2.00 "
        "ms per step) is the check and is removed with it"
    )


def test_without_a_device_record_there_is_no_assumption():
    cure, _ = cure_in(replace(rig.run(reads_and_checks), device=None), "reduce it")
    assert "Assumption" not in cure.basis


def test_no_prediction_is_below_the_computation_of_the_device():
    cure, step = cure_in(rig.run(reads_and_checks), "check for NaN")
    assert step - cure.high >= 1e-3


@pytest.mark.parametrize("wait_us", [2_000, 20_000])
def test_input_waits_are_not_part_of_the_gain(wait_us):
    def waits(machine):
        machine.launch(900)
        machine.read(16 * MB, line=3, api="Tensor.cpu")
        machine.wait_for_input(wait_us)
        machine.launch(100)

    diagnosis = diagnose(rig.run(waits))
    assert diagnosis.main.rule == "input_bound"
    (check,) = (finding for finding in diagnosis.findings if finding.rule == "host_check")
    assert max(cure.high for cure in check.cures) < 1.5e-3
    assert not any("Assumption" in cure.basis for cure in check.cures)
