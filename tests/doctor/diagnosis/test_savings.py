"""Simulated gains of cures, compared with the cured program on the same simulated machine."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doctor import device_rig as rig
from tests.doctor.captures import STEP_LINE

from forebay.core.ceilings import (
    CopySpeed,
    DeviceCeilings,
    HostCeilings,
    HostGather,
    Probe,
    RowSpeed,
    RowSpeeds,
)
from forebay.core.hardware import Hardware
from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.diagnosis.savings import WARM_CACHES, Simulation
from forebay.doctor.predict.build_timeline import PREPARATION_STREAM
from forebay.doctor.predict.changes import remove_waits_of_line
from forebay.doctor.predict.machines import DEVICES, LINKS, find_gpu, on_other_machine, speeds_of_gpu
from forebay.doctor.predict.timeline import DeviceOperation, HostAction, Timeline, simulate_steps
from forebay.doctor.predict.upload_changes import overlap_copies, remove_uploads
from forebay.doctor.rules.finding import Cure, Finding
from forebay.errors import CaptureError

MB = 1_000_000


def trains(machine, *, uploads=True, reads=True):
    if uploads:
        machine.upload(8 * MB, line=2)
    machine.launch(900)
    if reads:
        machine.read(4, line=3)
    machine.python(300)


def finding(line, change):
    return Finding("a_rule", "something", None, 1e-3, (Cure("do it", "code", "it helps", (change,)),))


UPLOAD, READ = finding(2, remove_uploads(2)), finding(3, remove_waits_of_line(3))


def test_the_predicted_range_contains_the_gain_of_the_cured_program():
    view = CaptureView(rig.run(trains))
    (cure,) = Simulation.from_view(view).with_predicted_gain(UPLOAD).cures
    expected = view.step_seconds - rig.step_seconds(lambda machine: trains(machine, uploads=False))
    assert cure.low <= expected <= cure.high
    assert cure.basis.startswith("A simulation of the recorded steps with this cure. ")
    assert cure.basis.endswith(". It helps")


def test_the_prediction_for_all_cures_matches_the_fully_cured_program():
    simulation = Simulation.from_view(CaptureView(rig.run(trains)))
    both = simulation.predict_all_cures([simulation.with_predicted_gain(UPLOAD), simulation.with_predicted_gain(READ)])
    expected = rig.step_seconds(lambda machine: trains(machine, uploads=False, reads=False))
    assert both.low == pytest.approx(expected, rel=0.01)


def test_one_cure_has_no_combined_prediction():
    assert Simulation.from_view(CaptureView(rig.run(trains))).predict_all_cures([UPLOAD]) is None


def test_without_device_records_a_gain_is_given_as_bounds():
    simulation = Simulation.from_view(CaptureView(replace(rig.run(trains), device=None)))
    (cure,) = simulation.with_predicted_gain(UPLOAD).cures
    assert cure.low == 0  # the device may work during the upload
    assert cure.high > 0
    assert cure.basis == "Bounds from the time of the host, because the GPU was not recorded. It helps"


def test_a_script_without_a_gpu_has_no_prediction_for_another_machine():
    without = {"frameworks": {"torch": {"gpus": 0}}}
    diagnosis = diagnose(replace(rig.run(trains), device=None, facts=without), device="h100")
    assert (diagnosis.other_machine.step, diagnosis.other_machine.reason) == (None, "the script ran without a GPU")


def test_a_simulation_with_a_large_error_gives_bounds_and_the_reason():
    capture = rig.run(trains)
    window = replace(capture.window, untraced=tuple(3 * seconds for seconds in capture.window.untraced))
    simulation = Simulation.from_view(CaptureView(replace(capture, window=window)))
    (cure,) = simulation.with_predicted_gain(UPLOAD).cures
    assert cure.low == 0
    assert "that is not reliable, because the simulated step differs from the measured step by" in cure.basis


def test_a_simulation_is_reliable_if_unprofiled_steps_take_15_percent_longer():
    capture = rig.run(trains)
    window = replace(capture.window, untraced=tuple(1.15 * seconds for seconds in capture.window.untraced))
    assert Simulation.from_view(CaptureView(replace(capture, window=window))).is_reliable


def test_a_simulation_can_have_a_cost_error_although_its_step_time_is_right():
    def program(machine):
        machine.upload(8 * MB)
        machine.launch(1500 if machine.tracing else 900)
        machine.read(4)
        machine.python(300)

    model = Simulation.from_view(CaptureView(rig.run(program))).model
    assert model.structure_error < 0.01
    assert model.pace_error < 0.01
    assert model.cost_error > 0.1


def test_the_gain_is_right_for_a_loop_that_the_device_limits():
    numbers = count()

    def program(machine, *, stream=rig.STREAM):
        machine.upload(22 * MB, pinned=True, stream=stream)
        machine.launch(800)
        machine.python(1000)
        if next(numbers) % 10 == 9:
            machine.synchronize()

    view = CaptureView(rig.run(program, launch_cost=400 * rig.US))
    (cure,) = Simulation.from_view(view).with_predicted_gain(finding(2, overlap_copies(2))).cures
    expected = view.step_seconds - rig.step_seconds(lambda machine: program(machine, stream=rig.COPY_STREAM))
    assert cure.low <= expected <= cure.high


def test_a_loop_that_runs_ahead_has_the_step_time_of_its_device():
    numbers = count()

    def program(machine):
        machine.upload(55 * MB, pinned=True)
        machine.launch(1000)
        machine.python(1200)
        if next(numbers) % 20 == 19:
            machine.synchronize()

    view = CaptureView(rig.without_calls(rig.run(program)))
    assert view.device.lags_behind
    assert view.step_seconds == pytest.approx(rig.step_seconds(program), rel=0.01)
    assert Simulation.from_view(view).is_reliable


def test_a_cure_can_save_the_time_that_launches_wait_for_a_full_device_queue():
    def program(machine):
        machine.upload(55 * MB, pinned=True)
        machine.launch(1000)
        machine.launch_on_full_queue(1981)

    simulation = Simulation.from_view(CaptureView(rig.without_calls(rig.run(program))))
    (cure,) = simulation.with_predicted_gain(finding(2, overlap_copies(2))).cures
    assert cure.high == pytest.approx(1e-3 - 20e-6, rel=0.1)


records = st.lists(
    st.fixed_dictionaries(
        {
            "start": st.integers(0, 60_000_000),
            "duration": st.integers(0, 3_000_000),
            "nbytes": st.sampled_from([0, 4, 8 * MB]),
            "kind": st.sampled_from([1, 2, 3, 4, 5, 10, 38, 51]),
            "what": st.sampled_from([0, 1, 2, 3, 8, 31, 41, 131, 211]),
            "stream": st.integers(0, 3),
            "correlation": st.integers(0, 20),
            "thread": st.sampled_from([1, 2]),
            "source": st.integers(0, 5),
            "flags": st.integers(0, 1),
        }
    ),
    max_size=60,
)


def shifted(first, *, start, duration, **fields):
    """Return the fields of a record that starts `start` nanoseconds after `first`."""
    return {"start": first + start, "end": first + start + duration, **fields}


@given(records)
def test_any_device_records_can_be_diagnosed(rows):
    capture = rig.run(trains)
    first = capture.window.traced[0]
    diagnosis = diagnose(
        replace(capture, device=rig.device_records([shifted(first, **row) for row in rows])), device="l4"
    )
    assert diagnosis.failures == ()
    assert all(0 <= cure.low <= cure.high for found in diagnosis.findings for cure in found.cures)
    assert sum(diagnosis.view.step_parts.values()) == pytest.approx(diagnosis.view.step_seconds)


def test_a_diagnosis_predicts_the_step_on_another_machine():
    diagnosis = diagnose(rig.run(trains), device="a100", link="pcie3")
    assert diagnosis.other_machine.machine == "a100 with pcie3"
    assert diagnosis.other_machine.step.low > diagnosis.view.step_seconds
    assert diagnose(rig.run(trains)).other_machine is None


def test_a_prediction_for_another_machine_needs_device_records():
    diagnosis = diagnose(replace(rig.run(trains), device=None), device="a100")
    assert diagnosis.other_machine.step is None
    assert diagnosis.other_machine.reason == "the GPU was not recorded"


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA A10G", "a10"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("Tesla T4", "t4"),
        ("NVIDIA H100-PCIE-80GB", "h100-pcie"),
        ("NVIDIA RTX A1000", None),
        ("NVIDIA T400 4GB", None),
        ("Some other", None),
    ],
)
def test_gpus_are_found_by_their_driver_names(gpu, name):
    assert find_gpu(gpu) == name


def test_the_speeds_of_a_gpu_state_their_source():
    assert speeds_of_gpu("NVIDIA H200").origin == "measured on an NVIDIA H200"
    assert "data sheet of the NVIDIA A100" in speeds_of_gpu("NVIDIA A100-SXM4-80GB").origin
    assert speeds_of_gpu("NVIDIA A100-SXM4-80GB").pinned == LINKS["pcie4"].pinned


def test_a_probe_does_not_change_the_speed_of_selecting_rows():
    speeds = RowSpeeds((RowSpeed(64, 1e9),))
    host = HostCeilings((CopySpeed(1, 8e9),), (HostGather(1, speeds),))
    device = DeviceCeilings(
        "NVIDIA L4", 8, 9, 4, 16, 2e10, 2e10, 3e10, 8e9, 1e10, 1e10, 5e-6, 1e-5, None, 7e-6, speeds, None
    )
    hardware = Hardware("CPU", 4, 8 << 30, ("NVIDIA L4",), "580.1")
    probe = Probe(hardware, datetime(2026, 7, 30, tzinfo=UTC), 9.5, host, None, device, ())
    assert speeds_of_gpu("NVIDIA L4", probe).pinned == 2e10
    assert speeds_of_gpu("NVIDIA L4", probe).gather == speeds_of_gpu("NVIDIA L4").gather


def test_matrix_products_scale_with_arithmetic_and_other_kernels_with_memory():
    operations = (
        DeviceOperation(1e-3, is_matrix_product=True),
        DeviceOperation(1e-3),
        DeviceOperation(1e-3, engine="host to device"),
    )
    timeline = Timeline((HostAction(0.0, (0, 1, 2), ends_step=True),), operations)
    fast, slow = on_other_machine(timeline, "h200", device="h100", link="pcie4")
    for other in (fast, slow):
        product, rest, copy = (operation.seconds for operation in other.operations)
        assert product == pytest.approx(1e-3)
        assert rest == pytest.approx(1e-3 * 4.8 / 3.35)
        assert copy == pytest.approx(1e-3 * 54.8 / 25)


def test_the_preparation_of_an_upload_scales_with_the_host_and_not_with_device_memory():
    preparation = DeviceOperation(1e-3, PREPARATION_STREAM, is_pageable=True)
    timeline = Timeline((HostAction(0.0, (0,), ends_step=True),), (preparation,))
    for other in on_other_machine(timeline, "h200", device="l4", link="pcie3"):
        assert other.operations[0].seconds == pytest.approx(1e-3 * 8 / 6)


def test_the_same_machine_has_the_same_step_times():
    timeline = Timeline((HostAction(0.0, (0,), line=STEP_LINE, ends_step=True),), (DeviceOperation(1e-3),))
    assert {simulate_steps(other) for other in on_other_machine(timeline, "h200", device="h200")} == {
        simulate_steps(timeline)
    }


def test_the_error_for_an_unknown_machine_names_the_known_ones():
    with pytest.raises(CaptureError, match=r"'h900' is not a known device. Use one of .*h100"):
        diagnose(rig.run(trains), device="h900")
    assert all(device.link in LINKS for device in DEVICES.values())


def test_the_cost_of_a_finding_is_at_least_the_largest_gain_of_its_cure():
    predicted = Simulation.from_view(CaptureView(rig.run(trains))).with_predicted_gain(replace(UPLOAD, seconds=1e-6))
    assert predicted.seconds == predicted.best_cure.high > 1e-6


def test_a_wait_keeps_its_cost_and_says_why_its_cure_may_save_more():
    wait = replace(UPLOAD, seconds=1e-6, is_wait=True)
    predicted = Simulation.from_view(CaptureView(rig.run(trains))).with_predicted_gain(wait)
    assert predicted.seconds == 1e-6 < predicted.best_cure.high
    assert predicted.evidence[-1] == WARM_CACHES


def test_a_cost_of_zero_stays_zero():
    free = replace(UPLOAD, seconds=0.0)
    assert Simulation.from_view(CaptureView(rig.run(trains))).with_predicted_gain(free).seconds == 0.0
