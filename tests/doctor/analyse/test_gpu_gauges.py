"""Which readings of GPU gauges the doctor reports."""

from dataclasses import replace

import pytest
from tests.doctor.captures import JAX, TENSORFLOW_GPU, TORCH, TORCH_GPU, GiB, loop
from tests.doctor.device_rig import device_records

from forebay.doctor.analyse.capture_view import CaptureView
from forebay.doctor.analyse.gpu_gauges import computes_on_gpu, gauge_remarks, leaves_gpu_unused, read_gauges
from forebay.doctor.diagnosis.diagnose import diagnose
from forebay.doctor.model.capture import Window
from forebay.doctor.predict.machines import machine_speeds
from forebay.doctor.predict.unseen_device import has_unseen_device
from forebay.doctor.report import sentences, side_notes

GPU = {
    "name": "H200",
    "most_clock_mhz": 1980,
    "most_link_generation": 5,
    "most_link_width": 16,
    "most_watts": 700.0,
    "total_nbytes": 140 * GiB,
}
SAMPLE = {
    "at": 5,
    "busy": 0.5,
    "clock_mhz": 1980,
    "held_back": 0,  # NVML bit mask of the reasons that limit the clock
    "link_generation": 5,
    "link_width": 16,
    "received_bytes_per_second": 3e9,
    "sent_bytes_per_second": 1e8,
    "watts": 400.0,
    "used_nbytes": 20 * GiB,
}


def view_of(*samples, frameworks=None, **gpu):
    gauges = [GPU | gpu | {"samples": [SAMPLE | sample for sample in samples]}]
    capture = loop(facts={"gauges": gauges}, frameworks=frameworks)
    return CaptureView(replace(capture, window=Window(0, 10, untraced=(2e-9,) * 5, traced=(10, 20))))


def remarks(*samples, **gpu):
    (gauges,) = read_gauges(view_of(*samples, **gpu))
    return [*gauge_remarks(gauges)]


def test_only_samples_taken_during_the_loop_count():
    view = view_of({"at": 1, "busy": 0.0}, {"at": 2, "busy": 0.2}, {"at": 3, "busy": 0.4})
    view.capture.facts["gauges"][0]["samples"][0]["at"] = view.capture.window.start - 1
    (gauges,) = read_gauges(view)
    assert (gauges.samples, gauges.busy) == (2, pytest.approx(0.3))


def test_samples_of_an_evaluation_after_the_loop_do_not_count():
    (gauges,) = read_gauges(view_of({"busy": 0.2}, {"at": 30, "busy": 0.4}, {"at": 31, "busy": 0.0}))
    assert (gauges.samples, gauges.busy) == (2, pytest.approx(0.3))


def test_if_no_sample_was_taken_during_the_loop_all_samples_count():
    (gauges,) = read_gauges(view_of({"at": -5, "busy": 0.2}))
    assert (gauges.samples, gauges.busy) == (1, 0.2)


def test_a_script_that_sees_no_gpu_has_no_gauges():
    assert read_gauges(view_of({}, frameworks=TORCH)) == ()


def test_a_healthy_gpu_has_no_remark():
    assert remarks({}, {}) == []


def test_a_thermal_limit_is_reported_with_the_clock():
    hot = {"held_back": 0x40, "clock_mhz": 1200}
    assert remarks(hot, hot | {"held_back": 0x20}, {"clock_mhz": 1200}, {"clock_mhz": 1200}) == [
        "heat limited its clock in 50% of the readings (1,200 of 1,980 MHz)"
    ]


def test_a_power_limit_at_full_clock_is_not_reported():
    assert remarks({"held_back": 0x4}, {"held_back": 0x4}) == []


def test_a_limit_in_one_of_ten_readings_is_not_reported():
    assert remarks({"held_back": 0x40, "clock_mhz": 300}, *[{}] * 9) == []


def test_missing_lanes_and_a_lower_generation_are_reported():
    assert remarks({"link_width": 8, "link_generation": 3}) == [
        "its PCIe link has 8 of 16 lanes; check the slot and the BIOS settings",
        "its link runs at PCIe 3 although PCIe 5 is possible",
    ]


def test_a_full_link_is_reported():
    assert remarks({"received_bytes_per_second": 57e9}) == ["its PCIe link is 90% full; copy fewer bytes to relieve it"]


def test_a_link_that_is_slow_only_between_copies_is_not_reported():
    assert remarks({"link_generation": 1}, {"link_generation": 5}) == []


def test_an_idle_gpu_that_saves_power_is_not_reported():
    assert remarks({"busy": 0.0, "link_generation": 1, "held_back": 0x4, "clock_mhz": 300}) == []


def test_the_summary_is_one_sentence():
    assert side_notes.describe_gpus(view_of({}, {"link_width": 16})) == [
        "H200: 50% busy, 1,980 of 1,980 MHz, PCIe 5 x16, 3.0 GB/s received and 0.1 GB/s sent, 400 of 700 W, 2 readings"
    ]


def test_unknown_readings_are_omitted():
    nothing = dict.fromkeys(SAMPLE) | {"at": 5}
    unknown = dict.fromkeys(GPU) | {"name": "GPU"}
    assert side_notes.describe_gpus(view_of(nothing, **unknown)) == ["GPU: utilization unknown, 1 reading"]


def recorded_loop(frameworks, rows=()):
    gauges = [GPU | {"samples": [SAMPLE | {"busy": 0.0}]}]
    return replace(loop(frameworks=frameworks, facts={"gauges": gauges}), device=device_records(rows))


def test_the_report_says_that_a_script_of_pytorch_leaves_the_gpu_unused():
    diagnosis = diagnose(recorded_loop(TORCH_GPU))
    assert sentences.format_headline(diagnosis) == sentences.GPU_UNUSED
    (described,) = side_notes.describe_gpus(diagnosis.view)
    assert described.endswith(
        'the script does not use it; to try it, move the model and each batch there with .to("cuda")'
    )


def test_an_unused_gpu_with_counted_operators_is_a_finding_with_a_cure():
    capture = recorded_loop(TORCH_GPU)
    capture = replace(capture, facts=capture.facts | {"operators": 40})
    diagnosis = diagnose(capture)
    step = diagnosis.view.step_seconds
    (finding,) = diagnosis.findings
    graph, eager = finding.cures
    assert (finding.rule, finding.line) == ("unused_gpu", diagnosis.view.line(diagnosis.view.steps.anchor[2]))
    assert "40 operators" in sentences.format_headline(diagnosis)
    assert 0 < eager.high < graph.high < step
    assert "CUDAGraph" in graph.code
    assert "CUDAGraph" not in eager.code


@pytest.mark.parametrize("operators", [0, 3, 10_000_000])
def test_without_a_gain_only_the_headline_mentions_the_unused_gpu(operators):
    capture = recorded_loop(TORCH_GPU)
    diagnosis = diagnose(replace(capture, facts=capture.facts | {"operators": operators}))
    assert diagnosis.findings == ()
    assert sentences.format_headline(diagnosis) == sentences.GPU_UNUSED


@pytest.mark.parametrize(
    ("frameworks", "rows"), [(TORCH, ()), (TENSORFLOW_GPU, ()), (JAX, ()), (TORCH_GPU, [{"start": 1, "end": 2}])]
)
def test_scripts_without_a_gpu_with_device_work_or_of_other_frameworks_leave_no_gpu_unused(frameworks, rows):
    diagnosis = diagnose(recorded_loop(frameworks, list(rows)))
    assert not leaves_gpu_unused(diagnosis.view)
    assert sentences.format_headline(diagnosis) == sentences.HEALTHY


def test_a_device_that_was_not_recorded_may_be_in_use():
    view = CaptureView(loop(frameworks=TORCH_GPU))
    assert not leaves_gpu_unused(view)
    assert computes_on_gpu(view)
    assert has_unseen_device(view)


def test_a_gpu_that_the_script_leaves_unused_does_not_limit_the_step():
    view = CaptureView(recorded_loop(TORCH_GPU))
    assert not computes_on_gpu(view)
    assert not has_unseen_device(view)


@pytest.mark.parametrize(
    ("sample", "gpu", "pinned", "pageable"),
    [
        pytest.param({}, {}, 54.8e9, 8e9, id="PCIe 5, 16 lanes"),
        pytest.param({"link_generation": 4, "link_width": 8}, {}, 12.45e9, 6.2e9, id="laptop"),
        pytest.param(
            {"busy": 0.0, "link_generation": 1},
            {"most_link_generation": 4, "most_link_width": 8},
            12.45e9,
            6.2e9,
            id="idle",
        ),
        pytest.param({}, {"name": "NVIDIA GH200 480GB"}, 350e9, 30e9, id="C2C"),
        pytest.param({"link_width": None}, {"name": "NVIDIA L4"}, 25e9, 8e9, id="unknown width"),
    ],
)
def test_predictions_use_the_reported_link_of_a_machine_without_a_probe(sample, gpu, pinned, pageable, monkeypatch):
    monkeypatch.setattr("forebay.core.ceilings.Probe.cached", lambda: None)
    speeds = machine_speeds(view_of(sample, **gpu))
    assert speeds.pinned == pytest.approx(pinned, rel=0.01)
    assert speeds.pageable == pytest.approx(pageable, rel=0.01)
