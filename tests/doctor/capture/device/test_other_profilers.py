"""If another profiler uses CUPTI, the device ledger leaves it alone and adds a note."""

import sys
from types import SimpleNamespace

import pytest

from forebay.doctor.capture.device import ledger
from forebay.doctor.capture.device.ledger import DeviceLedger, active_profiler
from forebay.doctor.capture.ledger import Ledger

MODULES = ("torch.autograd.profiler", "tensorflow.python.profiler.profiler_v2", "jax._src.profiler")


@pytest.fixture(autouse=True)
def no_profiler(monkeypatch):
    for setting in ledger._SETTINGS:
        monkeypatch.delenv(setting, raising=False)
    for module in MODULES:
        monkeypatch.delitem(sys.modules, module, raising=False)


def test_no_profiler_is_active_if_nothing_is_loaded():
    assert active_profiler() is None


@pytest.mark.parametrize(
    ("module", "state", "name"),
    [
        ("torch.autograd.profiler", SimpleNamespace(_is_profiler_enabled=True), "torch.profiler"),
        ("tensorflow.python.profiler.profiler_v2", SimpleNamespace(_profiler=object()), "tf.profiler"),
        (
            "jax._src.profiler",
            SimpleNamespace(_profile_state=SimpleNamespace(profile_session=object())),
            "jax.profiler",
        ),
    ],
)
def test_an_active_profiler_of_a_framework_is_found(monkeypatch, module, state, name):
    monkeypatch.setitem(sys.modules, module, state)
    assert active_profiler() == name


@pytest.mark.parametrize("module", MODULES)
def test_versions_with_another_layout_are_ignored(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, SimpleNamespace())
    assert active_profiler() is None


@pytest.mark.parametrize(("setting", "name"), ledger._SETTINGS.items())
def test_a_tool_that_started_the_program_is_found(monkeypatch, setting, name):
    monkeypatch.setenv(setting, "1")
    assert active_profiler() == name


def test_another_profiler_is_left_alone_and_noted_once(monkeypatch):
    monkeypatch.setattr(ledger, "has_loaded_cuda", lambda: True)
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "7")
    host_ledger = Ledger()
    device_ledger = DeviceLedger(host_ledger.note)
    assert not device_ledger.start()
    assert not device_ledger.start()  # `early tracing` and `tracing` both start the recording
    assert host_ledger.notes == [
        "GPU activity is not recorded: Nsight Systems uses CUPTI, which serves one profiler at a time."
    ]
