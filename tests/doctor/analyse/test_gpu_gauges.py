"""The driver's gauges: read by a thread from a stand-in, and what of their readings is worth a remark."""

import ctypes
import shutil
import subprocess
import threading

import pytest
from tests.doctor.captures import TORCH, GiB, loop
from tests.support.paths import DOCTOR

from forebay.doctor.analyse.case import Case
from forebay.doctor.analyse.gpu_gauges import gauges_of, remarks_on
from forebay.doctor.capture import gpu_sampler
from forebay.doctor.capture.gpu_sampler import GpuSampler, visible_devices
from forebay.doctor.report import side_notes

STAND_IN = DOCTOR / "stand_in" / "nvml.c"
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
    "held_back": 0,
    "link_generation": 5,
    "link_width": 16,
    "received_bytes_per_second": 3e9,
    "sent_bytes_per_second": 1e8,
    "watts": 400.0,
    "used_nbytes": 20 * GiB,
}


@pytest.fixture
def driver(tmp_path, monkeypatch):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    built = tmp_path / "nvml.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", built, STAND_IN], check=True)
    library = ctypes.CDLL(str(built))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def case_of(*samples, frameworks=None, **gpu):
    told = [GPU | gpu | {"samples": [SAMPLE | sample for sample in samples]}]
    return Case(loop(facts={"gauges": told}, frameworks=frameworks))


def remarks(*samples, **gpu):
    (gauges,) = gauges_of(case_of(*samples, **gpu))
    return [*remarks_on(gauges)]


# Reading


def test_every_gauge_is_read_and_what_a_gpu_does_not_tell_is_none(driver, monkeypatch):
    enough = threading.Event()
    monkeypatch.setattr(gpu_sampler, "PERIOD_SECONDS", 0.001)
    sampler = GpuSampler()
    monkeypatch.setattr(sampler._over, "wait", lambda seconds: enough.set() or sampler._over.set())
    sampler.start()
    assert enough.wait(20)
    (gpu,) = sampler.gpus
    (sample,) = gpu.pop("samples")
    assert gpu.pop("name") == "Stand-in 1"
    assert gpu == {
        "most_clock_mhz": 2000,
        "most_link_generation": 5,
        "most_link_width": 16,
        "most_watts": 700.0,
        "total_nbytes": 80 * GiB,
    }
    assert sample.pop("at") > 0
    assert sample == {
        "busy": 0.43,
        "clock_mhz": 1200,
        "held_back": 0x40,
        "link_generation": 5,
        "link_width": 8,
        "received_bytes_per_second": 4_096_000_000,
        "sent_bytes_per_second": 1_024_000,
        "watts": None,
        "used_nbytes": 20 * GiB,
    }


def test_where_there_is_no_driver_nothing_is_sampled(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: exec("raise OSError(name)"))
    sampler = GpuSampler()
    sampler.start()
    sampler._thread.join(20)
    assert not sampler._thread.is_alive()
    assert sampler.gpus == []


@pytest.mark.parametrize(
    ("named", "seen"),
    [(None, [0, 1, 2]), ("", []), ("2,0", [2, 0]), ("7", []), ("GPU-8a1f", [0, 1, 2]), ("0, 1", [0, 1])],
)
def test_gpus_that_the_environment_hides_are_not_asked(monkeypatch, named, seen):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu_sampler.os, "environ", {} if named is None else {"CUDA_VISIBLE_DEVICES": named})
    assert visible_devices(3) == seen


# Judging


def test_samples_of_the_loop_count_and_those_before_it_do_not():
    case = case_of({"at": 1, "busy": 0.0}, {"at": 2, "busy": 0.2}, {"at": 3, "busy": 0.4})
    case.capture.facts["gauges"][0]["samples"][0]["at"] = case.capture.window.start - 1
    (gauges,) = gauges_of(case)
    assert (gauges.samples, gauges.busy) == (2, pytest.approx(0.3))


def test_a_loop_too_short_for_a_sample_has_those_that_there_are():
    (gauges,) = gauges_of(case_of({"at": -5, "busy": 0.2}))
    assert (gauges.samples, gauges.busy) == (1, 0.2)


def test_a_script_that_sees_no_gpu_has_no_gauges():
    assert gauges_of(case_of({}, frameworks=TORCH)) == ()


def test_a_gpu_as_it_should_be_has_no_remark():
    assert remarks({}, {}) == []


def test_heat_is_told_with_the_clock_it_leaves():
    hot = {"held_back": 0x40, "clock_mhz": 1200}
    assert remarks(hot, hot | {"held_back": 0x20}, {"clock_mhz": 1200}, {"clock_mhz": 1200}) == [
        "heat held it back in 50% of the samples: 1,200 of 1,980 MHz"
    ]


def test_a_power_limit_that_costs_no_clock_is_no_remark():
    assert remarks({"held_back": 0x4}, {"held_back": 0x4}) == []


def test_a_single_dip_is_no_remark():
    assert remarks({"held_back": 0x40, "clock_mhz": 300}, *[{}] * 9) == []


def test_lanes_and_generation_below_what_they_could_be_are_told():
    assert remarks({"link_width": 8, "link_generation": 3}) == [
        "its link has 8 of 16 lanes: look at the slot and at the BIOS",
        "its link runs as PCIe 3, though it could as PCIe 5",
    ]


def test_a_link_that_is_full_is_told():
    assert remarks({"received_bytes_per_second": 57e9}) == ["its link is 90% full: only fewer bytes would help"]


def test_a_link_that_only_rests_between_copies_is_no_remark():
    assert remarks({"link_generation": 1}, {"link_generation": 5}) == []


def test_an_idle_gpu_saves_power_and_is_no_remark():
    assert remarks({"busy": 0.0, "link_generation": 1, "held_back": 0x4, "clock_mhz": 300}) == []


def test_one_sentence_says_it():
    assert side_notes.gpus(case_of({}, {"link_width": 16})) == [
        "H200: 50% busy, 1,980 of 1,980 MHz, PCIe 5 x16, 3.0 GB/s in and 0.1 out, 400 of 700 W, 2 samples"
    ]


def test_a_gpu_that_tells_little_is_described_by_what_it_tells():
    nothing = dict.fromkeys(SAMPLE) | {"at": 5}
    unknown = dict.fromkeys(GPU) | {"name": "GPU"}
    assert side_notes.gpus(case_of(nothing, **unknown)) == ["GPU: not known how busy, 1 sample"]
