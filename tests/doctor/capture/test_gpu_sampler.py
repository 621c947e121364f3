"""The GPU sampler, with a stand-in for the NVML library."""

import ctypes
import shutil
import subprocess
import sys
import threading

import pynvml
import pytest
from tests.support.paths import DOCTOR

from forebay.core.nvml import Nvml
from forebay.doctor.capture import gpu_sampler
from forebay.doctor.capture.gpu_sampler import GpuSampler, visible_gpus

STAND_IN = DOCTOR / "stand_in" / "nvml.c"
GiB = 1 << 30


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Let pynvml call the stand-in instead of libnvidia-ml.so.1."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    built = tmp_path / "nvml.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", built, STAND_IN], check=True)
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(built)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def run_to_the_end(sampler):
    sampler.start()
    sampler._thread.join(20)
    assert not sampler._thread.is_alive()


def test_every_value_is_sampled_and_unsupported_values_are_none(library, monkeypatch):
    enough = threading.Event()
    monkeypatch.setattr(gpu_sampler, "PERIOD_SECONDS", 0.001)
    sampler = GpuSampler()
    monkeypatch.setattr(sampler._stopped, "wait", lambda seconds: enough.set() or sampler._stopped.set())
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


def test_the_library_names_its_gpus(library):
    with Nvml() as nvml:
        assert (nvml.gpu_count, nvml.gpu_names, nvml.driver_version) == (1, ("Stand-in 1",), "")


def test_nothing_is_sampled_without_a_driver(monkeypatch):
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", lambda name: exec("raise OSError(name)"))
    sampler = GpuSampler()
    run_to_the_end(sampler)
    assert sampler.gpus == []


def test_nothing_is_sampled_without_pynvml(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    sampler = GpuSampler()
    run_to_the_end(sampler)
    assert sampler.gpus == []


@pytest.mark.parametrize(
    ("value", "indices"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        ("7", []),
        ("GPU-8a1f", [0, 1, 2]),
        ("0, 1", [0, 1]),
        ("-1", []),
        ("1,-1,2", [1]),
        ("NoDevFiles", []),
    ],
)
def test_hidden_gpus_are_not_sampled(monkeypatch, value, indices):
    monkeypatch.setattr(gpu_sampler.os, "environ", {} if value is None else {"CUDA_VISIBLE_DEVICES": value})
    assert visible_gpus(3) == indices
