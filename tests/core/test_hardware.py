"""The hardware of a machine: its fingerprint, and the GPUs that belong to it."""

from dataclasses import replace

import pynvml
import pytest
from tests.support.probes import MACHINE, refuse

from forebay.core import hardware, nvml
from forebay.core.hardware import Hardware


@pytest.mark.parametrize(
    "other",
    [
        {"cpu": "another"},
        {"cores": 5},
        {"memory_nbytes": 16 << 30},
        {"gpus": ()},
        {"gpus": ("GPU", "GPU")},
        {"driver_version": "581"},
    ],
)
def test_another_machine_has_another_fingerprint(other):
    assert replace(MACHINE, **other).fingerprint != MACHINE.fingerprint


def test_a_few_pages_of_memory_do_not_change_the_fingerprint():
    assert replace(MACHINE, memory_nbytes=MACHINE.memory_nbytes - 40_000).fingerprint == MACHINE.fingerprint


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_gpus_are_not_part_of_the_machine(monkeypatch, hidden):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    monkeypatch.setattr(hardware, "is_cuda_installed", lambda: True)
    monkeypatch.setattr(hardware, "_gpu_names_and_driver", refuse)
    assert Hardware.detect().gpus == ()


def test_without_cuda_bindings_gpus_are_not_part_of_the_machine(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(hardware, "_gpu_names_and_driver", lambda: (("GPU",), "580"))
    monkeypatch.setattr(hardware, "is_cuda_installed", lambda: True)
    assert Hardware.detect().gpus == ("GPU",)
    monkeypatch.setattr(hardware, "is_cuda_installed", lambda: False)
    assert Hardware.detect().gpus == ()


def test_without_a_driver_no_gpu_is_found(monkeypatch):
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", lambda name: exec("raise OSError(name)"))
    with nvml.Nvml() as library:
        assert (library.gpu_names, library.driver_version, library.pcie_link("0:0:0.0")) == ((), "", (None, None))
